"""The state of the pod's only domain, and how each fact changes it.

Each function takes a state and a fact (an observation, a request, a migration's result) and returns the new state. None waits, reads a
clock or calls libvirt. Times called ``now`` are Unix time if they become part of the status, and the event loop's seconds if they are
compared with a deadline.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt.hardware import consoles
from apiserver.apis.virt.spec import hot_plug
from launcher.domain import document
from launcher.domain.states import NAMES, State
from launcher.hypervisor.port import NO_SPACE, Observation, Progress
from launcher.main.decisions import changes, incoming_migration, life, machines
from launcher.protocol import messages

MAX_PROBLEM: Final = 256
MEASURE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Known:
    """The state of the pod's only domain."""

    status: messages.Status = field(default_factory=partial(messages.Status, revision=0))
    """For virt-handler. After ``started``, an inactive domain is a run that is over."""
    machine: messages.Machine | None = None
    """Set by a request to start it or to prepare for its guest."""
    domain: Observation | None = None
    """The last observation."""
    run: life.Run = field(default_factory=life.Run)
    xml: str = ""
    """As prepared in this pod, without secrets. libvirt has that of the source, or of the image, if the domain comes from there."""
    stopping: life.Stopping | None = None
    """Set by a request to power off."""
    thaw_at: float | None = None
    """When frozen file systems must thaw, in the event loop's seconds."""
    saving: str = ""
    """The id of the operation that saves the domain's memory; empty: none."""
    gets_devices: bool = True
    """virt-handler can give block devices to this running pod."""
    releasing: bool = False
    """libvirt was called to resume a domain that arrived."""
    making: bool = False
    """A domain, or the place for an incoming one, is being made and can be abandoned."""
    abandoned: bool = False
    """The making was abandoned, but may still run."""
    over: bool = False
    """The pod must end."""

    @property
    def name(self) -> str:
        """Return the domain's name; empty before a request for it."""
        return document.domain_name(self.machine.namespace, self.machine.name) if self.machine is not None else ""

    @property
    def ended(self) -> bool:
        """Return whether the domain's run is over."""
        return self.status.ending is not None

    @property
    def arriving(self) -> messages.MigrationStatus | None:
        """Return this pod's incoming migration unless it succeeded, else None."""
        return incoming_migration.expected(self.status)

    @property
    def leaving(self) -> messages.MigrationStatus | None:
        """Return the running outgoing migration, or None."""
        return next((each for each in self.status.migrations if each.direction == "outgoing" and each.state == "running"), None)

    @property
    def serial_ports(self) -> int:
        """Return the number of the machine's serial ports; 0 without a machine."""
        return len(consoles.defaulted(self.machine.domain)) if self.machine is not None else 0


def adopted(known: Known, machine: messages.Machine) -> Known:
    """Return the state with this machine as the pod's."""
    return dataclasses.replace(known, machine=machine)


def importing(known: Known, imports: tuple[messages.ImportStatus, ...]) -> Known:
    """Return the state with the progress of imports."""
    return with_status(known, imports=imports)


def disowned(known: Known) -> Known:
    """Return the state without a machine, after a start that made no domain."""
    return dataclasses.replace(known, machine=None)


def making(known: Known, *, begun: bool) -> Known:
    """Return the state when the making of a domain, or of a migration's target, begins (``begun``) or is over."""
    return dataclasses.replace(known, making=begun)


def abandoned(known: Known) -> Known:
    """Return the state in which a domain's making must be abandoned."""
    return dataclasses.replace(known, abandoned=True)


def prepared(known: Known, xml: str = "") -> Known:
    """Return the state with a domain's XML, once all that it needs exists, and with the reason against a migration."""
    known = dataclasses.replace(known, xml=xml)
    if known.machine is None:
        return known
    return with_status(known, not_migratable=machines.not_migratable(known.machine, xml))


def plugged(known: Known, machine: messages.Machine) -> Known:
    """Return the state with this machine, whose devices the running guest has."""
    known = dataclasses.replace(known, machine=machine)
    return with_status(known, not_migratable=machines.not_migratable(machine, known.xml))


def created(known: Known) -> Known:
    """Return the state when the domain exists, before its first instruction."""
    return with_status(known, started=True)


def set_running(known: Known) -> Known:
    """Return the state when libvirt is about to start the processors, which may run from now on."""
    return with_status(dataclasses.replace(known, run=dataclasses.replace(known.run, ran=True)), has_room=False)


def destroying(known: Known) -> Known:
    """Return ``known`` with the fact that virt-launcher is about to destroy the domain."""
    return dataclasses.replace(known, run=dataclasses.replace(known.run, destroyed=True))


def ended(known: Known, kind: messages.EndingKind, message: str, now: float, *, image_used: bool = False) -> Known:
    """Return the state after the domain's run ended, so the pod must end; an earlier ending stays.

    ``image_used``: the image to resume from was used before.
    """
    if not known.ended:
        ending = messages.Ending(kind, message, known.run.migrated_to, (), now, panicked=message == life.PANICKED)
        ending = dataclasses.replace(ending, watchdog=message == life.WATCHDOG_FIRED, image_used=image_used)
        known = with_status(known, ending=ending, domain=None)
    return dataclasses.replace(known, over=True)


def with_cause(known: Known, log: tuple[str, ...], *, lacked_memory: bool = False) -> Known:
    """Return the state with the end of QEMU's log, and a lack of memory, in the ending, if any."""
    ending = known.status.ending
    if ending is None:
        return known
    message = life.explained(ending, lacked_memory=lacked_memory)
    return with_status(known, ending=dataclasses.replace(ending, log=log, message=message))


def observed(known: Known, seen: Observation | None, now: float) -> Known:
    """Return the state after an observation of the domain; None: it does not exist. Unchanged once the run is over.

    A started domain's end ends the run, unless it migrates away or is being saved.
    """
    if known.ended:
        return known
    known = dataclasses.replace(known, domain=seen)
    return _observed_active(known, seen, now) if seen is not None and seen.active else _observed_inactive(known, seen, now)


def _observed_active(known: Known, seen: Observation, now: float) -> Known:
    if known.arriving is not None:
        known = with_migration(known, incoming_migration.advanced(known.arriving, seen, now, releasing=known.releasing))
    kind: messages.Accelerator = "kvm" if seen.type == "kvm" else "qemu"
    names = machines.disk_names(known.machine) if seen.disk_errors and known.machine is not None else {}
    fault, full = life.fault_of(seen, names), any(error == NO_SPACE for _, error in seen.disk_errors)
    model = machines.cpu_model(known.machine)
    domain = messages.DomainStatus(
        seen.name,
        seen.uuid,
        kind,
        NAMES[seen.state],
        seen.reason,
        fault,
        full,
        model,
        seen.cid,
        machines.devices(known.machine, seen.devices),
        changes.settings(known.machine, seen),
        tuple(each for each in messages.LIVE_CHANGES if each != hot_plug.BLOCK or known.gets_devices),
    )
    room = known.status.has_room and seen.state is State.PAUSED
    known = thawed(known) if seen.reboots > known.status.reboots else known
    return with_status(known, domain=domain, reboots=seen.reboots, watchdogs=seen.watchdogs, has_room=room)


def _observed_inactive(known: Known, seen: Observation | None, now: float) -> Known:
    known = with_status(known, domain=None)
    if known.arriving is not None:
        gone = incoming_migration.lost(known.arriving, now)
        over = known.over or (gone is not known.arriving and known.stopping is not None)
        return dataclasses.replace(with_migration(known, gone), over=over)
    if not known.status.started or known.leaving is not None or known.saving:
        # The result of a migration or save determines where the domain is.
        return known
    return ended(known, *life.ending_of(known.run, seen), now)


def agent_answered(known: Known, agent: messages.AgentStatus, interfaces: tuple[messages.InterfaceStatus, ...]) -> Known:
    """Return the state with the guest agent's answers."""
    return with_status(known, agent=agent, interfaces=interfaces)


def servers_silent(known: Known, names: tuple[str, ...]) -> Known:
    """Return the state with ``names`` as all disks that have an unresponsive server."""
    return with_status(known, servers_silent=names)


def disks_failed(known: Known, faults: tuple[messages.DiskFault, ...]) -> Known:
    """Return the state with the disks that fail while the guest continues."""
    return with_status(known, disk_faults=faults)


def room_found(known: Known) -> Known:
    """Return the state when a resume of a guest that a full disk paused may succeed."""
    return with_status(known, has_room=True)


def keys_reported(known: Known, status: messages.AuthorizedKeysStatus) -> Known:
    """Return the state with the result of setting public keys in the guest."""
    return with_status(known, authorized_keys=status)


def agent_unresponsive(known: Known, problem: str) -> Known:
    """Return the state when the connected agent does not answer; its last answers stay."""
    return with_status(known, agent=dataclasses.replace(known.status.agent, connected=True, problem=one_line(problem, MAX_PROBLEM)))


def agent_gone(known: Known) -> Known:
    """Return the state when no agent is connected; its last answers stay."""
    return with_status(known, agent=dataclasses.replace(known.status.agent, connected=False, problem=""))


def filesystem_lost(known: Known, name: str) -> Known:
    """Return the state when a file system of the guest is no longer served."""
    told = known.status.lost_filesystems
    return known if known.ended or known.over or name in told else with_status(known, lost_filesystems=(*told, name))


def passt_ended(known: Known, problem: str) -> Known:
    """Return the state that counts an end of passt; unchanged once the run is over."""
    if known.ended or known.over:
        return known
    return with_status(known, passt_ends=known.status.passt_ends + 1, passt_problem=one_line(problem, MAX_PROBLEM))


def passt_works_again(known: Known) -> Known:
    """Return the state when a new passt process works."""
    return known if known.ended or known.over else with_status(known, passt_problem="")


def viewed(known: Known, consoles: int) -> Known:
    """Return the state with the number of all consoles' viewers."""
    return with_status(known, consoles=consoles)


def changed(known: Known, machine: messages.Machine) -> Known:
    """Return the state with this machine, which has the running guest's settings."""
    return dataclasses.replace(known, machine=machine)


def operating(known: Known, operation_id: str, number: int) -> Known:
    """Return the state when operation ``number`` is about to be carried out: from now on it may have been."""
    begun = messages.OperationStatus(operation_id, number)
    return with_status(known, operations=(*known.status.operations, begun)[-messages.MAX_OPERATIONS :])


def operated(known: Known, operation_id: str, problem: str = "") -> Known:
    """Return the state after an operation's end; ``problem``: why it failed."""
    state: messages.OperationState = "failed" if problem else "succeeded"
    over = tuple(
        dataclasses.replace(each, state=state, message=one_line(problem, MAX_PROBLEM)) if each.id == operation_id else each
        for each in known.status.operations
    )
    return with_status(known, operations=over)


def frozen(known: Known, thaw_at: float) -> Known:
    """Return the state when the guest's file systems are, or may be, frozen until ``thaw_at``."""
    return with_status(dataclasses.replace(known, thaw_at=thaw_at), frozen=True)


def thawed(known: Known) -> Known:
    """Return the state after the guest's file systems were thawed."""
    return with_status(dataclasses.replace(known, thaw_at=None), frozen=False)


def pre_stop_failed(known: Known, problem: str) -> Known:
    """Return the state with the failure of the ``preStop`` command."""
    return with_status(known, pre_stop_problem=one_line(problem, MAX_PROBLEM))


def saving(known: Known, operation_id: str) -> Known:
    """Return the state when libvirt is about to save the domain's memory."""
    return dataclasses.replace(known, saving=operation_id)


def save_advanced(known: Known, percent: int) -> Known:
    """Return the state with a save's progress, which never decreases."""
    changed = tuple(
        dataclasses.replace(each, percent=max(each.percent, percent)) if each.id == known.saving else each
        for each in known.status.operations
    )
    return with_status(known, operations=changed)


def save_failed(known: Known, problem: str) -> Known:
    """Return the state when the memory was not saved; the next observation shows whether the guest continues."""
    return operated(dataclasses.replace(known, saving=""), known.saving, problem)


def saved(known: Known, message: str, now: float) -> Known:
    """Return the state when the image is complete, and QEMU has ended."""
    return ended(operated(dataclasses.replace(known, saving=""), known.saving), "saved", message, now)


def with_migration(known: Known, changed: messages.MigrationStatus) -> Known:
    """Return the state with this migration added or replaced; if an incoming one succeeded, the guest may run in this pod."""
    known = with_status(known, migrations=life.with_migration(known.status.migrations, changed))
    return set_running(created(known)) if (changed.direction, changed.state) == ("incoming", "succeeded") else known


def releasing(known: Known) -> Known:
    """Return the state when libvirt is about to resume a domain that arrived."""
    return dataclasses.replace(known, releasing=True)


def released(known: Known, uid: str, now: float) -> Known:
    """Return the state after the release of the domain that arrived."""
    migration = known.status.migration_of(uid)
    return with_migration(known, dataclasses.replace(migration, state="succeeded", end_time=now)) if migration is not None else known


def unmeasured(known: Known, now: float) -> str:
    """Return the uid of the migration that brought the domain here if its statistics are missing; else empty.

    libvirt has them only after the arrival, and may lose them: ``MEASURE_SECONDS`` after the migration's end they count as lost.
    """
    for each in known.status.migrations:
        is_fresh = each.state == "arrived" or (each.state == "succeeded" and 0 <= now - each.end_time < MEASURE_SECONDS)
        if each.direction == "incoming" and is_fresh and not each.elapsed_milliseconds:
            return each.uid
    return ""


def measured(known: Known, uid: str, figures: Progress) -> Known:
    """Return the state with the statistics of the migration ``uid``; unchanged if it is unknown."""
    migration = known.status.migration_of(uid)
    return with_migration(known, dataclasses.replace(migration, **dataclasses.asdict(figures))) if migration is not None else known


def withdrawn(known: Known, uid: str, now: float) -> Known:
    """Return the state with this incoming migration cancelled; unchanged if the domain is on its way, because the source decides."""
    migration = known.status.migration_of(uid)
    if migration is None or (migration.direction, migration.state) != ("incoming", "prepared"):
        return known
    return with_migration(known, dataclasses.replace(migration, state="cancelled", end_time=now))


def outgoing_ended(known: Known, outcome: messages.MigrationStatus, now: float) -> Known:
    """Return the state after the certain result of an outgoing migration; success ends the run."""
    if outcome.state != "succeeded":
        return with_migration(known, outcome)
    known = dataclasses.replace(known, run=dataclasses.replace(known.run, migrated_to=outcome.uid))
    return ended(with_migration(known, outcome), "migrated", "the guest continues in another pod", now)


def with_status(known: Known, **changes: Any) -> Known:  # noqa: ANN401  # members of Status
    """Return the state with changed members of the status; the revision increases if any differs."""
    changed = dataclasses.replace(known.status, **changes)
    if changed == known.status:
        return known
    return dataclasses.replace(known, status=dataclasses.replace(changed, revision=known.status.revision + 1))
