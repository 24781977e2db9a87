"""Precedence among machines that name the same storage: one with a pod has it, and one that ran last and is to go on has it again. Pure.

Between two attempts (a restart, an eviction, a crash and the pause after it) a machine has no pod. Whoever waits for its disk would start
from it in that moment, and the machine that people use would stay off: a copy of its manifest that somebody forgot is enough.
"""

from __future__ import annotations

from apiserver.apis.meta.objects import Object, dig, uid_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.lifecycle import phases, power


def holds(vm: Object) -> bool:
    """Return whether a machine keeps others from the storage that it names: it has a pod, or is to have one again."""
    return phases.phase_of(vm) in phases.WITH_POD or goes_on(vm)


def goes_before(holder: Object, vm: Object) -> bool:
    """Return whether a machine that :func:`holds` the storage that both name has it before this one, which has no pod."""
    return phases.phase_of(holder) in phases.WITH_POD or (_ran(holder), uid_of(holder)) > (_ran(vm), uid_of(vm))


def goes_on(vm: Object) -> bool:
    """Return whether a guest ran that is to run again: one that never could start keeps nobody waiting, nor one that nobody can read."""
    return not structure.of_virtual_machine(vm) and bool(_ran(vm)) and power.decide(vm).on


def _ran(vm: Object) -> str:
    """Return when the machine's guest last began to run (RFC 3339, UTC, whose order is that of time); empty: it never did."""
    return max((str(each.get("runningTime") or "") for each in dig(vm, "status", "attempts") or ()), default="")
