"""Validates objects before virt-handler uses them: their structure, and parts of paths. Pure."""

from __future__ import annotations

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import structure
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.places import network
from apiserver.apis.virt.spec.described import domain_of
from handler.pods import places


def validate_virtual_machine(vm: Object) -> tuple[str, ...]:
    """Return errors in a VirtualMachine's structure, pod uids and addresses, as sentences with paths; empty if valid."""
    return structure.of_virtual_machine(vm) or (*_uid(vm, "podUID"), *_addresses(vm))


def validate_migration(migration: Object) -> tuple[str, ...]:
    """Return the errors of a Migration, as sentences with paths; empty if valid."""
    return structure.of_migration(migration) or _uid(migration, "targetPodUID")


def _addresses(vm: Object) -> tuple[str, ...]:
    return tuple(
        f"spec.domain.devices.interfaces[{position}].mac must be six pairs of hexadecimal digits, not {ascii(each['mac'])[:80]}"
        for position, each in enumerate(interfaces.defaulted(domain_of(vm)))
        if each.get("mac") and not network.is_mac(each["mac"])
    )


def _uid(obj: Object, field: str) -> tuple[str, ...]:
    uid = objects.dig(obj, "status", field)
    return () if not uid or places.is_uid(uid) else (f"status.{field} must be the uid of a pod, not {ascii(uid)[:80]}",)
