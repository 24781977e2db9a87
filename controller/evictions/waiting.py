"""Namespaces whose guests wait for a place among the migrations that evictions cause, in memory.

Only of nodes that somebody empties: whoever evicts their own pods anywhere else holds nobody back by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

SECONDS: Final = 30
"""Wait of a namespace after an eviction that found no place: ``kubectl drain`` asks again every five."""


class Wait(NamedTuple):
    """The wait of a namespace for a place."""

    where: str
    """A node, or the cluster (``places.CLUSTER``)."""
    namespace: str


class Waiting:
    """Remembers who found no place, by where it was wanted: a node, or the cluster (``places.CLUSTER``)."""

    def __init__(self) -> None:
        self._last: dict[Wait, datetime] = {}

    def note(self, where: str, namespace: str, now: datetime) -> None:
        """Remember a namespace, and forget those that ask no more."""
        self._last = {key: at for key, at in self._last.items() if _is_recent(at, now)}
        self._last[Wait(where, namespace)] = now

    def at(self, places: Iterable[str], now: datetime) -> Mapping[str, frozenset[str]]:
        """Return the namespaces that wait, by each of these places."""
        recent = [key for key, at in self._last.items() if _is_recent(at, now)]
        return {each: frozenset(wait.namespace for wait in recent if wait.where == each) for each in places}

    def __len__(self) -> int:
        return len(self._last)


def _is_recent(at: datetime, now: datetime) -> bool:
    return timedelta() <= now - at < timedelta(seconds=SECONDS)
