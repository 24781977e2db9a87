"""Requests to storage plugins about a disk. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from apiserver.apis.virt.hardware import disks, plugin_disks
from apiserver.apis.virt.spec.described import domain_of
from handler.plugins import requests

Document = Mapping[str, Any]


def disks_of(vm: Mapping[str, Any]) -> tuple[Document, ...]:
    """Return the machine's disks that plugins set up."""
    return tuple(each for each in disks.defaulted(domain_of(vm)) if plugin_disks.is_plugin(each))


def document(vm: Mapping[str, Any], pod_uid: str, disk: Mapping[str, Any], directory: PurePath) -> Document:
    """Return the request for a disk, without version, kind and the plugin's name. ``directory``: the disk's, as the plugin sees it."""
    return {
        **requests.common(vm, pod_uid),
        "disk": {
            "name": disk["name"],
            "device": disk["device"],
            "readOnly": bool(disk["readOnly"]),
            "options": dict((disk.get("source") or {}).get("options") or {}),
            "directory": str(directory),
            "socket": str(directory / plugin_disks.SOCKET),
            "image": str(directory / plugin_disks.IMAGE),
            "sizeLimit": plugin_disks.size_limit_bytes(disk),
        },
    }
