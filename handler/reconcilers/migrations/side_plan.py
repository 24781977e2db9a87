"""Decides about one Migration for virt-handler, as its source or as its target: from what is known to the next actions. Pure.

The source's launcher has the truth: it alone can say that the domain stayed, and it alone that it left. The domain arrives on the target
paused, and runs there once the target was told that the source's launcher said so (``apis.virt.release``). Then the target's handler
writes ``Succeeded``; ``Failed`` and ``Cancelled`` are the source's to write, whichever of them restarts in between.

Source
  ============================== ==========================================================
  ``TargetReady``, to be deleted  never began: ``Cancelled``; it began anyway: abort
  ``TargetReady``                 ``Running`` is written first: from then on it counts as begun; not before the guest's operations
                                  have their results, so that no two launchers are asked for one
  ``Running``, launcher never heard of it: relays, then Migrate (safe to repeat)
  ``Running``, under way          keep the relays; to be deleted: abort; it takes too long (``migration_limits``): pause, or abort
  ``Running``, failed, cancelled  ``Failed``, ``Cancelled``: the domain runs here
  ``Running``, a connection broke in ``attempts``: virt-controller decides whether there is another one
  the attempt has failed          relays end, and nothing of it begins
  ``Running``, succeeded          tell the target, until it has heard; then the target writes
  the target has heard            forward connections that still come to the source's pod, while its launcher stays for that
  final, launcher still at it     nothing, for two minutes: libvirt needs the relays to learn the outcome
  ============================== ==========================================================

Target
  ============================== ==========================================================================
  ``PreparingTarget``             devices, disks of plugins, network, PrepareMigrationTarget, listen: ``TargetReady``
  ``TargetReady``, ``Running``    go on listening; the address changed: write it
  the domain arrived              wait for the source's word, by a relay or in the Migration; then let it run
  the domain was released         the VM's ``nodeName`` and pod, then ``Succeeded``
  the attempt has failed          listening ends: what arrived is never released
  ``Succeeded``                   what it took, which only this side's launcher knows, if it did not say so before
  ============================== ==========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from apiserver.apis.meta import objects, times
from apiserver.apis.virt.lifecycle import migration_attempts, phases, release
from handler.pods import places
from handler.reconcilers.migrations import migration_causes, migration_limits
from launcher.protocol import messages

MEASURE_SECONDS: Final = 30.0
"""After its end a launcher may yet say what a migration took: it looks at its domain every ten."""
LOOK_AGAIN_SECONDS: Final = 10.0
"""Between two looks at what has begun, or has yet to say what it took."""
CONFIRM_SECONDS: Final = 120.0
"""After its end the source's libvirt may yet learn that: at once, or when a node that is gone has not answered for a minute."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything the decision needs, of one side."""

    migration: Mapping[str, Any]
    launcher: messages.Status | None
    """Of the pod on this side; None before the first status."""
    connected: bool
    gone: bool
    relaying: bool = False
    """Target: connections of this migration's source are accepted."""
    released: bool = False
    """Source: the target's handler answered that it released the domain."""
    forwarded: bool = False
    """Source: connections to its pod are forwarded to the target's, or that was tried in vain."""
    address: str = ""
    """Target: where other handlers reach this one's relay now."""
    stop: str = ""
    """Source: why the guest should end; empty: it should go on, or nobody knows."""
    now: datetime | None = None
    """By the clock that writes ``Running`` and the end; None: time does not matter."""
    stalled_seconds: float = 0.0
    """Source: how long nothing of the guest has moved."""
    can_pause: bool = False
    """Source: the launcher knows ``PauseForMigration``."""
    operating: bool = False
    """Source: an operation of the guest has no result yet, or another one may be asked for: it is finished first."""
    ending: bool = False
    """This virt-handler ends soon, and its relays with it: nothing begins."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """Look again after so many seconds: time alone changes something, or an event may be missed."""

    seconds: float


@dataclass(frozen=True, slots=True)
class BeginMigration:
    """Source: write ``Running``."""


@dataclass(frozen=True, slots=True)
class MigrateGuest:
    """Source: open the relays and have the launcher migrate."""


@dataclass(frozen=True, slots=True)
class AbortMigration:
    """Source: have the launcher abort."""


@dataclass(frozen=True, slots=True)
class PauseGuest:
    """Source: have the launcher pause the guest, so that it arrives."""


@dataclass(frozen=True, slots=True)
class RequestRelease:
    """Source: say that the domain left, to the target's handler; where that fails, in the Migration."""


@dataclass(frozen=True, slots=True)
class ForwardConnections:
    """Source: forward connections that come to its pod to the target's, which has these addresses."""

    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndMigration:
    """Source: write ``Failed`` or ``Cancelled``."""

    phase: str
    message: str
    stays: bool = True
    """The guest goes on here: else it has ended, or is to end, and virt-controller alone tells of that."""


@dataclass(frozen=True, slots=True)
class FailAttempt:
    """Source: write that the present attempt failed, for a cause that may be gone at the next one."""

    message: str


@dataclass(frozen=True, slots=True)
class PrepareTarget:
    """Target: make its pod ready."""


@dataclass(frozen=True, slots=True)
class AcceptRelays:
    """Target: begin to accept the source's connections."""


@dataclass(frozen=True, slots=True)
class OfferAddress:
    """Target: write ``TargetReady`` (or keep the phase) with this address."""

    address: str


@dataclass(frozen=True, slots=True)
class ReleaseGuest:
    """Target: let the domain that arrived run."""


@dataclass(frozen=True, slots=True)
class TakeOverMachine:
    """Target: write the VM, then ``Succeeded``."""


@dataclass(frozen=True, slots=True)
class WriteFigures:
    """Target: write what it took: virt-controller was the first to write ``Succeeded``, or the launcher knew it later."""


@dataclass(frozen=True, slots=True)
class CloseRelays:
    """End the relays of this side, which accepts no more; the link stays, and with it the pod of a guest that has left."""


@dataclass(frozen=True, slots=True)
class ForgetMigration:
    """It is over for this side: relays and link go."""


SourceAction: TypeAlias = (
    Requeue
    | BeginMigration
    | MigrateGuest
    | AbortMigration
    | PauseGuest
    | RequestRelease
    | ForwardConnections
    | EndMigration
    | FailAttempt
    | CloseRelays
    | ForgetMigration
)
TargetAction: TypeAlias = (
    Requeue | PrepareTarget | AcceptRelays | OfferAddress | ReleaseGuest | TakeOverMachine | WriteFigures | CloseRelays | ForgetMigration
)
SourcePlan: TypeAlias = tuple[SourceAction, ...]
TargetPlan: TypeAlias = tuple[TargetAction, ...]


def is_under_way(migration: Mapping[str, Any]) -> bool:
    """Return whether bytes of the guest may be moving, or the word that it left be on its way: virt-handler is not to end in the middle."""
    return phases.phase_of(migration) == phases.RUNNING and not migration_attempts.is_reported(migration)


def source_pod(vm: Mapping[str, Any] | None, migration: Mapping[str, Any]) -> str:
    """Return the uid of the source's pod by its machine; empty once the machine names another pod, or what it names is no uid."""
    pod_uid = objects.dig(vm, "status", "podUID") or ""
    if places.is_uid(pod_uid) and objects.dig(vm, "status", "podName") == objects.dig(migration, "status", "sourcePod"):
        return str(pod_uid)
    return ""


def plan_source(seen: Observed) -> SourcePlan:
    """Return what the source's handler does next. Nothing: relays stay as they are until something changes."""
    migration, launcher = seen.migration, seen.launcher
    phase = phases.phase_of(migration)
    if phase in phases.MIGRATION_FINAL:
        return _source_over(seen, phase)
    if phase not in (phases.TARGET_READY, phases.RUNNING):
        return ()
    if launcher is None:
        return _wait(seen)
    if migration_attempts.is_reported(migration):
        return (ForgetMigration(), *_wait(seen))
    if phase == phases.TARGET_READY and migration_attempts.failure_of(migration) is not None:
        return ()  # its target ended, and virt-controller knows that nothing has begun
    known = launcher.migration_of(migration_attempts.uid_of(migration))
    unwanted = objects.is_deleting(migration)
    match known.state if known is not None else "":
        case "succeeded":
            return (_forward(seen) or _wait(seen)) if seen.released else (RequestRelease(),)
        case "failed" | "cancelled" if known is not None:
            return (_stayed(seen, known, launcher),)
        case "running" | "prepared":
            if not seen.connected:
                return _wait(seen)
            if unwanted:
                return (AbortMigration(), *_wait(seen))
            return _begin(seen) if phase == phases.TARGET_READY else _under_way(seen, launcher)
        case _:
            return _not_begun(seen, launcher, phase, unwanted=unwanted)


def _wait(seen: Observed) -> tuple[Requeue, ...]:
    """Wait until something changes; while the guest may move, for some seconds at most."""
    return (Requeue(LOOK_AGAIN_SECONDS),) if phases.phase_of(seen.migration) == phases.RUNNING else ()


def _source_over(seen: Observed, phase: str) -> SourcePlan:
    if phase == phases.SUCCEEDED and _stays(seen):
        return _forward(seen) or (CloseRelays(),)
    left = _left(seen, CONFIRM_SECONDS) if _is_confirming(seen) else 0.0
    return (Requeue(left),) if left else (ForgetMigration(),)


def _stayed(seen: Observed, known: messages.MigrationStatus, launcher: messages.Status) -> EndMigration | FailAttempt:
    """The attempt is over, and the domain runs here or has ended here."""
    migration, unwanted = seen.migration, objects.is_deleting(seen.migration)
    stays = not migration_causes.is_off(launcher, seen.stop)
    if known.state == "cancelled":
        if unwanted:
            return EndMigration(phases.CANCELLED, "deleted while the guest moved", stays)
        return EndMigration(phases.FAILED, migration_causes.of_failure(known, launcher, seen.stop, _limit_of(seen, known)), stays)
    cause = migration_causes.of_failure(known, launcher, seen.stop)
    is_counted = phases.phase_of(migration) == phases.RUNNING and migration_attempts.number_of(migration) > 0
    if is_counted and not unwanted and migration_causes.may_pass(known, launcher, seen.stop):
        return FailAttempt(cause)
    return EndMigration(phases.FAILED, cause, stays)


def _under_way(seen: Observed, launcher: messages.Status) -> SourcePlan:
    if seen.now is None:
        return _wait(seen)
    verdict = migration_limits.verdict_of(seen.migration, launcher, seen.now, seen.stalled_seconds, can_pause=seen.can_pause)
    match verdict:
        case "pause":
            return (PauseGuest(), *_wait(seen))
        case "abort":
            return (AbortMigration(), *_wait(seen))
        case _:
            return _wait(seen)


def _limit_of(seen: Observed, known: messages.MigrationStatus) -> str:
    """Return the limit for which a migration was aborted; empty: for another reason."""
    return migration_limits.cause(seen.migration, known, seen.now, seen.stalled_seconds) if seen.now is not None else ""


def _stays(seen: Observed) -> bool:
    """Return whether the pod is there that the guest has left: its launcher stays some seconds, while this process is connected to it."""
    launcher = seen.launcher
    known = launcher.migration_of(migration_attempts.uid_of(seen.migration)) if launcher is not None and seen.connected else None
    return known is not None and (known.direction, known.state) == ("outgoing", "succeeded")


def _forward(seen: Observed) -> tuple[ForwardConnections, ...]:
    addresses = tuple(objects.dig(seen.migration, "status", "targetPodIPs") or ())
    return (ForwardConnections(addresses),) if addresses and not seen.forwarded and _stays(seen) else ()


def _is_confirming(seen: Observed) -> bool:
    """Return whether libvirt still works on the source although the Migration is over (the target's pod ended): it learns it by the relays.

    A launcher that its guest has taken over says so for ever, so it has :data:`CONFIRM_SECONDS`.
    """
    launcher = seen.launcher
    known = launcher.migration_of(migration_attempts.uid_of(seen.migration)) if launcher is not None and seen.connected else None
    return known is not None and known.state == "running"


def _not_begun(seen: Observed, launcher: messages.Status, phase: str, *, unwanted: bool) -> SourcePlan:
    if launcher.ending is not None or seen.gone:
        return (EndMigration(phases.FAILED, "the guest ended before its migration began", stays=False),)
    if unwanted:
        return (EndMigration(phases.CANCELLED, "deleted before the migration began"),)
    if not seen.connected:
        return _wait(seen)
    return _begin(seen) if phase == phases.TARGET_READY else (MigrateGuest(),)


def _begin(seen: Observed) -> SourcePlan:
    return () if seen.ending or seen.operating else (BeginMigration(),)


def plan_target(seen: Observed) -> TargetPlan:
    """Return what the target's handler does next. Nothing: the listener stays as it is until something changes."""
    migration, launcher = seen.migration, seen.launcher
    phase = phases.phase_of(migration)
    if phase in phases.MIGRATION_FINAL:
        return _target_over(seen)
    if migration_attempts.is_reported(migration):
        return (ForgetMigration(),)  # the guest stayed: whatever arrived here is never released
    if phase not in (phases.PREPARING_TARGET, phases.TARGET_READY, phases.RUNNING) or launcher is None:
        return ()
    known = launcher.migration_of(migration_attempts.uid_of(migration))
    if known is not None and known.state == "succeeded":
        return (TakeOverMachine(),)
    if not seen.connected or launcher.ending is not None:
        return ()
    if known is None:
        # A pod that is going, or of a Migration that is being deleted, is not prepared any more; who may say so already does.
        is_vain = objects.is_deleting(migration) or migration_attempts.failure_of(migration) is not None
        return () if is_vain else (PrepareTarget(),)
    if known.state in ("arrived", "failed") and release.is_released(migration):
        return (ReleaseGuest(),)  # where the domain is gone, the launcher learns by this that it is gone for good
    if known.state not in ("prepared", "running", "arrived"):
        return ()  # it did not arrive: the source knows what became of the guest
    if not seen.relaying:
        return (AcceptRelays(),)
    is_new = phase == phases.PREPARING_TARGET
    if is_new or objects.dig(migration, "status", "targetAddress") != seen.address:
        return () if objects.is_deleting(migration) or (is_new and seen.ending) else (OfferAddress(seen.address),)
    return ()


def _target_over(seen: Observed) -> TargetPlan:
    """Return what is done until the Migration says how long the guest stood still: this side's launcher may know it a moment later."""
    is_told = objects.dig(seen.migration, "status", "progress", "downtimeMilliseconds") is not None
    if phases.phase_of(seen.migration) != phases.SUCCEEDED or is_told or seen.gone:
        return (ForgetMigration(),)
    later: TargetPlan = (ForgetMigration(),)
    if _left(seen, MEASURE_SECONDS):
        later = (CloseRelays(), Requeue(LOOK_AGAIN_SECONDS))
    if seen.launcher is None:
        return later
    known = seen.launcher.migration_of(migration_attempts.uid_of(seen.migration))
    if known is None or (known.direction, known.state) != ("incoming", "succeeded"):
        return (ForgetMigration(),)
    if known.downtime_milliseconds > 0:
        return (WriteFigures(), ForgetMigration())
    return later if known.elapsed_milliseconds == 0 else (ForgetMigration(),)  # it has said all: the guest was paused all the way


def _left(seen: Observed, seconds: float) -> float:
    """Return what is left of so many seconds since the Migration ended, by whoever's clock; 0 where nothing is."""
    try:
        ended = times.parse(str(objects.dig(seen.migration, "status", "endTime") or ""))
    except ValueError:
        return 0.0
    ago = seconds if seen.now is None else abs(seen.now - ended).total_seconds()
    return max(seconds - ago, 0.0)
