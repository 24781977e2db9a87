"""Which of several machines with the same storage may use it: one with a pod, or one that ran last and will run again. Pure.

Otherwise another machine, such as a forgotten copy of the manifest, could take the disk between two attempts.
"""

from __future__ import annotations

from apiserver.apis.meta.objects import Object, dig, uid_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import phases, power


def holds(vm: Object) -> bool:
    """Return whether a machine keeps others from its storage: it has a pod, is suspended, or will have a pod again."""
    return phases.phase_of(vm) in phases.WITH_POD or phases.keeps_guest(vm) or goes_on(vm)


def goes_before(holder: Object, vm: Object) -> bool:
    """Return whether ``holder`` gets the storage before ``vm``, which lacks a pod: ``holder`` has a pod or guest, or ran later."""
    if phases.phase_of(holder) in phases.WITH_POD or phases.keeps_guest(holder):
        return True
    return (_ran(holder), uid_of(holder)) > (_ran(vm), uid_of(vm))


def goes_on(vm: Object) -> bool:
    """Return whether the guest has run and will run again. A machine that never started or is invalid blocks no other."""
    if not dig(vm, "status", "attempts"):  # before the check of the whole machine, which takes longer
        return False
    return not structure.of_virtual_machine(vm) and bool(_ran(vm)) and power.decide(vm).on


def _ran(vm: Object) -> str:
    """Return when the guest last ran (RFC 3339, UTC, so text order is time order); empty if never."""
    return max((str(each.get("runningTime") or "") for each in dig_vm(vm, "status", "attempts") or ()), default="")
