"""Rules that several families share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from apiserver.apis.meta import names, quantity
from apiserver.apis.meta.quantity import Quantity
from apiserver.apis.meta.validation import FieldError, Path, duplicate, invalid, required, too_long, too_many
from apiserver.apis.virt.places import network

Object = Mapping[str, Any]

MAX_DEVICE_NAME: Final = 50
"""Disks' names are part of pod volume names, which have at most 63 bytes."""
MAX_PATH: Final = 1024
NANOS: Final = 10**9
MAX_HOST_DEVICES: Final = 16
"""In each list."""
_MAX_RESOURCE: Final = 253 - len("requests.")
"""A quota's name for a resource has this prefix."""

MAX_SMBIOS: Final = 64
"""Characters of a string: an old limit that firmware still relies on (SMBIOS 2.6, 3.1.3)."""

_SMBIOS: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,510}")


def validate_between(number: int, least: int, most: int, path: Path) -> list[FieldError]:
    """Return an error for a number outside the inclusive bounds."""
    if number < least:
        return [invalid(path, number, f"must be greater than or equal to {least}")]
    return [invalid(path, number, f"must be less than or equal to {most}")] if number > most else []


def validate_amount(given: object, least: Quantity, most: Quantity, path: Path) -> list[FieldError]:
    """Return an error for a valid quantity outside the inclusive bounds."""
    amount = quantity.parse(str(given))
    if amount < least:
        return [invalid(path, given, f"must be greater than or equal to {least}")]
    if amount > most:
        return [invalid(path, given, f"must be less than or equal to {most}")]
    return []


def validate_bytes(given: object, least: Quantity, most: Quantity, path: Path) -> list[FieldError]:
    """Return an error for a byte quantity that is fractional or outside the inclusive bounds."""
    if quantity.parse(str(given)).nanos % NANOS:
        return [invalid(path, given, "must be a whole number of bytes")]
    return validate_amount(given, least, most, path)


def validate_count(items: Sequence[object], most: int, path: Path) -> list[FieldError]:
    """Return an error for a list of more than ``most`` items."""
    return [too_many(path, len(items), most)] if len(items) > most else []


def validate_device_name(name: str, path: Path) -> list[FieldError]:
    """Return errors in a device's name: a DNS label of at most ``MAX_DEVICE_NAME`` characters."""
    if not name:
        return [required(path)]
    if len(name) > MAX_DEVICE_NAME:
        return [too_long(path, MAX_DEVICE_NAME)]
    return [invalid(path, name, each) for each in names.label_errors(name)]


def validate_image(reference: str, path: Path) -> list[FieldError]:
    """Return errors in a container image's reference."""
    if not reference:
        return [required(path, "the reference of a container image")]
    if not _IMAGE.fullmatch(reference):
        return [invalid(path, reference, "must be the reference of a container image such as registry.example.com/name:tag")]
    return []


def validate_path(text: str, path: Path, *, absolute: bool) -> list[FieldError]:
    """Return errors in a file's path, not empty, within an image or volume; ``absolute``: it must begin with a slash."""
    if not text:
        return [required(path)]
    if absolute and not text.startswith("/"):
        return [invalid(path, text, "must be an absolute path")]
    if ".." in text.split("/"):
        return [invalid(path, text, "must not contain '..'")]
    if text.endswith("/") or not text.isprintable() or len(text.encode()) > MAX_PATH:
        return [invalid(path, text, f"must be the path of a file, of at most {MAX_PATH} printable characters")]
    return []


def validate_smbios(given: Object, fields: Sequence[str], path: Path) -> list[FieldError]:
    """Return errors in ``fields`` of ``given``, if set: strings for the guest's SMBIOS tables."""
    found = []
    for field in fields:
        value = given.get(field)
        if value is not None and len(value) > MAX_SMBIOS:
            found.append(too_long(path.child(field), MAX_SMBIOS))
        elif value is not None and not _SMBIOS.fullmatch(value):
            found.append(invalid(path.child(field), value, "must consist of printable ASCII characters, and not begin or end with a space"))
    return found


def validate_host_device(device: Object, path: Path) -> list[FieldError]:
    """Return errors in name and ``deviceName`` of a device of the node."""
    found = validate_device_name(device.get("name") or "", path.child("name"))
    resource, path = str(device.get("deviceName") or ""), path.child("deviceName")
    if not resource:
        return [*found, required(path, "the name of a resource that a device plugin offers")]
    domain, slash, _ = resource.partition("/")
    if len(resource) > _MAX_RESOURCE:
        found.append(too_long(path, _MAX_RESOURCE))
    elif not slash:
        found.append(invalid(path, resource, "must be the name of a device plugin's resource such as vendor.example/device"))
    elif errors := names.qualified_name_errors(resource):
        found += [invalid(path, resource, each) for each in errors]
    elif f".{domain}".endswith((".kubernetes.io", ".kubevirt.io")) or domain.startswith("requests."):
        found.append(invalid(path, resource, "must be a device plugin's resource, not one of Kubernetes or KubeVirt"))
    return found


def validate_unique(items: Sequence[Object], field: str, path: Path) -> list[FieldError]:
    """Return an error for each item that repeats a value of ``field`` other than None. MAC addresses are compared in one notation."""
    seen: set[Any] = set()
    found = []
    for position, each in enumerate(items):
        value = each.get(field)
        value = network.normal_mac(value) if field == "mac" and value else value
        if value is not None and value in seen:
            found.append(duplicate(path.index(position).child(field), value))
        seen.add(value)
    return found
