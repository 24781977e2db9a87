"""cloud-init data of a disk: fields, sources and limits."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

NO_CLOUD: Final = "CloudInitNoCloud"
CONFIG_DRIVE: Final = "CloudInitConfigDrive"
TYPES: Final = frozenset({NO_CLOUD, CONFIG_DRIVE})
"""Disks with such data."""
SECRET: Final = "Secret"  # noqa: S105 - a kind
CONFIG_MAP: Final = "ConfigMap"
FILES: Final = frozenset({SECRET, CONFIG_MAP})
"""Disks with an object's keys as files."""
DOWNWARD_API: Final = "DownwardAPI"
SERVICE_ACCOUNT: Final = "ServiceAccount"
MOUNTED: Final = FILES | {DOWNWARD_API, SERVICE_ACCOUNT}
"""Disks with files that the kubelet mounts."""
MADE: Final = TYPES | MOUNTED
"""Disks with an image made in the pod."""

DATA: Final = ("userData", "networkData", "metaData")
"""Given as text in this field, in ``<field>Base64``, or in a Secret in ``<field>SecretRef``."""
DEFAULT_LABEL: Final = "cfgdata"
"""Default ``source.volumeLabel`` of a disk made from a Secret or ConfigMap."""
LABELS: Final[Mapping[str, str]] = {NO_CLOUD: "cidata", CONFIG_DRIVE: "config-2"}
"""cloud-init finds the file systems by them."""

MAX_INLINE: Final = 64 << 10
"""Bytes of a datum in the machine itself."""
MAX_VALUES: Final = 1 << 20
"""Bytes of a Secret or ConfigMap, as in Kubernetes."""
MAX_FILES: Final = 512
"""Keys of a Secret or ConfigMap."""
MAX_FILE_NAME: Final = 103
"""Joliet's limit for a key."""


def inline(source: Mapping[str, Any], datum: str) -> bytes | None:
    """Return the bytes of a datum (``userData`` …) written in a disk's source, or None.

    Raises:
        ValueError: it is not Unicode text or base64. The message does not repeat it.
    """
    if (text := source.get(datum)) is not None:
        try:
            return str(text).encode()
        except UnicodeEncodeError:
            raise ValueError("must be Unicode text") from None
    if (encoded := source.get(f"{datum}Base64")) is None:
        return None
    try:
        return base64.b64decode(str(encoded).replace("\r", "").replace("\n", ""), validate=True)
    except ValueError:
        raise ValueError("must be base64") from None


def form_error(kind: str, datum: str, data: bytes) -> str:
    """Return why cloud-init would ignore a whole disk because of this datum, or "".

    It checks only networkData and metaData of a ConfigDrive: JSON objects, the latter with ``uuid``. ``kind``: the disk's type.
    """
    if kind != CONFIG_DRIVE or datum not in ("networkData", "metaData"):
        return ""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return f"must be a JSON object in OpenStack's format: type {CONFIG_DRIVE} does not support YAML, {NO_CLOUD} does"
    if datum == "metaData" and not found.get("uuid"):
        return "must have uuid, which cloud-init uses to identify the machine"
    return ""


def reference(source: Mapping[str, Any], datum: str) -> tuple[str, str] | None:
    """Return name and key of the Secret with a datum (``userData`` …), or None."""
    given = source.get(f"{datum}SecretRef")
    return None if given is None else (str(given.get("name") or ""), str(given.get("key") or default_key(datum)))


def default_key(datum: str) -> str:
    """Return a datum's default key in a Secret: ``userdata`` for ``userData``."""
    return datum.lower()
