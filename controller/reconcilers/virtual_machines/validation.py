"""Validates objects before virt-controller acts on them. Pure."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object, is_deleting
from apiserver.apis.virt import structure


def validate_virtual_machine(vm: Object) -> tuple[str, ...]:
    """Return the faults of a VirtualMachine as sentences with the field path; empty if valid.

    Only the metadata of a machine that is being deleted matters, so another fault cannot block the deletion.
    """
    return structure.of_metadata(vm) if is_deleting(vm) else structure.of_virtual_machine(vm)


def as_far_as_sound(vm: Object) -> Object:
    """Return the machine; without spec and status if it is invalid and being deleted."""
    if not is_deleting(vm) or not structure.of_virtual_machine(vm):
        return vm
    return {key: value for key, value in vm.items() if key not in ("spec", "status")}
