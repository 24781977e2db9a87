"""What to do about one virtual machine of this node: from what is known to one action. Pure.

The order of the rules is the order of what may never go wrong: an end is an end whatever is wished, a guest that shall be off is not
started, a guest is started once, and only then come pause and status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.virt import phases, power
from handler.reconcilers import guest_status
from handler.reconcilers.guest_status import End
from launcher.protocol import messages

RESUMABLE: Final = frozenset({"user", "starting up", "unknown"})
"""libvirt's reasons for a pause that was asked for. The others (an I/O error, say) would only come back."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything the decision needs."""

    vm: Mapping[str, Any]
    launcher: messages.Status | None
    """The newest status of the launcher in ``status.podUID``; None before the first."""
    connected: bool
    gone: bool
    """The launcher's process has ended."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done until something changes."""


@dataclass(frozen=True, slots=True)
class Start:
    """Prepare devices and network and have the launcher define and start the domain."""

    paused: bool


@dataclass(frozen=True, slots=True)
class Call:
    """Ask the launcher for something about its running domain."""

    request: messages.Shutdown | messages.Suspend | messages.Resume


@dataclass(frozen=True, slots=True)
class Report:
    """Write the status of the domain if it changed."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Write the end of the attempt."""

    end: End


Action = Wait | Start | Call | Report | Finish


def plan(observed: Observed) -> Action:
    """Return the next action; after it, look again."""
    phase = phases.phase_of(observed.vm)
    if phase not in phases.OWNED_BY_HANDLER and phase != phases.UNKNOWN:
        return Wait()
    launcher = observed.launcher
    if launcher is not None and launcher.ending is not None:
        end = guest_status.end_of(launcher.ending)
        return Finish(end) if end is not None else Wait()
    if observed.gone:
        # Of one that was leaving the last word may be lost: its pod has it, and virt-controller reads it there.
        return Wait() if _left(launcher) or _is_leaving(launcher) else Finish(_vanished())
    if launcher is None or not observed.connected or _left(launcher):
        return Wait()
    return _alive(observed.vm, launcher)


def _alive(vm: Mapping[str, Any], launcher: messages.Status) -> Action:
    wish = power.decide(vm)
    # What has begun to stop stops: an attempt has no way back from there.
    off = not wish.on or wish.attempt > power.current_attempt(vm) or phases.phase_of(vm) == phases.STOPPING
    if launcher.domain is None:
        if launcher.started or launcher.stopping:
            return Wait()  # the ending follows
        if off:
            return Finish(End(power.RESULT_STOPPED, "ShutDown", f"not started: {wish.message}"))
        return Start(paused=power.wants_paused(vm))
    if off and not launcher.stopping:
        return Call(messages.Shutdown(grace_seconds(vm)))
    if launcher.stopping and phases.phase_of(vm) == phases.STOPPING:
        return Wait()  # the states a guest goes through on its way down are worth no write; its end is
    if _is_migrating(launcher):
        return Wait()  # what libvirt pauses and resumes on the way is nobody's business; the outcome is reported
    if not launcher.stopping:
        pause = power.wants_paused(vm)
        if pause and launcher.domain.state in ("running", "blocked"):
            return Call(messages.Suspend())
        if not pause and launcher.domain.state == "paused" and launcher.domain.reason in RESUMABLE:
            return Call(messages.Resume())
    return Report()


def grace_seconds(vm: Mapping[str, Any]) -> float:
    """Return how long the guest may take to shut down: of its deletion if that says, else of its spec."""
    metadata, spec = vm.get("metadata") or {}, vm.get("spec") or {}
    given = spec.get("terminationGracePeriodSeconds")
    if metadata.get("deletionTimestamp") and metadata.get("deletionGracePeriodSeconds"):
        given = metadata["deletionGracePeriodSeconds"]
    return 30.0 if given is None else float(given)


def _left(launcher: messages.Status | None) -> bool:
    """Whether the guest runs on in another pod: its handler reports it from now on."""
    migrations = launcher.migrations if launcher is not None else ()
    return any(each.direction == "outgoing" and each.state == "succeeded" for each in migrations)


def _is_leaving(launcher: messages.Status | None) -> bool:
    migrations = launcher.migrations if launcher is not None else ()
    return any(each.direction == "outgoing" and each.state == "running" for each in migrations)


def _is_migrating(launcher: messages.Status) -> bool:
    return any(each.state in ("prepared", "running", "arrived") for each in launcher.migrations)


def _vanished() -> End:
    return End(power.RESULT_FAILED, "LauncherVanished", "virt-launcher ended without saying why, and the guest with it")
