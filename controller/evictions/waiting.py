"""Namespaces with guests that wait for one of the limited migrations, in memory.

Only evictions from a node that is being drained count, so evicting pods elsewhere delays no other namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

SECONDS: Final = 30
"""After an eviction that found the limit reached. ``kubectl drain`` retries every 5 s."""


class Wait(NamedTuple):
    """A namespace that waits, and where."""

    where: str
    namespace: str


class Waiting:
    """Stores which namespaces wait, by node or cluster, for ``SECONDS`` after each note."""

    def __init__(self) -> None:
        self._last: dict[Wait, datetime] = {}

    def note(self, where: str, namespace: str, now: datetime) -> None:
        """Record that a namespace waits at ``where``, a node or the cluster, and remove expired entries."""
        self._last = {key: at for key, at in self._last.items() if _is_recent(at, now)}
        self._last[Wait(where, namespace)] = now

    def at(self, places: Iterable[str], now: datetime) -> Mapping[str, frozenset[str]]:
        """Return, for each of ``places``, the namespaces that recently waited there."""
        recent = [key for key, at in self._last.items() if _is_recent(at, now)]
        return {each: frozenset(wait.namespace for wait in recent if wait.where == each) for each in places}

    def __len__(self) -> int:
        return len(self._last)


def _is_recent(at: datetime, now: datetime) -> bool:
    return timedelta() <= now - at < timedelta(seconds=SECONDS)
