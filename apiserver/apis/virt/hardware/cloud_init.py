"""cloud-init's data of a disk: its fields, the ways in which each datum is given, and their bounds. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

NO_CLOUD: Final = "CloudInitNoCloud"
CONFIG_DRIVE: Final = "CloudInitConfigDrive"
TYPES: Final = frozenset({NO_CLOUD, CONFIG_DRIVE})
"""Types of disks that hold such data."""
SECRET: Final = "Secret"  # noqa: S105 - a kind
CONFIG_MAP: Final = "ConfigMap"
FILES: Final = frozenset({SECRET, CONFIG_MAP})
"""Types of disks that hold the keys of an object as files."""
DOWNWARD_API: Final = "DownwardAPI"
SERVICE_ACCOUNT: Final = "ServiceAccount"
MOUNTED: Final = FILES | {DOWNWARD_API, SERVICE_ACCOUNT}
"""Types of disks that hold files which the kubelet mounts in the pod."""
MADE: Final = TYPES | MOUNTED
"""Types of disks whose image is made in the pod, of what the machine says and what the kubelet mounts."""

DATA: Final = ("userData", "networkData", "metaData")
"""Fields of the data; each is given as text in this field, in ``<field>Base64``, or in a Secret in ``<field>SecretRef``."""
DEFAULT_LABEL: Final = "cfgdata"
"""Default of ``source.volumeLabel`` of a disk made of a Secret or ConfigMap."""
LABELS: Final[Mapping[str, str]] = {NO_CLOUD: "cidata", CONFIG_DRIVE: "config-2"}
"""Names of the file systems by which cloud-init finds them."""

MAX_INLINE: Final = 64 << 10
"""Bytes of a datum that stands in the machine itself."""
MAX_VALUES: Final = 1 << 20
"""Bytes of all values of a Secret or ConfigMap: Kubernetes takes no more."""
MAX_FILES: Final = 512
"""Keys of a Secret or ConfigMap that become files."""
MAX_FILE_NAME: Final = 103
"""Characters of such a key: Joliet has room for no more, and libisofs 1.5.4 writes directories of hundreds of names of 180 wrongly."""


def inline(source: Mapping[str, Any], datum: str) -> bytes | None:
    """Return a datum that stands in a disk's source, or None.

    Raises:
        ValueError: it is no Unicode text, or what should be base64 is not. The message does not repeat it.
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
    """Return why cloud-init would ignore a disk with this datum, user data and keys included; empty: it would not.

    A ConfigDrive has ``network_data.json`` and ``meta_data.json``, of which the latter needs a ``uuid``. NoCloud reads YAML.
    """
    if kind != CONFIG_DRIVE or datum not in ("networkData", "metaData"):
        return ""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return f"must be an object in JSON, as OpenStack has it: type {CONFIG_DRIVE} takes no YAML, {NO_CLOUD} does"
    if datum == "metaData" and not found.get("uuid"):
        return "must have uuid, by which cloud-init knows the machine"
    return ""


def reference(source: Mapping[str, Any], datum: str) -> tuple[str, str] | None:
    """Return name and key of the Secret that holds a datum, or None."""
    given = source.get(f"{datum}SecretRef")
    return None if given is None else (str(given.get("name") or ""), str(given.get("key") or default_key(datum)))


def default_key(datum: str) -> str:
    """Return the key of a Secret that is taken where none is named: ``userdata``."""
    return datum.lower()
