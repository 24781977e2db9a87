"""Computes the status of a machine with a running guest, and the Events for changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import conditions, operations, phases, power
from controller.runtime.recorder import EventType
from handler.network.binding import Interface
from handler.probes.tally import Verdict
from handler.reconcilers.guests import (
    access_credentials,
    claim_imports,
    device_steps,
    disk_faults,
    frozen_filesystems,
    guest_agent,
    guest_changes,
    guest_operations,
    guest_probes,
    guest_status,
    guest_steps,
    passt_faults,
    reboot_loops,
    shared_filesystems,
)
from handler.reconcilers.guests.guest_status import NetworkFault
from handler.reconcilers.guests.reboot_loops import Reboots
from handler.storage.adding import DisksFault
from launcher.protocol import messages

Event = tuple[EventType, str, str]
"""Type, reason, message."""


_JUDGED: Final = frozenset(
    {
        conditions.READY, conditions.PAUSED, conditions.MIGRATABLE, conditions.DISKS_READY, conditions.NETWORK_READY,
        conditions.AGENT_CONNECTED, conditions.REBOOT_LOOP, conditions.ACCESS_CREDENTIALS, conditions.FILESYSTEMS_READY,
    }
)  # fmt: skip
"""Updated by each check of a running guest; conditions about claims and networks stay."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Observations of a running guest."""

    vm: Object
    launcher: messages.Status
    interfaces: tuple[Interface, ...] | None
    """None until this process has set up the pod's network."""
    verdict: Verdict
    network: NetworkFault | None
    disks: DisksFault | None
    now: datetime
    reboots: Reboots | None = None
    failures: guest_changes.Failures = field(default_factory=dict)
    failed_steps: device_steps.Failures = field(default_factory=dict)
    imports: claim_imports.Reports = field(default_factory=dict)

    @property
    def is_dead(self) -> bool:
        """True if the liveness probe has failed, and the guest is not stopping yet."""
        return bool(self.verdict.dead) and not self.launcher.stopping


def status_of(seen: Observed) -> tuple[Object, float | None]:
    """Return the machine's status, and after how many seconds it changes without a new report; None: it does not."""
    status, again = _seen_now(seen)
    return objects.with_conditions_judged(seen.vm, status, _JUDGED), again


def _seen_now(seen: Observed) -> tuple[Object, float | None]:
    vm, launcher, now = seen.vm, seen.launcher, seen.now
    status = _running(seen)
    if seen.is_dead:
        return guest_probes.ending(vm, status, seen.verdict, now), None
    if seen.disks is not None:
        status = guest_status.with_disks_fault(vm, status, seen.disks.reason, str(seen.disks), now)
    status = access_credentials.with_propagation(vm, status, launcher, now)
    status = shared_filesystems.with_filesystems(vm, status, launcher, now)
    status, again = guest_agent.with_guest(vm, status, launcher, now)
    if seen.reboots is None:
        return status, again
    status, quiet = reboot_loops.with_loop(vm, status, seen.reboots, now)
    return status, min((each for each in (again, quiet) if each is not None), default=None)


def events(seen: Observed, status: Object) -> Iterator[Event]:
    """Yield the Events for the differences between this status and the stored machine."""
    vm = seen.vm
    yield from guest_operations.events(vm, status)
    yield from guest_changes.events(vm, status)
    if seen.is_dead:
        yield "Warning", conditions.LIVENESS_FAILED, str((objects.condition(status["conditions"], conditions.READY) or {}).get("message"))
        return
    if failing := disk_faults.news(vm, status, seen.disks.reason if seen.disks is not None else ""):
        yield "Warning", *failing
    if why := guest_probes.became_unready(vm, status):
        yield "Warning", conditions.NOT_PROBED, why
    if thawed := frozen_filesystems.news(vm, status):
        yield "Warning", frozen_filesystems.THAWED, thawed
    if reboot_loops.began(vm, status):
        yield "Warning", conditions.REBOOT_LOOP, reboot_loops.MESSAGE
    if lost := shared_filesystems.loss(vm, status):
        yield "Warning", conditions.FILESYSTEM_LOST, lost
    if phases.phase_of(vm) == phases.SCHEDULED and not power.has_run(vm):  # an edit of the status can cause this phase again
        domain = seen.launcher.domain
        kind = "KVM" if domain is not None and domain.type == "kvm" else "emulation"
        yield "Normal", "Started", f"the guest runs ({kind})"


def _running(seen: Observed) -> Object:
    vm, launcher = seen.vm, seen.launcher
    fault = seen.network or passt_faults.fault(vm, launcher)
    barrier = claim_imports.barrier(vm, launcher.domain.devices if launcher.domain is not None else ())
    status = guest_status.running(vm, launcher, seen.interfaces, seen.now, seen.verdict, barrier)
    status = claim_imports.with_imports(vm, status, seen.imports, seen.now)
    status = frozen_filesystems.with_frozen(status, launcher)
    if operations.of(vm):
        status["operations"] = guest_operations.with_results(vm, launcher.operations, seen.now)
    status = guest_changes.with_entries(vm, status, launcher, seen.failures, seen.now)
    status = device_steps.with_entries(vm, status, guest_steps.missing(vm, launcher), seen.failed_steps, seen.now)
    return guest_status.with_network(vm, status, fault, seen.now)
