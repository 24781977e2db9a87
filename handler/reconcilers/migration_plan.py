"""What virt-handler does about one Migration, as its source or as its target: from what is known to one action. Pure.

The source's launcher has the truth: it alone can say that the domain stayed, and it alone that it left. The domain arrives on the target
paused, and runs there once the target was told that the source's launcher said so (``apis.virt.release``). Then the target's handler
writes ``Succeeded``; ``Failed`` and ``Cancelled`` are the source's to write, whichever of them restarts in between.

Source
  ============================== ==========================================================
  ``TargetReady``, to be deleted  never began: ``Cancelled``; it began anyway: abort
  ``TargetReady``                 ``Running`` is written first: from then on it counts as begun
  ``Running``, launcher never heard of it: relays, then Migrate (safe to repeat)
  ``Running``, under way          keep the relays; to be deleted: abort
  ``Running``, failed, cancelled  ``Failed``, ``Cancelled``: the domain runs here
  ``Running``, succeeded          tell the target, until it has heard; then the target writes
  final, launcher still at it     nothing: libvirt needs the relays to learn the outcome
  ============================== ==========================================================

Target
  ============================== ==========================================================
  ``PreparingTarget``             devices, network, PrepareMigrationTarget, door open: ``TargetReady``
  ``TargetReady``, ``Running``    keep the door open; the address changed: write it
  the domain arrived              wait for the source's word, at the door or in the Migration; then let it run
  the domain was released         the VM's ``nodeName`` and pod, then ``Succeeded``
  ============================== ==========================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apiserver.apis.meta import objects
from apiserver.apis.virt import phases, release
from handler.reconcilers import migration_causes
from launcher.protocol import messages


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything the decision needs, of one side."""

    migration: Mapping[str, Any]
    launcher: messages.Status | None
    """Of the pod on this side; None before the first status."""
    connected: bool
    gone: bool
    relaying: bool = False
    """Target: the door is open for this migration's source."""
    told: bool = False
    """Source: the target's handler answered that it released the domain."""
    address: str = ""
    """Target: where other handlers reach this one's relay now."""
    stop: str = ""
    """Source: why the machine should be off; empty: it should be on, or nobody knows."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done until something changes; relays and door stay as they are."""


@dataclass(frozen=True, slots=True)
class Close:
    """It is over for this side: relays, door and link go."""


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
class Prepare:
    """Make the target's pod ready."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Write ``TargetReady`` (or keep the phase) with this address."""

    address: str


@dataclass(frozen=True, slots=True)
class Expect:
    """Open the door for the source's connections."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Source: say that the domain left, to the target's handler; where that fails, in the Migration."""


@dataclass(frozen=True, slots=True)
class Release:
    """Target: let the domain that arrived run."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Write the VM, then ``Succeeded``."""


@dataclass(frozen=True, slots=True)
class Conclude:
    """Write ``Failed`` or ``Cancelled``."""

    phase: str
    message: str


Action = Wait | Close | Begin | Relay | Abort | Prepare | Offer | Expect | Tell | Release | TakeOver | Conclude


def plan_source(observed: Observed) -> Action:
    """Return what the source's handler does."""
    migration, launcher = observed.migration, observed.launcher
    phase = phases.phase_of(migration)
    if phase in phases.MIGRATION_FINAL:
        return Wait() if _is_confirming(observed) else Close()
    if phase not in (phases.TARGET_READY, phases.RUNNING) or launcher is None:
        return Wait()
    uid = objects.uid_of(migration)
    known = launcher.migration_of(uid)
    unwanted = objects.is_deleting(migration)
    match known.state if known is not None else "":
        case "succeeded":
            return Wait() if observed.told else Tell()
        case "failed" if known is not None:
            return Conclude(phases.FAILED, migration_causes.of_failure(known, launcher, observed.stop))
        case "cancelled" if known is not None:
            if unwanted:
                return Conclude(phases.CANCELLED, "deleted while the guest moved")
            return Conclude(phases.FAILED, migration_causes.of_failure(known, launcher, observed.stop))
        case "running" | "prepared":
            if not observed.connected:
                return Wait()
            if unwanted:
                return Abort()
            return Begin() if phase == phases.TARGET_READY else Wait()
        case _:
            return _not_begun(observed, launcher, phase, unwanted=unwanted)


def _is_confirming(observed: Observed) -> bool:
    """Whether libvirt still works on the source although the Migration is over (the target's pod ended): it learns that by the relays."""
    launcher = observed.launcher
    known = launcher.migration_of(objects.uid_of(observed.migration)) if launcher is not None and observed.connected else None
    return known is not None and known.state == "running"


def _not_begun(observed: Observed, launcher: messages.Status, phase: str, *, unwanted: bool) -> Action:
    if launcher.ending is not None or observed.gone:
        return Conclude(phases.FAILED, "the guest ended before its migration began")
    if unwanted:
        return Conclude(phases.CANCELLED, "deleted before the migration began")
    if not observed.connected:
        return Wait()
    return Begin() if phase == phases.TARGET_READY else Relay()


def plan_target(observed: Observed) -> Action:
    """Return what the target's handler does."""
    migration, launcher = observed.migration, observed.launcher
    phase = phases.phase_of(migration)
    if phase in phases.MIGRATION_FINAL:
        return Close()
    if phase not in (phases.PREPARING_TARGET, phases.TARGET_READY, phases.RUNNING) or launcher is None:
        return Wait()
    known = launcher.migration_of(objects.uid_of(migration))
    if known is not None and known.state == "succeeded":
        return TakeOver()
    if not observed.connected or launcher.ending is not None:
        return Wait()
    if known is None:
        # The pod of a Migration that is being deleted is not prepared any more; who may say so already does.
        return Wait() if objects.is_deleting(migration) else Prepare()
    if known.state == "arrived" and release.is_released(migration):
        return Release()
    if known.state not in ("prepared", "running", "arrived"):
        return Wait()  # it did not arrive: the source knows what became of the guest
    if not observed.relaying:
        return Expect()
    if phase == phases.PREPARING_TARGET or objects.dig(migration, "status", "targetAddress") != observed.address:
        return Wait() if objects.is_deleting(migration) else Offer(observed.address)
    return Wait()
