"""Parses a storage plugin's answer about a disk. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt.hardware import disks, network_disks, plugin_disks
from apiserver.apis.virt.hardware.plugin_disks import Protocol, Served
from handler.plugins.faults import Failed

MEMBERS: Final = frozenset({"protocol", "path", "size", "export", "liveMigration"})
_PATHS: Final[Mapping[Protocol, str]] = {"nbd": "socket", "file": "image"}
"""Member of the request with the only path that an answer may have."""


def served_by(plugin: str, told: Mapping[str, Any], result: Mapping[str, Any], *, live_migration: bool) -> Served:
    """Return the disk in a plugin's result, checked against ``told``, the request's disk. Raises Failed.

    The answer may override the plugin's default for ``live_migration``.
    """
    found = result.get("disk")
    if not isinstance(found, Mapping):
        _fail(plugin, "answered without a disk")
    if foreign := sorted(found.keys() - MEMBERS):
        _fail(plugin, f"answered with an unknown field of disk: {foreign[0]}")
    protocol = _protocol(plugin, found.get("protocol"))
    if found.get("path") != told[_PATHS[protocol]]:
        _fail(plugin, f"answered with the path {_short(found.get('path'))} instead of {told[_PATHS[protocol]]}")
    size, export, live = found.get("size"), found.get("export", ""), found.get("liveMigration", live_migration)
    if type(size) is not int or not 0 < size <= plugin_disks.MAX_SIZE or size % disks.BLOCK:
        _fail(plugin, f"answered with the size {_short(size)}: it must be a number of bytes, a multiple of {disks.BLOCK}")
    if not isinstance(export, str) or (export and (protocol == "file" or not network_disks.is_export(export))):
        _fail(plugin, f"answered with the export {_short(export)}, which is not valid")
    if not isinstance(live, bool):
        _fail(plugin, "answered with a liveMigration that is not true or false")
    if protocol == "file" and size > told["sizeLimit"]:
        _fail(plugin, f"put an image of {size} bytes into the pod, but the disk's source.sizeLimit is {told['sizeLimit']}")
    return Served(protocol, size, export, live)


def _protocol(plugin: str, given: object) -> Protocol:
    found = next((each for each in _PATHS if each == given), None)
    if found is None:
        _fail(plugin, f"answered with the protocol {_short(given)}: it must be one of {', '.join(_PATHS)}")
    return found


def _fail(plugin: str, words: str) -> NoReturn:
    raise Failed(f"plugin {plugin} (ADD) {words}")


def _short(value: object) -> str:
    return one_line(ascii(value), 200)
