"""Validate objects before virt-controller acts on them. Pure."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object, is_deleting
from apiserver.apis.virt import structure


def validate_virtual_machine(vm: Object) -> tuple[str, ...]:
    """Return what is wrong with a VirtualMachine, in sentences with the place; empty when it can be looked at.

    Of one that is being deleted only the metadata matters: what else is wrong with it must not keep it, and its namespace, for ever.
    """
    return structure.of_metadata(vm) if is_deleting(vm) else structure.of_virtual_machine(vm)


def as_far_as_sound(vm: Object) -> Object:
    """Return a machine as it is, or, when it is being deleted and not sound, what its deletion needs: everything but spec and status."""
    if not is_deleting(vm) or not structure.of_virtual_machine(vm):
        return vm
    return {key: value for key, value in vm.items() if key not in ("spec", "status")}
