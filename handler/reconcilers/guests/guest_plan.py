"""Decides the next actions for a machine of this node. Pure.

By importance: an end is final; a guest that should be off is not started; a guest is started once; then pause, operations, edits, and
status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.apis.meta import objects
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases, power
from handler.reconcilers.guests import (
    device_steps,
    ending_causes,
    guest_changes,
    guest_operations,
    guest_status,
    guest_steps,
)
from handler.reconcilers.guests.guest_status import End
from launcher.protocol import messages

RESUMABLE: Final = frozenset({"user", "starting up", "migrating", "unknown"})
"""libvirt's reasons for a requested pause; a guest restored from an image has ``migrating``. Other pauses end by an operation."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The input of :func:`plan`: a machine, its pod's launcher, and failed changes; ``gone``: the launcher has ended."""

    vm: Mapping[str, Any]
    launcher: messages.Status | None
    """In ``status.podUID``; None before the first."""
    connected: bool
    gone: bool
    now: float
    """The event loop's time."""
    starting: bool = False
    """The request to start the guest is unanswered."""
    operations: frozenset[str] = frozenset()
    """Supported by the launcher."""
    failures: guest_changes.Failures = field(default_factory=dict)
    failed_steps: device_steps.Failures = field(default_factory=dict)
    not_understood: str = ""
    """What an incompatible launcher has that this process does not support."""


@dataclass(frozen=True, slots=True)
class StartGuest:
    """Prepare devices and network, then have the launcher define and start the domain."""

    paused: bool


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send the launcher a request about its running domain."""

    request: messages.Shutdown | messages.Suspend | messages.Resume | messages.Operate


@dataclass(frozen=True, slots=True)
class ChangeGuest:
    """Have the launcher change a setting of the running guest."""

    request: messages.Change


@dataclass(frozen=True, slots=True)
class ReportGuest:
    """Write the domain's status if it changed."""


@dataclass(frozen=True, slots=True)
class ReportNotUnderstood:
    """Write that the launcher is not supported; the guest continues."""

    message: str


@dataclass(frozen=True, slots=True)
class EndAttempt:
    """Write the attempt's end."""

    end: End
    operations: tuple[messages.OperationStatus, ...] = ()


Action = (
    StartGuest
    | SendRequest
    | ChangeGuest
    | guest_steps.Step
    | guest_operations.Fail
    | guest_operations.ResumeByRequest
    | ReportGuest
    | ReportNotUnderstood
    | EndAttempt
)


def plan(seen: Observed) -> tuple[Action, ...]:
    """Return the next actions for the guest, after which virt-handler plans again. Empty: wait for a change."""
    phase = phases.phase_of(seen.vm)
    if phase not in phases.HANDLED:
        return ()
    if seen.not_understood and not seen.gone:
        return (ReportNotUnderstood(seen.not_understood),)
    launcher = seen.launcher
    if launcher is not None and launcher.ending is not None:
        end = guest_status.end_of(launcher.ending)
        return (EndAttempt(ending_causes.of_end(seen.vm, launcher, end), launcher.operations),) if end is not None else ()
    if seen.gone:
        # the final status of an outgoing migration may be lost: virt-controller reads it from the pod
        told = launcher.operations if launcher is not None else ()
        return () if _left(launcher) or _is_leaving(launcher) else (EndAttempt(_vanished(), told),)
    if launcher is None or not seen.connected or _left(launcher):
        return ()
    return _alive(seen, seen.vm, launcher)


def why_down(vm: Mapping[str, Any]) -> str:
    """Return a message why a guest must be off: it should be off or restart, its liveness probe failed, or a general one."""
    if asked_for := power.end_asked_for(vm):
        return asked_for
    ready = objects.condition(dig_vm(vm, "status", "conditions"), conditions.READY) or {}
    return str(ready["message"]) if ready.get("reason") == conditions.LIVENESS_FAILED else "the guest is being stopped"


def _alive(seen: Observed, vm: Mapping[str, Any], launcher: messages.Status) -> tuple[Action, ...]:
    decision = power.decide(vm)
    # a stopping attempt cannot continue
    off = not decision.on or decision.attempt > power.current_attempt(vm) or phases.phase_of(vm) == phases.STOPPING
    if launcher.domain is None:
        if launcher.started or launcher.stopping:
            return ()  # the ending follows
        if off:
            return (EndAttempt(End(power.RESULT_STOPPED, "ShutDown", f"not started: {why_down(vm)}")),)
        return (StartGuest(paused=power.wants_paused(vm)),)
    if off and (not launcher.stopping or _is_too_patient(launcher, vm)):
        return (SendRequest(messages.Shutdown(float(power.grace_seconds(vm)))),)
    if seen.starting and not launcher.stopping:
        return (StartGuest(paused=power.wants_paused(vm)),)  # until the answer
    if phases.phase_of(vm) == phases.STOPPING:
        return ()  # the states of a shutdown are not written
    if is_migrating(launcher):
        # Of a migration, only the result is reported, not libvirt's pauses; but Services must not use a guest that was paused in order to
        # arrive.
        return (ReportGuest(),) if _stands_to_arrive(launcher, launcher.domain) else ()
    return (ReportGuest(),) if launcher.stopping else _settled(seen, launcher, launcher.domain)


def _settled(seen: Observed, launcher: messages.Status, domain: messages.DomainStatus) -> tuple[Action, ...]:
    vm, pause = seen.vm, power.wants_paused(seen.vm)
    if not launcher.started:
        return ()  # libvirt itself pauses and resumes the guest
    if pause and domain.state in ("running", "blocked"):
        return (SendRequest(messages.Suspend()),)
    if not pause and domain.state == "paused" and domain.reason in RESUMABLE:
        return (SendRequest(messages.Resume()),)
    if stands_still(launcher) and launcher.has_room and not pause:  # only a user ends a user's pause
        return (SendRequest(messages.Resume()),)
    return _operate(seen, launcher) if phases.phase_of(vm) == phases.RUNNING else (ReportGuest(),)


def _operate(seen: Observed, launcher: messages.Status) -> tuple[Action, ...]:
    match guest_operations.next_step(seen.vm, launcher, seen.operations):
        case None:
            if (device := device_steps.next_due(guest_steps.missing(seen.vm, launcher), seen.failed_steps, seen.now)) is not None:
                return (device,)
            change = guest_changes.next_change(seen.vm, launcher, seen.failures, seen.now)
            return (ReportGuest(),) if change is None else (ChangeGuest(change),)
        case messages.Operate() as request:
            return (SendRequest(request),)
        case step:
            return (step,)


def stands_still(launcher: messages.Status | None) -> bool:
    """Return whether the guest suspended itself, or is paused for no requested reason (``RESUMABLE``), such as a fault."""
    domain = launcher.domain if launcher is not None else None
    return domain is not None and (domain.state == "pmsuspended" or (domain.state == "paused" and domain.reason not in RESUMABLE))


def _is_too_patient(launcher: messages.Status, vm: Mapping[str, Any]) -> bool:
    return launcher.grace_seconds is not None and power.grace_seconds(vm) < launcher.grace_seconds


def _left(launcher: messages.Status | None) -> bool:
    migrations = launcher.migrations if launcher is not None else ()
    return any(each.direction == "outgoing" and each.state == "succeeded" for each in migrations)


def _is_leaving(launcher: messages.Status | None) -> bool:
    migrations = launcher.migrations if launcher is not None else ()
    return any(each.direction == "outgoing" and each.state == "running" for each in migrations)


def _stands_to_arrive(launcher: messages.Status, domain: messages.DomainStatus) -> bool:
    """Return whether the guest migrates away, and was paused by request so that it arrives (``allowPause``)."""
    return _is_leaving(launcher) and (domain.state, domain.reason) == ("paused", "user")


def is_migrating(launcher: messages.Status) -> bool:
    """Return whether a migration to or from this pod is prepared, runs, or has arrived here."""
    return any(each.state in ("prepared", "running", "arrived") for each in launcher.migrations)


def may_be_asked(launcher: messages.Status | None) -> bool:
    """Return whether the guest can answer a probe: it runs, and is neither migrating nor stopping."""
    if launcher is None or launcher.domain is None or launcher.stopping or launcher.ending is not None:
        return False
    return launcher.domain.state == "running" and not is_migrating(launcher) and not _left(launcher)


def _vanished() -> End:
    words = (
        "virt-launcher and its guest ended without reporting a reason: perhaps the kernel ended them because the pod reached its memory "
        "limit (spec.domain.resources.limits.memory), or its node lacked memory"
    )
    return End(power.RESULT_FAILED, "LauncherVanished", words)
