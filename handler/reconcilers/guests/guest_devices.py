"""The devices of a running guest: ``status.devices``, and the names that a migration's target keeps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disks, interfaces
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.places import forms
from apiserver.apis.virt.spec.described import domain_of
from launcher.protocol import messages


def listed(vm: Mapping[str, Any], devices: Iterable[messages.DeviceStatus]) -> list[Object]:
    """Return ``status.devices``: those reported devices that the machine has, each once, in the spec's order."""
    told = {(each.kind, each.name): each for each in devices}
    return [_device(told[each]) for each in _of_machine(vm) if each in told]


def _of_machine(vm: Mapping[str, Any]) -> Iterator[tuple[messages.DeviceKind, str]]:
    domain = domain_of(vm)
    for disk in disks.defaulted(domain):
        yield "disk", str(disk["name"])
    for interface in interfaces.defaulted(domain):
        yield "interface", str(interface["name"])


def _device(device: messages.DeviceStatus) -> Object:
    found = {"target": device.target, "address": device.address}
    return {
        "kind": device.kind,
        "name": device.name,
        **{key: text for key, text in found.items() if text and not forms.device_errors(text)},
        **({"empty": True} if device.empty else {}),
    }


def targets(vm: Mapping[str, Any]) -> dict[str, str]:
    """Return libvirt's names (``vda``) of the disks that the guest has, by disk name; none before its start."""
    found = dig_vm(vm, "status", "devices") or ()
    return {str(each["name"]): str(each["target"]) for each in found if each.get("kind") == "disk" and each.get("target")}
