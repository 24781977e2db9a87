"""Seats of each priority level: its own share, and seats borrowed by demand. Pure.

As ``apf_controller.go`` and ``conc_alloc.go``: every ten seconds, from the demand of the last ten.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apiserver.endpoints.filters.flowcontrol.configuration import Level

_SMOOTHING = 0.977
_LEAST_TARGET = 0.001
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seats of a level: nominal, minimum and maximum."""

    nominal: int
    lower: int
    upper: int


def bounds(levels: Mapping[str, Level], total: int) -> dict[str, Bounds]:
    """Return the bounds of every level, for a server of ``total`` seats."""
    shares = sum(each.shares for each in levels.values())
    found = {}
    for name, level in levels.items():
        nominal = math.ceil(total * level.shares / shares) if shares else 0
        lendable = round(nominal * level.lendable_percent / 100)
        borrowing = total if level.borrowing_percent is None else round(nominal * level.borrowing_percent / 100)
        found[name] = Bounds(nominal, nominal - lendable, nominal + borrowing)
    return found


class Demand:
    """Demand of a level for seats, in use and waited for, over one period."""

    __slots__ = ("_area", "_began", "_last", "_seats", "_squares", "most", "smoothed")

    def __init__(self, now: float) -> None:
        self._began = self._last = now
        self._seats = 0
        self._area = self._squares = 0.0
        self.most = 0
        self.smoothed = 0.0

    def set(self, seats: int, now: float) -> None:
        """Set the demand from ``now`` on."""
        passed = now - self._last
        before = self._seats
        if before and passed > 0:
            self._area += before * passed
            self._squares += before * before * passed
        self._last = now
        self._seats = seats
        if seats > self.most:
            self.most = seats

    def close(self, now: float) -> int:
        """Start the next period; return the ended one's largest demand."""
        self.set(self._seats, now)
        passed = now - self._began
        if passed > 0:
            average = self._area / passed
            envelope = average + math.sqrt(max(0.0, self._squares / passed - average * average))
            self.smoothed = max(envelope, _SMOOTHING * self.smoothed + (1 - _SMOOTHING) * envelope)
        most, self.most = self.most, self._seats
        self._began, self._area, self._squares = now, 0.0, 0.0
        return most


@dataclass(frozen=True, slots=True)
class AllocationItem:
    """Request of a level for seats: from ``lower`` to ``upper``, in proportion to ``target``."""

    lower: float
    upper: float
    target: float


def allocation_item(level: Bounds, most: int, smoothed: float) -> AllocationItem:
    """Return the request of a level, from its demand."""
    lower = max(level.lower, min(level.nominal, most))
    return AllocationItem(lower, max(lower, level.upper), max(lower, smoothed))


def allocate(total: float, items: Sequence[AllocationItem]) -> tuple[list[float], float]:
    """Divide ``total``: each target times a common fraction, within bounds. Return shares and fraction.

    If the bounds allow no such fraction, each item gets its lower bounds (too high in sum) or upper ones (too low).
    """

    def share(fraction: float) -> list[float]:
        return [max(each.lower, min(each.upper, fraction * max(each.target, _LEAST_TARGET))) for each in items]

    least, most = 0.0, 1.0
    while sum(share(most)) < total and most < 1 << 40:
        most *= 2
    for _ in range(_STEPS):
        middle = (least + most) / 2
        if sum(share(middle)) < total:
            least = middle
        else:
            most = middle
    return share(most), most
