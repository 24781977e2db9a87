"""Decides about one Migration for virt-handler, as its source or as its target: from what is known to one action. Pure.

The source's launcher has the truth: it alone can say that the domain stayed, and it alone that it left. The domain arrives on the target
paused, and runs there once the target was told that the source's launcher said so (``apis.virt.release``). Then the target's handler
writes ``Succeeded``; ``Failed`` and ``Cancelled`` are the source's to write, whichever of them restarts in between.

Source
  ============================== ==========================================================
  ``TargetReady``, to be deleted  never began: ``Cancelled``; it began anyway: abort
  ``TargetReady``                 ``Running`` is written first: from then on it counts as begun
  ``Running``, launcher never heard of it: relays, then Migrate (safe to repeat)
  ``Running``, under way          keep the relays; to be deleted: abort; it takes too long (``migration_limits``): pause, or abort
  ``Running``, failed, cancelled  ``Failed``, ``Cancelled``: the domain runs here
  ``Running``, a connection broke in ``attempts``: virt-controller decides whether there is another one
  the attempt has failed          relays end, and nothing of it begins
  ``Running``, succeeded          tell the target, until it has heard; then the target writes
  the target has heard            pass connections on that still come to the source's pod, while its launcher stays for that
  final, launcher still at it     nothing, for two minutes: libvirt needs the relays to learn the outcome
  ============================== ==========================================================

Target
  ============================== ==========================================================
  ``PreparingTarget``             devices, network, PrepareMigrationTarget, listen: ``TargetReady``
  ``TargetReady``, ``Running``    go on listening; the address changed: write it
  the domain arrived              wait for the source's word, by a relay or in the Migration; then let it run
  the domain was released         the VM's ``nodeName`` and pod, then ``Succeeded``
  the attempt has failed          listening ends: what arrived is never released
  ``Succeeded``                   what it took, which only this side's launcher knows, if it did not say so before
  ============================== ==========================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import objects, times
from apiserver.apis.virt import migration_attempts, phases, release
from handler.pods import places
from handler.reconcilers import migration_causes, migration_limits
from launcher.protocol import messages

MEASURE_SECONDS: Final = 30.0
"""After its end a launcher may yet say what a migration took: it looks at its domain every ten."""
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
    told: bool = False
    """Source: the target's handler answered that it released the domain."""
    passed_on: bool = False
    """Source: connections to its pod are passed on to the target's, or that was tried in vain."""
    address: str = ""
    """Target: where other handlers reach this one's relay now."""
    stop: str = ""
    """Source: why the machine should be off; empty: it should be on, or nobody knows."""
    now: datetime | None = None
    """By the clock that writes ``Running`` and the end; None: time does not matter."""
    stalled_seconds: float = 0.0
    """Source: how long nothing of the guest has moved."""
    can_pause: bool = False
    """Source: the launcher knows ``PauseForMigration``."""
    ending: bool = False
    """This virt-handler ends soon, and its relays with it: nothing begins."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done until something changes; relays and listener stay as they are."""

    seconds: float | None = None
    """Until time alone changes something."""


@dataclass(frozen=True, slots=True)
class Close:
    """It is over for this side: relays, listener and link go."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Write ``Running``."""


@dataclass(frozen=True, slots=True)
class Relay:
    """Open the relays and have the launcher migrate."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Have the launcher abort."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Have the launcher pause the guest, so that it arrives."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make the target's pod ready."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Write ``TargetReady`` (or keep the phase) with this address."""

    address: str


@dataclass(frozen=True, slots=True)
class Expect:
    """Begin to accept the source's connections."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Source: say that the domain left, to the target's handler; where that fails, in the Migration."""


@dataclass(frozen=True, slots=True)
class PassOn:
    """Source: pass connections that come to its pod on to the target's, which has these addresses."""

    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Linger:
    """It is over for this side: relays go; the link stays, and with it the pod that the guest has left, for some seconds."""


@dataclass(frozen=True, slots=True)
class Release:
    """Target: let the domain that arrived run."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Write the VM, then ``Succeeded``."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Write what it took: virt-controller was the first to write ``Succeeded``, or the launcher knew it later."""


@dataclass(frozen=True, slots=True)
class Listen:
    """It is over for this side: listener and relays go, and the link stays, since the launcher may yet say what it took."""


@dataclass(frozen=True, slots=True)
class Conclude:
    """Write ``Failed`` or ``Cancelled``."""

    phase: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """Write that the present attempt failed, for a cause that may be gone at the next one."""

    message: str


Action = (
    Wait
    | Close
    | Begin
    | Relay
    | Abort
    | Pause
    | Prepare
    | Offer
    | Expect
    | Tell
    | PassOn
    | Linger
    | Release
    | TakeOver
    | Measure
    | Listen
    | Conclude
    | Report
)


def is_under_way(migration: Mapping[str, Any]) -> bool:
    """Return whether bytes of the guest may be moving, or the word that it left be on its way: virt-handler is not to end in the middle."""
    return phases.phase_of(migration) == phases.RUNNING and not migration_attempts.is_reported(migration)


def source_pod(vm: Mapping[str, Any] | None, migration: Mapping[str, Any]) -> str:
    """Return the uid of the source's pod by its machine; empty once the machine names another pod, or what it names is no uid."""
    pod_uid = objects.dig(vm, "status", "podUID") or ""
    if places.is_uid(pod_uid) and objects.dig(vm, "status", "podName") == objects.dig(migration, "status", "sourcePod"):
        return str(pod_uid)
    return ""


def plan_source(observed: Observed) -> Action:
    """Return what the source's handler does."""
    migration, launcher = observed.migration, observed.launcher
    phase = phases.phase_of(migration)
    if phase in phases.MIGRATION_FINAL:
        if phase == phases.SUCCEEDED and _stays(observed):
            return _pass_on(observed) or Linger()
        left = _left(observed, CONFIRM_SECONDS) if _is_confirming(observed) else 0.0
        return Wait(left) if left else Close()
    if phase not in (phases.TARGET_READY, phases.RUNNING) or launcher is None:
        return Wait()
    if migration_attempts.is_reported(migration):
        return Close()
    if phase == phases.TARGET_READY and migration_attempts.failure_of(migration) is not None:
        return Wait()  # its target ended, and virt-controller knows that nothing has begun
    known = launcher.migration_of(migration_attempts.uid_of(migration))
    unwanted = objects.is_deleting(migration)
    match known.state if known is not None else "":
        case "succeeded":
            return (_pass_on(observed) or Wait()) if observed.told else Tell()
        case "failed" | "cancelled" if known is not None:
            return _stayed(observed, known, launcher)
        case "running" | "prepared":
            if not observed.connected:
                return Wait()
            if unwanted:
                return Abort()
            return _begin(observed) if phase == phases.TARGET_READY else _under_way(observed, launcher)
        case _:
            return _not_begun(observed, launcher, phase, unwanted=unwanted)


def _stayed(observed: Observed, known: messages.MigrationStatus, launcher: messages.Status) -> Action:
    """The attempt is over, and the domain runs here or has ended here."""
    migration, unwanted = observed.migration, objects.is_deleting(observed.migration)
    if known.state == "cancelled":
        if unwanted:
            return Conclude(phases.CANCELLED, "deleted while the guest moved")
        return Conclude(phases.FAILED, migration_causes.of_failure(known, launcher, observed.stop, _limit_of(observed, known)))
    cause = migration_causes.of_failure(known, launcher, observed.stop)
    is_counted = phases.phase_of(migration) == phases.RUNNING and migration_attempts.number_of(migration) > 0
    if is_counted and not unwanted and migration_causes.may_pass(known, launcher, observed.stop):
        return Report(cause)
    return Conclude(phases.FAILED, cause)


def _under_way(observed: Observed, launcher: messages.Status) -> Action:
    if observed.now is None:
        return Wait()
    verdict = migration_limits.judge(observed.migration, launcher, observed.now, observed.stalled_seconds, can_pause=observed.can_pause)
    match verdict:
        case "pause":
            return Pause()
        case "abort":
            return Abort()
        case _:
            return Wait()


def _limit_of(observed: Observed, known: messages.MigrationStatus) -> str:
    """Return the limit for which a migration was aborted; empty: for another reason."""
    return migration_limits.cause(observed.migration, known, observed.now, observed.stalled_seconds) if observed.now is not None else ""


def _stays(observed: Observed) -> bool:
    """Return whether the pod is there that the guest has left: its launcher stays some seconds, while this process is connected to it."""
    launcher = observed.launcher
    known = launcher.migration_of(migration_attempts.uid_of(observed.migration)) if launcher is not None and observed.connected else None
    return known is not None and (known.direction, known.state) == ("outgoing", "succeeded")


def _pass_on(observed: Observed) -> PassOn | None:
    addresses = tuple(objects.dig(observed.migration, "status", "targetPodIPs") or ())
    return PassOn(addresses) if addresses and not observed.passed_on and _stays(observed) else None


def _is_confirming(observed: Observed) -> bool:
    """Return whether libvirt still works on the source although the Migration is over (the target's pod ended): it learns it by the relays.

    A launcher that its guest has taken over says so for ever, so it has :data:`CONFIRM_SECONDS`.
    """
    launcher = observed.launcher
    known = launcher.migration_of(migration_attempts.uid_of(observed.migration)) if launcher is not None and observed.connected else None
    return known is not None and known.state == "running"


def _not_begun(observed: Observed, launcher: messages.Status, phase: str, *, unwanted: bool) -> Action:
    if launcher.ending is not None or observed.gone:
        return Conclude(phases.FAILED, "the guest ended before its migration began")
    if unwanted:
        return Conclude(phases.CANCELLED, "deleted before the migration began")
    if not observed.connected:
        return Wait()
    return _begin(observed) if phase == phases.TARGET_READY else Relay()


def _begin(observed: Observed) -> Action:
    return Wait() if observed.ending else Begin()


def plan_target(observed: Observed) -> Action:
    """Return what the target's handler does."""
    migration, launcher = observed.migration, observed.launcher
    phase = phases.phase_of(migration)
    if phase in phases.MIGRATION_FINAL:
        return _measure(observed)
    if migration_attempts.is_reported(migration):
        return Close()  # the guest stayed: whatever arrived here is never released
    if phase not in (phases.PREPARING_TARGET, phases.TARGET_READY, phases.RUNNING) or launcher is None:
        return Wait()
    known = launcher.migration_of(migration_attempts.uid_of(migration))
    if known is not None and known.state == "succeeded":
        return TakeOver()
    if not observed.connected or launcher.ending is not None:
        return Wait()
    if known is None:
        # A pod that is going, or of a Migration that is being deleted, is not prepared any more; who may say so already does.
        is_vain = objects.is_deleting(migration) or migration_attempts.failure_of(migration) is not None
        return Wait() if is_vain else Prepare()
    if known.state in ("arrived", "failed") and release.is_released(migration):
        return Release()  # where the domain is gone, the launcher learns by this that it is gone for good
    if known.state not in ("prepared", "running", "arrived"):
        return Wait()  # it did not arrive: the source knows what became of the guest
    if not observed.relaying:
        return Expect()
    is_new = phase == phases.PREPARING_TARGET
    if is_new or objects.dig(migration, "status", "targetAddress") != observed.address:
        return Wait() if objects.is_deleting(migration) or (is_new and observed.ending) else Offer(observed.address)
    return Wait()


def _measure(observed: Observed) -> Action:
    """Return what is done until the Migration says how long the guest stood still: this side's launcher may know it a moment later."""
    is_told = objects.dig(observed.migration, "status", "progress", "downtimeMilliseconds") is not None
    if phases.phase_of(observed.migration) != phases.SUCCEEDED or is_told or observed.gone:
        return Close()
    later = Listen() if _left(observed, MEASURE_SECONDS) else Close()
    if observed.launcher is None:
        return later
    known = observed.launcher.migration_of(migration_attempts.uid_of(observed.migration))
    if known is None or (known.direction, known.state) != ("incoming", "succeeded"):
        return Close()
    if known.downtime_milliseconds > 0:
        return Measure()
    return later if known.elapsed_milliseconds == 0 else Close()  # it has said all: the guest was paused all the way


def _left(observed: Observed, seconds: float) -> float:
    """Return what is left of so many seconds since the Migration ended, by whoever's clock; 0 where nothing is."""
    try:
        ended = times.parse(str(objects.dig(observed.migration, "status", "endTime") or ""))
    except ValueError:
        return 0.0
    ago = seconds if observed.now is None else abs(observed.now - ended).total_seconds()
    return max(seconds - ago, 0.0)
