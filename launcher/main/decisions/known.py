"""All that is known of the pod's one domain, and what each fact makes of it.

``Known`` is frozen; every function takes one, and a fact: an observation, a request that was admitted, the outcome of a migration. It
returns the next one. Nothing here waits, reads a clock or asks libvirt: ``record`` holds the newest one, and
the modules that do things tell it facts.

Times called ``now`` are Unix time where they end up in the status, and the event loop's seconds where they are held against a deadline.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt.hardware import consoles
from launcher.domain import document
from launcher.domain.states import NAMES, State
from launcher.hypervisor.port import NO_SPACE, Observation, Progress
from launcher.main.decisions import incoming_migration, life, machines
from launcher.protocol import messages

MAX_PROBLEM: Final = 256
MEASURE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Known:
    """All that is known of the pod's one domain."""

    status: messages.Status = field(default_factory=partial(messages.Status, revision=0))
    """The status that virt-handler is told. Once it says ``started``, a domain that is not active any more is a run that is over."""
    machine: messages.Machine | None = None
    """The machine that the pod belongs to, once its start or a place for its guest was asked for."""
    domain: Observation | None = None
    """The domain when it was last seen, which may be as old as the last event."""
    run: life.Run = field(default_factory=life.Run)
    xml: str = ""
    """The XML that libvirt was given, or would have been were the domain not to come from another pod."""
    stopping: life.Stopping | None = None
    """Since the guest has to power off."""
    releasing: bool = False
    """libvirt was asked to let a domain that arrived run."""
    making: bool = False
    """A domain is being made, or the place for one that comes: that can be abandoned."""
    abandoned: bool = False
    """It was, but may not have noticed yet."""
    over: bool = False
    """The pod has to end. ``status.ending`` says how the domain's run ended, if there was one."""

    @property
    def name(self) -> str:
        """Return the domain's name; empty while nobody asked for one."""
        return document.domain_name(self.machine.namespace, self.machine.name) if self.machine is not None else ""

    @property
    def ended(self) -> bool:
        """True once the domain's run is over."""
        return self.status.ending is not None

    @property
    def arriving(self) -> messages.MigrationStatus | None:
        """Return the migration by which the domain is to come here, until it was released."""
        return incoming_migration.expected(self.status)

    @property
    def leaving(self) -> messages.MigrationStatus | None:
        """Return the outgoing migration that runs."""
        return next((each for each in self.status.migrations if each.direction == "outgoing" and each.state == "running"), None)

    @property
    def serial_ports(self) -> int:
        """Return how many serial ports the machine has."""
        return len(consoles.defaulted(self.machine.domain)) if self.machine is not None else 0


# --- the start -------------------------------------------------------------------------------------------------------------------


def adopted(known: Known, machine: messages.Machine) -> Known:
    """Return what is known once the pod is this machine's."""
    return dataclasses.replace(known, machine=machine)


def importing(known: Known, imports: tuple[messages.ImportStatus, ...]) -> Known:
    """Return what is known once imports are so far."""
    return with_status(known, imports=imports)


def disowned(known: Known) -> Known:
    """Return what is known after a start for which nothing was made: the pod is as if it had not been asked."""
    return dataclasses.replace(known, machine=None)


def making(known: Known, *, begun: bool) -> Known:
    """Return what is known once the making of a domain, or of a place for one, has begun or is over."""
    return dataclasses.replace(known, making=begun)


def abandoned(known: Known) -> Known:
    """Return what is known once what is being made has to be abandoned."""
    return dataclasses.replace(known, abandoned=True)


def prepared(known: Known, xml: str = "") -> Known:
    """Return what is known once all that the domain needs is there; ``xml`` is the domain's."""
    known = dataclasses.replace(known, xml=xml)
    if known.machine is None:
        return known
    return with_status(known, not_migratable=machines.not_migratable(known.machine, xml))


def created(known: Known) -> Known:
    """Return what is known once the domain is there, before its first instruction."""
    return with_status(known, started=True)


def set_running(known: Known) -> Known:
    """Return what is known from the moment at which libvirt is asked to let the processors run: from then on they may have."""
    return with_status(dataclasses.replace(known, run=dataclasses.replace(known.run, ran=True)), has_room=False)


# --- the end ---------------------------------------------------------------------------------------------------------------------


def destroying(known: Known) -> Known:
    """Return what is known from the moment at which libvirt is asked to destroy the domain."""
    return dataclasses.replace(known, run=dataclasses.replace(known.run, destroyed=True))


def ended(known: Known, kind: messages.EndingKind, message: str, now: float) -> Known:
    """Return what is known once the domain's run is over; the first ending counts. ``now`` is Unix time."""
    if not known.ended:
        ending = messages.Ending(kind, message, known.run.migrated_to, (), now, panicked=message == life.PANICKED)
        ending = dataclasses.replace(ending, watchdog=message == life.WATCHDOG_FIRED)
        known = with_status(known, ending=ending, domain=None)
    return dataclasses.replace(known, over=True)


def with_log(known: Known, log: tuple[str, ...]) -> Known:
    """Return what is known with QEMU's last words in the ending."""
    ending = known.status.ending
    return with_status(known, ending=dataclasses.replace(ending, log=log)) if ending is not None else known


# --- looks at the domain ---------------------------------------------------------------------------------------------------------


def observed(known: Known, seen: Observation | None, now: float) -> Known:
    """Return what is known after a look at the domain, None if there is none; ``now`` is Unix time."""
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
    devices = machines.devices(known.machine, seen.devices)
    domain = messages.DomainStatus(seen.name, seen.uuid, kind, NAMES[seen.state], seen.reason, fault, full, model, seen.cid, devices)
    room = known.status.has_room and seen.state is State.PAUSED
    return with_status(known, domain=domain, reboots=seen.reboots, watchdogs=seen.watchdogs, has_room=room)


def _observed_inactive(known: Known, seen: Observation | None, now: float) -> Known:
    known = with_status(known, domain=None)
    if known.arriving is not None:
        gone = incoming_migration.lost(known.arriving, now)
        over = known.over or (gone is not known.arriving and known.stopping is not None)
        return dataclasses.replace(with_migration(known, gone), over=over)
    if not known.status.started or known.leaving is not None:  # one that leaves: whoever carries that out finds out where it is
        return known
    return ended(known, *life.ending_of(known.run, seen), now)


def agent_answered(known: Known, agent: messages.AgentStatus, interfaces: tuple[messages.InterfaceStatus, ...]) -> Known:
    """Return what is known after an answer of the guest's agent."""
    return with_status(known, agent=agent, interfaces=interfaces)


def servers_silent(known: Known, names: tuple[str, ...]) -> Known:
    """Return what is known after a look at the servers of disks: those whose server does not answer."""
    return with_status(known, servers_silent=names)


def disks_failed(known: Known, faults: tuple[messages.DiskFault, ...]) -> Known:
    """Return what is known after a look at disks: those that fail while the guest goes on."""
    return with_status(known, disk_faults=faults)


def room_found(known: Known) -> Known:
    """Return what is known once it is worth a try to let a guest go on that stands still for want of room."""
    return with_status(known, has_room=True)


def keys_reported(known: Known, status: messages.AuthorizedKeysStatus) -> Known:
    """Return what is known once it was tried to set public keys in the guest."""
    return with_status(known, authorized_keys=status)


def agent_silent(known: Known, problem: str) -> Known:
    """Return what is known while an agent is connected that does not answer: what it said last stays."""
    return with_status(known, agent=dataclasses.replace(known.status.agent, connected=True, problem=one_line(problem, MAX_PROBLEM)))


def agent_gone(known: Known) -> Known:
    """Return what is known while no agent is connected: what it said last stays."""
    return with_status(known, agent=dataclasses.replace(known.status.agent, connected=False, problem=""))


def filesystem_lost(known: Known, name: str) -> Known:
    """Return what is known once nobody serves a file system of the guest any more."""
    told = known.status.lost_filesystems
    return known if known.ended or known.over or name in told else with_status(known, lost_filesystems=(*told, name))


def passt_ended(known: Known, problem: str) -> Known:
    """Return what is known once passt, which makes the connections of the guest, has ended."""
    if known.ended or known.over:
        return known
    return with_status(known, passt_ends=known.status.passt_ends + 1, passt_problem=one_line(problem, MAX_PROBLEM))


def passt_works_again(known: Known) -> Known:
    """Return what is known once another one has taken its place."""
    return known if known.ended or known.over else with_status(known, passt_problem="")


def viewed(known: Known, consoles: int) -> Known:
    """Return what is known with this number of viewers of the console."""
    return with_status(known, consoles=consoles)


# --- operations ---------------------------------------------------------------------------------------------------------------------


def operating(known: Known, operation_id: str, number: int) -> Known:
    """Return what is known from the moment at which an operation is carried out: from then on it may have been."""
    begun = messages.OperationStatus(operation_id, number)
    return with_status(known, operations=(*known.status.operations, begun)[-messages.MAX_OPERATIONS :])


def operated(known: Known, operation_id: str, problem: str = "") -> Known:
    """Return what is known once an operation is over; ``problem``: why it failed."""
    state: messages.OperationState = "failed" if problem else "succeeded"
    over = tuple(
        dataclasses.replace(each, state=state, message=one_line(problem, MAX_PROBLEM)) if each.id == operation_id else each
        for each in known.status.operations
    )
    return with_status(known, operations=over)


# --- migrations ------------------------------------------------------------------------------------------------------------------


def with_migration(known: Known, changed: messages.MigrationStatus) -> Known:
    """Return what is known after a migration changed; a domain that was released here is the pod's own from then on."""
    known = with_status(known, migrations=life.with_migration(known.status.migrations, changed))
    return set_running(created(known)) if (changed.direction, changed.state) == ("incoming", "succeeded") else known


def releasing(known: Known) -> Known:
    """Return what is known from the moment at which libvirt is asked to let a domain that arrived run."""
    return dataclasses.replace(known, releasing=True)


def released(known: Known, uid: str, now: float) -> Known:
    """Return what is known once the domain that arrived was released; ``now`` is Unix time."""
    migration = known.status.migration_of(uid)
    return with_migration(known, dataclasses.replace(migration, state="succeeded", end_time=now)) if migration is not None else known


def unmeasured(known: Known, now: float) -> str:
    """Return the uid of the migration that brought the domain here and of which is not known what it took; empty when there is none.

    libvirt tells of the arrival before it has the figures, and may forget them when it is restarted: one that was released is asked
    about for :data:`MEASURE_SECONDS`. ``now`` is Unix time.
    """
    for each in known.status.migrations:
        is_fresh = each.state == "arrived" or (each.state == "succeeded" and 0 <= now - each.end_time < MEASURE_SECONDS)
        if each.direction == "incoming" and is_fresh and each.elapsed_milliseconds == 0:
            return each.uid
    return ""


def measured(known: Known, uid: str, figures: Progress) -> Known:
    """Return what is known once libvirt said what a migration took."""
    migration = known.status.migration_of(uid)
    return with_migration(known, dataclasses.replace(migration, **dataclasses.asdict(figures))) if migration is not None else known


def withdrawn(known: Known, uid: str, now: float) -> Known:
    """Return what is known once a target need not wait any more: of a domain that is on its way already the source decides."""
    migration = known.status.migration_of(uid)
    if migration is None or (migration.direction, migration.state) != ("incoming", "prepared"):
        return known
    return with_migration(known, dataclasses.replace(migration, state="cancelled", end_time=now))


def outgoing_ended(known: Known, outcome: messages.MigrationStatus, now: float) -> Known:
    """Return what is known once it is certain what became of an outgoing migration; ``now`` is Unix time."""
    if outcome.state != "succeeded":
        return with_migration(known, outcome)
    known = dataclasses.replace(known, run=dataclasses.replace(known.run, migrated_to=outcome.uid))
    return ended(with_migration(known, outcome), "migrated", "the guest runs on in another pod", now)


def with_status(known: Known, **changes: Any) -> Known:  # noqa: ANN401  # members of Status
    """Return what is known with these members of the status changed: another revision, unless nothing is another one."""
    changed = dataclasses.replace(known.status, **changes)
    if changed == known.status:
        return known
    return dataclasses.replace(known, status=dataclasses.replace(changed, revision=known.status.revision + 1))
