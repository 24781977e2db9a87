"""libvirt's domain states and reasons: numbers as in ``libvirt-domain.h``, names as in our API."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from apiserver.apis.virt.lifecycle.domainstates import DomainState


class State(IntEnum):
    """A domain's state, libvirt's virDomainState."""

    NOSTATE = 0
    RUNNING = 1
    BLOCKED = 2
    PAUSED = 3
    SHUTDOWN = 4
    """QEMU is about to exit."""
    SHUTOFF = 5
    CRASHED = 6
    PMSUSPENDED = 7


NAMES: Final[dict[State, DomainState]] = {
    State.NOSTATE: "nostate",
    State.RUNNING: "running",
    State.BLOCKED: "blocked",
    State.PAUSED: "paused",
    State.SHUTDOWN: "shutdown",
    State.SHUTOFF: "shutoff",
    State.CRASHED: "crashed",
    State.PMSUSPENDED: "pmsuspended",
}

REASONS: Final[dict[State, tuple[str, ...]]] = {
    State.NOSTATE: ("unknown",),
    State.RUNNING: (
        "unknown",
        "booted",
        "migrated",
        "restored",
        "from snapshot",
        "unpaused",
        "migration canceled",
        "save canceled",
        "event wakeup",
        "crashed",
        "post-copy",
        "post-copy failed",
    ),
    State.BLOCKED: ("unknown",),
    State.PAUSED: (
        "unknown",
        "user",
        "migrating",
        "saving",
        "dumping",
        "I/O error",
        "watchdog",
        "from snapshot",
        "shutting down",
        "creating snapshot",
        "crashed",
        "starting up",
        "post-copy",
        "post-copy failed",
        "api error",
    ),
    State.SHUTDOWN: ("unknown", "user"),
    State.SHUTOFF: ("unknown", "shutdown", "destroyed", "crashed", "migrated", "saved", "failed", "from snapshot", "daemon"),
    State.CRASHED: ("unknown", "panicked"),
    State.PMSUSPENDED: ("unknown",),
}
"""As ``virsh domstate --reason`` prints them, by number."""

ACTIVE: Final = frozenset({State.RUNNING, State.BLOCKED, State.PAUSED, State.SHUTDOWN, State.PMSUSPENDED})
"""States with a QEMU process."""

_RUNS: Final = frozenset({State.RUNNING, State.BLOCKED, State.PMSUSPENDED})


def state_of(number: int) -> State:
    """Return the state with libvirt's ``number``; NOSTATE for later versions' numbers."""
    try:
        return State(number)
    except ValueError:
        return State.NOSTATE


def reason_of(state: State, number: int) -> str:
    """Return libvirt's word for a reason's ``number`` in this state; else ``unknown``."""
    words = REASONS[state]
    return words[number] if 0 <= number < len(words) else "unknown"


def has_arrived(state: State, reason: str) -> bool:
    """Return whether an incoming live migration is complete here: the domain runs, or is paused for the reason ``user``.

    Before that, libvirt pauses the domain for other reasons. An aborted migration is in ``SHUTDOWN`` for a moment.
    """
    return state in _RUNS or (state is State.PAUSED and reason == "user")
