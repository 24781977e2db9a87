"""Decisions in the life of a pod's one domain, as functions of state.

A domain runs at most once in a pod. There must never be a second QEMU, so no function leads from an ending to a start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from launcher.domain.network_disks import without_users
from launcher.domain.states import State
from launcher.hypervisor.port import Observation
from launcher.main.decisions.times import TIMES, Times
from launcher.protocol import messages

NOT_RUN: Final = "the pod was deleted before its guest ran"
STANDS_STILL: Final = frozenset({"user", "I/O error", "watchdog"})
"""libvirt's reasons for a pause that may last, in which a guest must be resumed to shut down."""
PANICKED: Final = "the guest panicked"
WATCHDOG_FIRED: Final = "the guest's watchdog fired and powered it off"
LACKED_MEMORY: Final = "the kernel killed a process of the pod for lack of memory"
MAX_LOG_LINES: Final = 20
MAX_TERMINATION_MESSAGE: Final = 4096
"""The kubelet cuts longer ones."""


class Step(Enum):
    """Next step to power a guest off."""

    WAIT = "wait"
    ABORT_MIGRATION = "abort the migration"
    RESUME = "resume"
    PREPARE = "prepare the guest"
    ASK_AGENT = "ask the agent"
    PRESS_BUTTON = "press the power button"
    DESTROY = "destroy"
    GIVE_UP = "give up"
    END = "end: nothing came"


@dataclass(frozen=True, slots=True)
class Stopping:
    """Progress of powering the guest off. Times are in the event loop's seconds."""

    deadline: float
    """End of the guest's grace period. The pod's is some seconds longer, for destroying the domain and closing disks."""
    since: float
    attempts: int = 0
    last_attempt: float = float("-inf")
    prepared: bool = False
    """``PREPARE`` has begun."""


def next_step(
    now: float,
    stopping: Stopping,
    domain: Observation | None,
    *,
    leaving: bool,
    incoming: messages.MigrationState | None = None,
    operating: bool = False,
    prepares: bool = False,
    times: Times = TIMES,
) -> Step:
    """Return the next step to power the guest off.

    An answering agent is tried first; then power button and agent alternate, because either may not work. An outgoing migration
    (``leaving``) is aborted first, and an unreleased copy destroyed: ``incoming`` is None after its release. ``operating``: a request is
    running, which may be the release. ``prepares``: the guest needs ``PREPARE`` first. ``now`` is in the event loop's seconds.
    """
    if domain is None or not domain.active:
        return Step.WAIT
    if now >= stopping.deadline + times.give_up:
        return Step.GIVE_UP
    if incoming is not None:
        patience = stopping.deadline if operating else min(stopping.since + times.release, stopping.deadline)
        return Step.WAIT if incoming == "arrived" and now < patience else Step.DESTROY
    if now >= stopping.deadline:
        return Step.DESTROY
    if leaving:
        return Step.ABORT_MIGRATION
    if (domain.state is State.PAUSED and domain.reason in STANDS_STILL) or domain.state is State.PMSUSPENDED:
        return Step.RESUME
    if prepares and not stopping.prepared and domain.state is State.RUNNING:
        return Step.PREPARE
    if domain.state is State.SHUTDOWN or now < stopping.last_attempt + times.press:
        return Step.WAIT
    if domain.agent_connected and stopping.attempts % 2 == 0:
        return Step.ASK_AGENT
    return Step.PRESS_BUTTON


@dataclass(frozen=True, slots=True)
class Run:
    """Facts about a run, for its ending."""

    ran: bool = False
    """The guest's processors may have run, here or in the pod it came from, so data could be lost."""
    asked_to_stop: bool = False
    destroyed: bool = False
    ignored_seconds: float = 0.0
    """From the first power-off request until we destroyed it; 0 without a request."""
    migrated_to: str = ""
    """uid of the outgoing migration that took the domain away."""


def ending_of(run: Run, last: Observation | None) -> tuple[messages.EndingKind, str]:
    """Return the kind of the run's ending and a message, by the run's facts and libvirt's last state (None: gone)."""
    reason = last.reason if last is not None else "gone"
    if run.migrated_to or reason == "migrated":
        return "migrated", "the guest continues in another pod"
    if reason == "shutdown":
        return ("shutdown-requested", "the guest shut down on request") if run.asked_to_stop else ("shutdown", "the guest powered off")
    if run.destroyed:
        return "destroyed", _powered_off(run) if run.ran else NOT_RUN
    if reason == "destroyed":
        return "destroyed", "the domain was destroyed by another program than virt-launcher"
    if reason in ("crashed", "failed", "panicked", "watchdog"):
        return "crashed", {"panicked": PANICKED, "watchdog": WATCHDOG_FIRED}.get(reason, "QEMU ended unexpectedly")
    return "crashed", f"the domain is {reason}: QEMU ended while virt-launcher was not connected to libvirtd"


def explained(ending: messages.Ending, *, lacked_memory: bool) -> str:
    """Return the message of a failed run's ending, with the lack of memory unless libvirt named another cause."""
    named = ending.panicked or ending.watchdog
    return f"{ending.message}; {LACKED_MEMORY}" if lacked_memory and not named else ending.message


def _powered_off(run: Run) -> str:
    off = "the guest was powered off forcibly"
    return f"{off}: it did not react to the shutdown request within {run.ignored_seconds:.0f} s" if run.ignored_seconds else off


def fault_of(domain: Observation, names: Mapping[str, str]) -> str:
    """Return a text for users with the disk errors that paused a domain; ``names`` has the disks' names by libvirt's."""
    return "; ".join(f"disk {names.get(disk, disk)!r}: {error}" for disk, error in domain.disk_errors)


def exit_code(ending: messages.Ending | None) -> int:
    """Return virt-launcher's exit code: 1 for a failed run, else 0."""
    return 1 if ending is not None and ending.kind in ("crashed", "start-failed") else 0


def lingers(ending: messages.Ending | None) -> bool:
    """Return whether the guest migrated away, so the pod stays for some time: connections may still come."""
    return ending is not None and ending.kind == "migrated"


def termination_message(ending: messages.Ending | None) -> str:
    """Return the text for the pod's status, cut to its limit: the ending's kind, its message, and QEMU's last output."""
    if ending is None:
        return "no guest was started"
    text = "\n".join((f"{ending.kind}: {ending.message}", *ending.log))
    return text.encode()[:MAX_TERMINATION_MESSAGE].decode(errors="ignore")


def last_lines(data: bytes) -> tuple[str, ...]:
    """Return the last ``MAX_LOG_LINES`` lines of QEMU's log, cut and made safe to display, without libvirt's lines about its start."""
    text = without_users(data.decode(errors="replace"))
    lines = ["".join(character for character in line if character.isprintable())[:300] for line in text.splitlines()]
    return tuple(line for line in lines if line.strip() and not _ours(line))[-MAX_LOG_LINES:]


def _ours(line: str) -> bool:
    return line.endswith("\\") or "starting up libvirt version" in line or line.startswith(("char device redirected", "-msg timestamp"))


def with_migration(known: tuple[messages.MigrationStatus, ...], changed: messages.MigrationStatus) -> tuple[messages.MigrationStatus, ...]:
    """Return ``known`` with one migration added or replaced; at most four, newest last."""
    if any(migration.uid == changed.uid for migration in known):
        return tuple(changed if migration.uid == changed.uid else migration for migration in known)
    return (*known, changed)[-4:]
