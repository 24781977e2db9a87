"""Disks that are files of the node: type and valid paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

HOST: Final = "HostDisk"
"""Their format is always raw, without detection."""
MAX_PATH: Final = 1024
MAX_NAME: Final = 255
"""Bytes of a path component on all Linux file systems."""
NAMESPACE: Final = "{namespace}"
"""In a prefix: the machine's namespace."""


def is_host(disk: Mapping[str, Any]) -> bool:
    """Return whether a disk is a file of the node."""
    return disk.get("type") == HOST


def path_of(disk: Mapping[str, Any]) -> str:
    """Return a HostDisk's path on its node; "" for other disks."""
    return str((disk.get("source") or {}).get("path") or "") if is_host(disk) else ""


def path_problem(path: str) -> str:
    """Return why a file's path is invalid, or "". Two spellings of one path are never both valid."""
    if len(path) > MAX_PATH:
        return f"may not be longer than {MAX_PATH} characters"
    if not path.startswith("/"):
        return "must be an absolute path"
    if not path.isprintable() or not path.isascii():
        return "must be printable ASCII"
    if any(len(segment) > MAX_NAME for segment in path.split("/")):
        return f"may not have a path segment longer than {MAX_NAME} characters"
    if any(segment in ("", ".", "..") for segment in path.split("/")[1:]):
        return "must be a path of a file, without empty segments, '.' and '..'"
    return ""


def is_below(path: str, prefixes: Iterable[str], namespace: str) -> bool:
    """Return whether a path is below one of the administrator's prefixes; ``namespace`` is the machine's."""
    if path_problem(path):
        return False
    return any(path.startswith(each.replace(NAMESPACE, namespace).rstrip("/") + "/") for each in prefixes)


def prefixes(text: str) -> tuple[str, ...]:
    """Return the directories in a comma-separated list.

    Raises:
        ValueError: one is invalid, or too close to the root.
    """
    found = tuple(each.rstrip("/") for each in text.split(",") if each)
    for each in found:
        if why := path_problem(each) or ("must have at least two segments, such as /var/vms" if each.count("/") < 2 else ""):
            raise ValueError(f"{each or '/'}: {why}")
    return found
