"""Decides the next actions of virt-handler for one Migration, as its source or target. Pure.

Only the source's launcher determines whether the domain stayed or left. The domain arrives paused, and runs on the target after that
launcher reported its departure (``apis.virt.lifecycle.departure``). Then the target's handler writes ``Succeeded``; only the source's
writes ``Failed`` and ``Cancelled``.

Source
  ============================== ==========================================================
  ``TargetReady``, being deleted  not begun: ``Cancelled``; begun: abort
  ``TargetReady``                 write ``Running`` first: from then on it counts as begun
  ``Running``, new to launcher    relays, then Migrate (safe to repeat)
  ``Running``, in progress        keep the relays; being deleted: abort; over a limit (``migration_limits``): pause or abort
  ``Running``, failed, cancelled  ``Failed``, ``Cancelled``: the domain runs here
  ``Running``, connection broke   write it to ``attempts``: virt-controller decides about another attempt
  attempt has failed              end the relays; nothing of the attempt begins
  ``Running``, succeeded          tell the target until it answers; then the target writes
  target has answered             forward connections that still come to the source's pod, while its launcher stays for that
  final, launcher still busy      wait for two minutes: libvirt needs the relays to learn the result
  ============================== ==========================================================

Target
  ============================== ==========================================================================
  ``PreparingTarget``             devices, disks of plugins, network, PrepareMigrationTarget, listen: ``TargetReady``
  ``TargetReady``, ``Running``    keep listening; write the address if it changed
  domain arrived                  wait for the source's report, by a relay or in the Migration; then resume it
  domain was released             write the machine's ``nodeName`` and pod, then ``Succeeded``
  attempt has failed              stop listening: the copy is never released
  ``Succeeded``                   write the statistics that only this side's launcher has, if missing
  ============================== ==========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from apiserver.apis.meta import objects, times
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import departure, migration_attempts, phases
from handler.pods import places
from handler.reconcilers.migrations import migration_causes, migration_limits
from launcher.protocol import messages

MEASURE_SECONDS: Final = 30.0
"""For statistics after the end: a launcher checks its domain every ten seconds."""
LOOK_AGAIN_SECONDS: Final = 10.0
"""Interval of checks of a migration in progress, or without statistics."""
CONFIRM_SECONDS: Final = 120.0
"""How long the source's libvirt may take to notice the end: a minute if the other node is gone."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The input of :func:`plan_source` or :func:`plan_target`."""

    migration: Mapping[str, Any]
    launcher: messages.Status | None
    """Of the pod on this side."""
    connected: bool
    """virt-handler is connected to it."""
    gone: bool
    """Its process has ended, and with it all in the pod."""
    now: datetime
    """By the clock that writes ``Running`` and the end."""
    relaying: bool = False
    """Target: connections of this migration's source are accepted."""
    released: bool = False
    """Source: the target's handler reported the domain's release."""
    forwarded: bool = False
    """Source: connections are forwarded to the target's pod, or that failed."""
    address: str = ""
    """Target: current address of this handler's relay."""
    stop: str = ""
    """Source: why the guest should end; empty if it should not."""
    stalled_seconds: float = 0.0
    """Source: without data of the guest."""
    can_pause: bool = False
    """Source: the launcher supports ``PauseForMigration``."""
    operating: bool = False
    """Source: an operation of the guest is unfinished or may be requested."""
    importing: str = ""
    """Source: why the guest cannot migrate during an import into a claim; empty without one."""
    ending: bool = False
    """This virt-handler ends soon, so no migration begins."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """Check again after this time: a time limit may pass, or an event be missed."""

    seconds: float


@dataclass(frozen=True, slots=True)
class BeginMigration:
    """Source: write ``Running``."""


@dataclass(frozen=True, slots=True)
class MigrateGuest:
    """Source: open the relays and start the launcher's migration."""


@dataclass(frozen=True, slots=True)
class AbortMigration:
    """Source: abort the launcher's migration."""


@dataclass(frozen=True, slots=True)
class PauseGuest:
    """Source: pause the guest so that it arrives."""


@dataclass(frozen=True, slots=True)
class RequestRelease:
    """Source: report to the target's handler that the domain left; if that fails, write it into the Migration."""


@dataclass(frozen=True, slots=True)
class ForwardConnections:
    """Source: forward connections to the target's pod, which has these addresses."""

    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndMigration:
    """Source: write ``phase``, ``Failed`` or ``Cancelled``."""

    phase: str
    message: str
    stays: bool = True
    """The guest continues here. Otherwise virt-controller reports its end."""


@dataclass(frozen=True, slots=True)
class FailAttempt:
    """Source: write that the current attempt failed, for a possibly temporary cause."""

    message: str


@dataclass(frozen=True, slots=True)
class PrepareTarget:
    """Target: prepare its pod."""


@dataclass(frozen=True, slots=True)
class AcceptRelays:
    """Target: accept the source's connections."""


@dataclass(frozen=True, slots=True)
class OfferAddress:
    """Target: write ``TargetReady`` (or keep the phase) with this address."""

    address: str


@dataclass(frozen=True, slots=True)
class ReleaseGuest:
    """Target: resume the domain that arrived."""


@dataclass(frozen=True, slots=True)
class TakeOverMachine:
    """Target: write the machine, then ``Succeeded``."""


@dataclass(frozen=True, slots=True)
class WriteFigures:
    """Target: write the statistics, if virt-controller wrote ``Succeeded`` first or the launcher had them later."""


@dataclass(frozen=True, slots=True)
class CloseRelays:
    """End this side's relays and accept no more. The link to the launcher stays, and so a departed guest's pod."""


@dataclass(frozen=True, slots=True)
class ForgetMigration:
    """End this side's relays and link."""


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
    """Return whether data of the guest, or the report that it left, may be on its way, so virt-handler should not end now."""
    return phases.phase_of(migration) == phases.RUNNING and not migration_attempts.is_reported(migration)


def source_pod(vm: Mapping[str, Any] | None, migration: Mapping[str, Any]) -> str:
    """Return the source pod's uid from the machine's status; empty if its pod is not the Migration's source, or the uid invalid."""
    pod_uid = dig_vm(vm, "status", "podUID") or ""
    if places.is_uid(pod_uid) and dig_vm(vm, "status", "podName") == dig_migration(migration, "status", "sourcePod"):
        return str(pod_uid)
    return ""


def plan_source(seen: Observed) -> SourcePlan:
    """Return the next actions of the source's handler. Empty: keep the relays until something changes."""
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
        return ()  # its target ended; virt-controller knows
    report = launcher.migration_of(migration_attempts.uid_of(migration))
    unwanted = objects.is_deleting(migration)
    match report.state if report is not None else "":
        case "succeeded":
            return (_forward(seen) or _wait(seen)) if seen.released else (RequestRelease(),)
        case "failed" | "cancelled" if report is not None:
            return (_stayed(seen, report, launcher),)
        case "running" | "prepared":
            if not seen.connected:
                return _wait(seen)
            if unwanted:
                return (AbortMigration(), *_wait(seen))
            return _begin(seen) if phase == phases.TARGET_READY else _under_way(seen, launcher)
        case _:
            return _not_begun(seen, launcher, phase, unwanted=unwanted)


def _wait(seen: Observed) -> tuple[Requeue, ...]:
    return (Requeue(LOOK_AGAIN_SECONDS),) if phases.phase_of(seen.migration) == phases.RUNNING else ()


def _source_over(seen: Observed, phase: str) -> SourcePlan:
    if phase == phases.SUCCEEDED and _stays(seen):
        return _forward(seen) or (CloseRelays(),)
    left = _left(seen, CONFIRM_SECONDS) if _is_confirming(seen) else 0.0
    return (Requeue(left),) if left else (ForgetMigration(),)


def _stayed(seen: Observed, report: messages.MigrationStatus, launcher: messages.Status) -> EndMigration | FailAttempt:
    migration, unwanted = seen.migration, objects.is_deleting(seen.migration)
    stays = not migration_causes.is_off(launcher, seen.stop)
    if report.state == "cancelled":
        if unwanted:
            return EndMigration(phases.CANCELLED, "deleted during the migration", stays)
        limit = migration_limits.cause(migration, report, seen.now, seen.stalled_seconds)
        return EndMigration(phases.FAILED, migration_causes.of_failure(report, launcher, seen.stop, limit), stays)
    cause = migration_causes.of_failure(report, launcher, seen.stop)
    is_counted = phases.phase_of(migration) == phases.RUNNING and migration_attempts.number_of(migration) > 0
    if is_counted and not unwanted and migration_causes.may_pass(report, launcher, seen.stop):
        return FailAttempt(cause)
    return EndMigration(phases.FAILED, cause, stays)


def _under_way(seen: Observed, launcher: messages.Status) -> SourcePlan:
    verdict = migration_limits.verdict_of(seen.migration, launcher, seen.now, seen.stalled_seconds, can_pause=seen.can_pause)
    match verdict:
        case "pause":
            return (PauseGuest(), *_wait(seen))
        case "abort":
            return (AbortMigration(), *_wait(seen))
        case _:
            return _wait(seen)


def _stays(seen: Observed) -> bool:
    """Return whether the pod that the guest left still exists: its launcher, connected for some more seconds, reports the success."""
    launcher = seen.launcher
    report = launcher.migration_of(migration_attempts.uid_of(seen.migration)) if launcher is not None and seen.connected else None
    return report is not None and (report.direction, report.state) == ("outgoing", "succeeded")


def _forward(seen: Observed) -> tuple[ForwardConnections, ...]:
    addresses = tuple(dig_migration(seen.migration, "status", "targetPodIPs") or ())
    return (ForwardConnections(addresses),) if addresses and not seen.forwarded and _stays(seen) else ()


def _is_confirming(seen: Observed) -> bool:
    """Return whether the source's launcher still reports this migration, which is over in the API, as running.

    libvirt learns of the end through the relays. The caller waits at most :data:`CONFIRM_SECONDS`, because a launcher can lie.
    """
    launcher = seen.launcher
    report = launcher.migration_of(migration_attempts.uid_of(seen.migration)) if launcher is not None and seen.connected else None
    return report is not None and report.state == "running"


def _not_begun(seen: Observed, launcher: messages.Status, phase: str, *, unwanted: bool) -> SourcePlan:
    if launcher.ending is not None or seen.gone:
        return (EndMigration(phases.FAILED, "the guest ended before its migration started", stays=False),)
    if unwanted:
        return (EndMigration(phases.CANCELLED, "deleted before the migration started"),)
    if phase == phases.TARGET_READY and seen.importing:
        return (EndMigration(phases.FAILED, seen.importing),)
    if not seen.connected:
        return _wait(seen)
    return _begin(seen) if phase == phases.TARGET_READY else (MigrateGuest(),)


def _begin(seen: Observed) -> SourcePlan:
    return () if seen.ending or seen.operating else (BeginMigration(),)


def plan_target(seen: Observed) -> TargetPlan:
    """Return the next actions of the target's handler. Empty: keep the listener until something changes."""
    migration, launcher = seen.migration, seen.launcher
    phase = phases.phase_of(migration)
    if phase in phases.MIGRATION_FINAL:
        return _target_over(seen)
    if migration_attempts.is_reported(migration):
        return (ForgetMigration(),)  # the guest stayed: the copy here is never released
    if phase not in (phases.PREPARING_TARGET, phases.TARGET_READY, phases.RUNNING) or launcher is None:
        return ()
    report = launcher.migration_of(migration_attempts.uid_of(migration))
    if report is not None and report.state == "succeeded":
        return (TakeOverMachine(),)
    if not seen.connected or launcher.ending is not None:
        return ()
    if report is None:
        # not for a pod that is being deleted, or of a deleted Migration
        is_vain = objects.is_deleting(migration) or migration_attempts.failure_of(migration) is not None
        return () if is_vain else (PrepareTarget(),)
    if report.state in ("arrived", "failed") and departure.is_released(migration):
        return (ReleaseGuest(),)  # if the domain is gone, the launcher ends
    if report.state not in ("prepared", "running", "arrived"):
        return ()  # it did not arrive; the source decides
    if not seen.relaying:
        return (AcceptRelays(),)
    is_new = phase == phases.PREPARING_TARGET
    if is_new or dig_migration(migration, "status", "targetAddress") != seen.address:
        return () if objects.is_deleting(migration) or (is_new and seen.ending) else (OfferAddress(seen.address),)
    return ()


def _target_over(seen: Observed) -> TargetPlan:
    """Return the actions after the end: write the guest's downtime, if reported within ``MEASURE_SECONDS``, and forget the Migration."""
    is_told = dig_migration(seen.migration, "status", "progress", "downtimeMilliseconds") is not None
    if phases.phase_of(seen.migration) != phases.SUCCEEDED or is_told or seen.gone:
        return (ForgetMigration(),)
    later: TargetPlan = (ForgetMigration(),)
    if _left(seen, MEASURE_SECONDS):
        later = (CloseRelays(), Requeue(LOOK_AGAIN_SECONDS))
    if seen.launcher is None:
        return later
    report = seen.launcher.migration_of(migration_attempts.uid_of(seen.migration))
    if report is None or (report.direction, report.state) != ("incoming", "succeeded"):
        return (ForgetMigration(),)
    if report.downtime_milliseconds > 0:
        return (WriteFigures(), ForgetMigration())
    return (ForgetMigration(),) if report.elapsed_milliseconds else later  # complete: the guest was paused all the time


def _left(seen: Observed, seconds: float) -> float:
    ended = times.parsed(dig_migration(seen.migration, "status", "endTime"))
    return max(seconds - abs(seen.now - ended).total_seconds(), 0.0) if ended is not None else 0.0
