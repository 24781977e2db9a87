"""Writes that come at the same time are planned together, stage by stage (cohort scheduling).

What planning one write takes, in code and data, is several times what the processor's nearest cache holds, so each of its steps is fetched
anew for each write, which costs more than the steps themselves. So the writes of one turn of the event loop wait for each other before the
next step: the first of them fetches it, and the others find it.

The idea is J. R. Larus' and M. Parkes', "Using Cohort-Scheduling to Enhance Server Performance" (USENIX ATC 2002).
"""

from __future__ import annotations

import types
from collections.abc import Generator


class Cohort:
    """The writes that came in one turn of the event loop."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0

    @types.coroutine
    def stage(self) -> Generator[None]:
        """Return once the others came as far; a write that came alone goes on at once."""
        if self.size > 1:
            yield  # what a task yields so takes a place at the end of the line


class Cohorts:
    """Forms them."""

    __slots__ = ("_forming",)

    def __init__(self) -> None:
        self._forming = Cohort()

    @types.coroutine
    def join(self) -> Generator[None, None, Cohort]:
        """Return the cohort of this turn of the event loop, once the turn is over; nobody need leave it."""
        cohort = self._forming
        cohort.size += 1
        try:
            yield
        finally:  # who was cancelled, too, knows that the turn is over
            if self._forming is cohort:
                self._forming = Cohort()
        return cohort
