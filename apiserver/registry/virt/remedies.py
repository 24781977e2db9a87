"""The remedies that refusals of requests name."""

from __future__ import annotations

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import managed_save, phases, power


def of_absent_guest(vm: Object) -> str:
    """Return the command that brings a machine without a running guest to run, or why no command does."""
    name, phase = objects.name_of(vm), phases.phase_of(vm)
    if objects.is_deleting(vm):
        return "it is being deleted"
    if phase == phases.UNKNOWN:
        return f"its node does not report: kubectl describe vm {name}"
    if power.decide(vm).on:
        return f"to wait until it runs: kubectl virt start {name} --wait"
    if phase not in phases.WITH_POD and managed_save.of(vm):
        ways = f"kubectl virt resume {name} continues it, kubectl virt start {name} --discard-state boots it without that memory"
        return f"its memory is saved: {ways}"
    return f"to start it: kubectl virt start {name}"
