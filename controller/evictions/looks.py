"""The reads of eviction reviews. Concurrent reviews share them, and those of waiting evictions are kept.

``docs/decisions/drains.md`` has the reason.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from apiserver.apis.meta.objects import NamespacedName, Object

SECONDS: Final = 17.0
"""A look is kept for three repetitions of ``kubectl drain``."""
MAX_KEPT: Final = 256
"""Looks; the oldest are dropped. Each has some tens of KiB."""
_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Look(NamedTuple):
    """The objects that a pod's eviction depends on, as read."""

    pod: Object | None
    vm: Object | None = None
    claims: Mapping[str, Object | None] = {}
    node: Object | None = None


@dataclass(frozen=True, slots=True)
class _Read(Generic[_V]):
    value: _V


class Shared(Generic[_K, _V]):
    """Reads in progress, by key: a caller joins one that runs."""

    def __init__(self) -> None:
        self._running: dict[_K, asyncio.Future[_Read[_V] | None]] = {}
        """None: the read failed."""

    async def get(self, key: _K, read: Callable[[], Awaitable[_V]]) -> _V:
        """Return the result of another caller's running read of this key; without one, or if it fails, call ``read``. Raises its errors."""
        while (running := self._running.get(key)) is not None:
            if (found := await asyncio.shield(running)) is not None:  # cancelling one caller does not cancel the others
                return found.value
        answer = self._running[key] = asyncio.get_running_loop().create_future()
        result = None
        try:
            result = _Read(await read())
            return result.value
        finally:
            del self._running[key]
            answer.set_result(result)


class Kept:
    """Stores the Looks of pods with waiting evictions, for ``SECONDS``."""

    def __init__(self, elapsed: Callable[[], float], limit: int = MAX_KEPT) -> None:
        """``elapsed``: monotonic seconds."""
        self._elapsed = elapsed
        self._limit = limit
        self._looks: OrderedDict[NamespacedName, tuple[float, Look]] = OrderedDict()
        """With the time of the read; oldest first."""

    def keep(self, pod: NamespacedName, look: Look) -> None:
        """Store a pod's Look for ``SECONDS``, without managedFields; beyond the limit, the oldest Look is dropped."""
        self._looks.pop(pod, None)
        self._looks[pod] = (self._elapsed(), Look(_slim(look.pod), _slim(look.vm), look.claims, look.node))
        while len(self._looks) > self._limit:
            self._looks.popitem(last=False)

    def get(self, pod: NamespacedName) -> Look | None:
        """Return a pod's Look; None without one, or if it is too old."""
        now = self._elapsed()
        while self._looks and now - next(iter(self._looks.values()))[0] >= SECONDS:
            self._looks.popitem(last=False)
        found = self._looks.get(pod)
        return None if found is None else found[1]

    def __len__(self) -> int:
        return len(self._looks)


def _slim(obj: Object | None) -> Object | None:
    if obj is None:
        return None
    metadata: dict[str, Any] = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}
