"""Disks with an image that the pod creates: cloud-init data, files of a Secret or ConfigMap.

Errors do not repeat the data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pydantic import Field

from apiserver.apis.meta import names
from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required, too_long
from apiserver.apis.virt.hardware import cloud_init
from apiserver.apis.virt.v1alpha1.domain.rules import Object

FIELDS: Final = frozenset(f"{datum}{way}" for datum in cloud_init.DATA for way in ("", "Base64", "SecretRef"))
MAX_KEY: Final = 253

_KEY: Final = re.compile(r"[A-Za-z0-9_.-]+")
_LABEL: Final = re.compile(r"[A-Za-z0-9_.-]{1,16}")
"""Joliet, which Linux and Windows prefer, has room for 16 characters."""
_HIDDEN: Final = "…"


class SecretKey(Model):
    """A value of a Secret in the machine's namespace."""

    name: str = Field(description="The Secret's name.")
    key: str | None = Field(None, description="The key of the value. Default: userdata, networkdata or metadata.")


def validate_source(kind: str, source: Object, path: Path) -> list[FieldError]:
    """Return errors in a cloud-init disk's source."""
    return [error for datum in cloud_init.DATA for error in _validate_datum(kind, source, datum, path)]


def validate_files(kind: str, source: Object, path: Path) -> list[FieldError]:
    """Return errors in a disk's source with files of a Secret or ConfigMap."""
    return validate_object_name(kind, source.get("name") or "", path.child("name")) + validate_label(source, path)


def validate_label(source: Object, path: Path) -> list[FieldError]:
    """Return errors in ``volumeLabel``, the file system label of a disk with files."""
    label = source.get("volumeLabel")
    if label is None or _LABEL.fullmatch(label):
        return []
    return [invalid(path.child("volumeLabel"), label, "must be 1 to 16 alphanumeric characters, '_', '.' or '-'")]


def validate_single(disks: Sequence[Object], path: Path) -> list[FieldError]:
    """Return errors for further cloud-init disks, because cloud-init reads an arbitrary one."""
    places = [position for position, disk in enumerate(disks) if disk.get("type") in cloud_init.TYPES]
    text = "a machine can have only one disk for cloud-init"
    return [forbidden(path.index(position).child("type"), text) for position in places[1:]]


def validate_object_name(kind: str, name: str, path: Path) -> list[FieldError]:
    """Return errors in a Secret's or ConfigMap's name."""
    if not name:
        return [required(path, f"the name of a {kind} in the same namespace")]
    return [invalid(path, name, each) for each in names.subdomain_errors(name)]


def _validate_datum(kind: str, source: Object, datum: str, path: Path) -> list[FieldError]:
    ways = [f"{datum}{way}" for way in ("", "Base64", "SecretRef") if source.get(f"{datum}{way}") is not None]
    found = [forbidden(path.child(way), f"may not be set together with {ways[0]}") for way in ways[1:]]
    if f"{datum}SecretRef" in ways:
        found += _validate_reference(source[f"{datum}SecretRef"], path.child(f"{datum}SecretRef"))
    for way in (datum, f"{datum}Base64"):
        if way in ways:
            found += _validate_inline(kind, {way: source[way]}, datum, path.child(way))
    return found


def _validate_reference(given: Object, path: Path) -> list[FieldError]:
    found = validate_object_name("Secret", given.get("name") or "", path.child("name"))
    return found + validate_key(given.get("key"), path.child("key"))


def validate_key(key: str | None, path: Path) -> list[FieldError]:
    """Return errors in a key of a Secret or ConfigMap; none for None, the default key."""
    if key is None:
        return []
    if len(key) > MAX_KEY:
        return [too_long(path, MAX_KEY)]
    if not _KEY.fullmatch(key) or key == "." or key.startswith(".."):
        text = "must consist of alphanumeric characters, '-', '_' or '.', and not begin with '..'"
        return [invalid(path, key, text)]
    return []


def _validate_inline(kind: str, source: Object, datum: str, path: Path) -> list[FieldError]:
    try:
        data = cloud_init.inline(source, datum)
    except ValueError as error:
        return [invalid(path, _HIDDEN, str(error))]
    if data is None:
        return []
    if len(data) > cloud_init.MAX_INLINE:
        return [too_long(path, cloud_init.MAX_INLINE)]
    return [invalid(path, _HIDDEN, wrong)] if (wrong := cloud_init.form_error(kind, datum, data)) else []
