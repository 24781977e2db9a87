"""How a guest is powered off: a request's effect on the state, and the next step.

As in ``known``, but times called ``now`` are the event loop's seconds.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Final

from launcher.main.decisions import life
from launcher.main.decisions.known import Known, destroying, with_status
from launcher.main.decisions.times import TIMES, Times

GAVE_UP: Final = "libvirtd did not power off the guest; the end of the pod will"


class Termination(Enum):
    """The effect of a SIGTERM."""

    ABANDON = "abandon what is being made"
    END = "end at once"
    POWER_OFF = "power the guest off within its grace period"


def termination(known: Known) -> Termination:
    """Return whether a SIGTERM abandons a start, ends virt-launcher, or powers the guest off.

    A guest that never ran has no data to lose.
    """
    if known.making and not known.run.ran:
        return Termination.ABANDON
    return Termination.END if known.machine is None else Termination.POWER_OFF


def requested(known: Known, grace_seconds: float, now: float) -> Known:
    """Return the state after a power-off request.

    Only a grace period that ends earlier replaces the present one. A guest that never ran has none, unless it may still arrive.
    """
    if not known.run.ran and known.arriving is None:
        grace_seconds = 0.0
    stopping = known.stopping or life.Stopping(now + grace_seconds, now)
    stopping = dataclasses.replace(stopping, deadline=min(now + grace_seconds, stopping.deadline))
    known = dataclasses.replace(known, stopping=stopping, run=dataclasses.replace(known.run, asked_to_stop=True))
    told = known.status.grace_seconds
    return with_status(known, stopping=True, grace_seconds=grace_seconds if told is None else min(told, grace_seconds))


def next_step(known: Known, now: float, *, fresh: bool, operating: bool, times: Times = TIMES) -> life.Step:
    """Return the next step to power a guest off.

    ``fresh``: ``known.domain`` is current; a guest that has migrated away must not get our requests. ``operating``: a request is running,
    which may find an arrived domain, or release it.
    """
    if known.stopping is None or known.ended:
        return life.Step.WAIT
    # A guest may have arrived since, so an old look is sufficient only at the deadline.
    nothing_came = known.domain is None or not known.domain.active
    if not known.status.started and not operating and nothing_came and (fresh or now >= known.stopping.deadline):
        return life.Step.END
    incoming = known.arriving.state if known.arriving is not None else None
    leaving = known.leaving is not None or bool(known.saving)
    prepares = known.status.frozen or (known.machine is not None and bool(known.machine.pre_stop))
    step = life.next_step(
        now, known.stopping, known.domain, leaving=leaving, incoming=incoming, operating=operating, prepares=prepares, times=times
    )
    return step if fresh or step is life.Step.GIVE_UP else life.Step.WAIT


def patience(known: Known, now: float, times: Times = TIMES) -> float | None:
    """Return the deadline of libvirt calls made at ``now``; None without a power-off.

    A hung call delays neither the end of the grace period nor giving up on libvirtd.
    """
    if known.stopping is None:
        return None
    deadline = known.stopping.deadline
    return deadline if now < deadline else deadline + times.give_up


def begun(known: Known, step: life.Step, now: float) -> Known:
    """Return the state when a step to power the guest off begins."""
    match step:
        case life.Step.ASK_AGENT | life.Step.PRESS_BUTTON if known.stopping is not None:
            stopping = dataclasses.replace(known.stopping, attempts=known.stopping.attempts + 1, last_attempt=now)
            return dataclasses.replace(known, stopping=stopping)
        case life.Step.PREPARE if known.stopping is not None:
            return dataclasses.replace(known, stopping=dataclasses.replace(known.stopping, prepared=True))
        case life.Step.DESTROY:
            return destroying(_ignored(known, now))
        case life.Step.END:
            return dataclasses.replace(known, over=True)
        case _:
            return known


def _ignored(known: Known, now: float) -> Known:
    if known.stopping is None or not known.stopping.attempts or known.run.destroyed:
        return known
    return dataclasses.replace(known, run=dataclasses.replace(known.run, ignored_seconds=now - known.stopping.since))
