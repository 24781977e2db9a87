"""Decides for each request, in the current state, what to do, or raises ``RequestRefused``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from launcher.domain import copied_disks
from launcher.domain.states import State
from launcher.hypervisor.port import HypervisorError, Observation, OperationInvalid, OperationTimeout, Unavailable
from launcher.main.decisions import machines
from launcher.main.decisions.known import Known
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages

DOING: Final[Mapping[messages.OperationAction, str]] = {
    "Reset": "reset",
    "Resume": "resume",
    "SoftReboot": "reboot",
    "InjectNMI": "inject an NMI",
    "SendKey": "press keys",
    "Suspend": "suspend",
    "SuspendToNodeDisk": "suspend",
    "Freeze": "freeze the file systems",
    "Thaw": "thaw the file systems",
}
FROZEN: Final = "the guest's file systems are frozen"
_NOT_WHILE_FROZEN: Final = frozenset({"SoftReboot", "Suspend", "SuspendToNodeDisk", "Freeze"})
"""The guest could not end, or the next pod's virt-launcher would not thaw it."""
LOST: Final = "QEMU ended after the guest had left the source, before it ran here"


def is_to_start(known: Known, machine: messages.Machine) -> bool:
    """Return whether to make this machine's domain; False if that began already, or its run is over.

    Raises RequestRefused for another machine, after a failed start, and in a pod that terminates or gets a guest from another node.
    """
    if known.machine is not None and known.machine.uid != machine.uid:
        raise RequestRefused("Invalid", f"this pod belongs to the virtual machine {known.machine.uid}")
    if known.status.ending is not None and known.status.ending.kind == "start-failed":
        raise RequestRefused("Failed", known.status.ending.message)
    if known.arriving is not None:
        raise RequestRefused("Conflict", "this pod is the target of a migration; it starts no guest")
    if known.machine is not None or known.ended:
        return False
    if known.over:
        raise RequestRefused("Conflict", "this pod is terminating")
    return True


def has_guest(known: Known, doing: str) -> bool:
    """Return True if there is a guest, False if its run is over. Raises RequestRefused, "cannot ``doing``", if there was none yet."""
    if known.ended:
        return False
    if not known.status.started:
        raise RequestRefused("Conflict", f"cannot {doing}: no guest runs in this pod")
    return True


def require_guest(known: Known, doing: str) -> None:
    """Raise RequestRefused, "cannot ``doing``", unless there is a guest."""
    if not has_guest(known, doing):
        raise RequestRefused("Conflict", f"cannot {doing}: the guest is off")


def require_guest_that_stays(known: Known, doing: str) -> None:
    """Raise RequestRefused, "cannot ``doing``", unless there is a guest, which is neither migrating nor being saved."""
    require_guest(known, doing)
    if known.leaving is not None:
        raise RequestRefused("Conflict", f"cannot {doing}: the guest is being migrated")
    if known.saving:
        raise RequestRefused("Conflict", f"cannot {doing}: the guest is being suspended")


def is_to_operate(known: Known, request: messages.Operate) -> bool:
    """Return whether to carry out an operation; False if it began before: it may still run, or have failed.

    Raises RequestRefused if no guest stays here, it shuts down, or the operation may have been carried out long ago.
    """
    if known.status.operation_of(request.id) is not None:
        return False
    if any(each.number >= request.number for each in known.status.operations):
        raise RequestRefused("Invalid", "a later operation was already carried out, and possibly this one before it")
    doing = DOING[request.action]
    require_guest_that_stays(known, doing)
    if known.stopping is not None:
        raise RequestRefused("Conflict", f"cannot {doing}: the guest is being shut down")
    return True


def why_not_while_frozen(known: Known, action: messages.OperationAction) -> str:
    """Return why an operation must fail because of frozen file systems; else empty."""
    return f"cannot {DOING[action]}: {FROZEN}" if known.status.frozen and action in _NOT_WHILE_FROZEN else ""


def why_not_saved(known: Known) -> str:
    """Return why the guest's memory must not be saved; else empty. Its devices' data must exist in the next pod."""
    if known.machine is None:
        return "this pod has no machine"
    if why := machines.not_migratable(known.machine):
        return f"the guest cannot be saved, as it cannot be migrated: {why}"
    if names := copied_disks.names(known.machine.domain):
        return f"what the guest wrote to the disk {names[0]!r} exists only in this pod"
    return ""


def may_stop_again(before: Observation | None) -> bool:
    """Return whether a pause's cause may recur at the guest's next access, because no user paused it."""
    return before is not None and before.state is State.PAUSED and before.reason != "user"


def require_that_it_runs(known: Known, before: Observation | None) -> None:
    """Raise RequestRefused if a resumed guest was paused again for the same reason as ``before``."""
    now = known.status.domain
    if before is not None and now is not None and (now.state, now.reason) == ("paused", before.reason):
        raise RequestRefused("Failed", f"the guest stopped again immediately: {now.detail or now.reason}")


def is_to_prepare(known: Known, request: messages.PrepareMigrationTarget) -> bool:
    """Return whether the pod must become this migration's target; False if it is, or was. Raises RequestRefused."""
    if known.status.migration_of(request.migration_uid) is not None:
        return False
    if known.machine is not None or known.over:
        raise RequestRefused("Conflict", "this pod is not an empty migration target")
    if reason := machines.not_migratable(request.machine):
        raise RequestRefused("Invalid", reason)
    _require_relay_of_disks(request.machine, "prepare for a migration", relays_disks=request.relays_disks)
    return True


def is_lost(known: Known, uid: str) -> bool:
    """Return whether this incoming migration failed here. The domain is lost, because the caller knows that it left the source."""
    migration = known.status.migration_of(uid)
    return migration is not None and (migration.direction, migration.state) == ("incoming", "failed")


def is_to_release(known: Known, uid: str) -> bool:
    """Return whether the domain that arrived must be released; False if that was done. Raises RequestRefused if none arrived."""
    migration = known.status.migration_of(uid)
    if migration is None or migration.direction != "incoming" or migration.state not in ("arrived", "succeeded"):
        raise RequestRefused("Conflict", f"nothing to release: the migration is {migration.state if migration else 'unknown'}")
    return migration.state == "arrived"


def is_to_migrate(known: Known, request: messages.Migrate) -> bool:
    """Return whether a migration must begin; False if one with this uid began before. Raises RequestRefused."""
    if known.status.migration_of(request.migration_uid) is not None:
        return False
    if not has_guest(known, "migrate") or known.leaving is not None or known.stopping is not None or known.saving:
        raise RequestRefused("Conflict", "cannot migrate: the guest is off, being shut down, being suspended or being migrated already")
    if known.status.frozen:
        raise RequestRefused("Conflict", f"cannot migrate: {FROZEN}")
    if known.status.not_migratable:
        raise RequestRefused("Invalid", f"cannot migrate: {known.status.not_migratable}")
    if known.machine is not None:
        _require_relay_of_disks(known.machine, "migrate", relays_disks=request.relays_disks)
    return True


def _require_relay_of_disks(machine: messages.Machine, doing: str, *, relays_disks: bool) -> None:
    if not relays_disks and (names := copied_disks.names(machine.domain)):
        why = f"what the guest wrote to the disk {names[0]!r} exists only in its pod, and virt-handler of this node is of a version"
        raise RequestRefused("Invalid", f"cannot {doing}: {why} that does not copy disks")


def is_to_abort(known: Known, uid: str) -> bool:
    """Return whether this migration is outgoing and runs, so libvirt must abort it. Raises RequestRefused if it is not the pod's."""
    if known.status.migration_of(uid) is None:
        raise RequestRefused("Conflict", "this pod does not take part in this migration")
    return known.leaving is not None and known.leaving.uid == uid


def is_to_pause(known: Known, uid: str) -> bool:
    """Return whether this outgoing migration still runs, so its guest must be paused. Raises RequestRefused if it is not one."""
    migration = known.status.migration_of(uid)
    if migration is None or migration.direction != "outgoing":
        raise RequestRefused("Conflict", "this migration does not leave this pod")
    return migration.state == "running"


def given_xml(known: Known) -> str:
    """Return the domain's XML as prepared in this pod, without secrets. Raises RequestRefused if there is none yet."""
    if not known.xml:
        raise RequestRefused("Conflict", "the domain has not been created yet")
    return known.xml


def has_own_xml(known: Known) -> bool:
    """Return whether libvirt's XML is newer than the given one: the domain exists, and is not from ``spec.domainXML``."""
    return known.domain is not None and known.machine is not None and not known.machine.domain_xml


@contextmanager
def errors_refused() -> Iterator[None]:
    """Convert a HypervisorError of the ``with`` block to RequestRefused."""
    try:
        yield
    except HypervisorError as error:
        raise refusal_of(error) from error


def refusal_of(error: HypervisorError) -> RequestRefused:
    """Return the refusal for a hypervisor error."""
    match error:
        case OperationInvalid():
            return RequestRefused("Conflict", str(error))
        case OperationTimeout() | Unavailable():
            return RequestRefused("Timeout", str(error))
        case _:
            return RequestRefused("Failed", str(error))
