"""Values shared by the passes of many objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """A value that is kept for ``seconds``, and then computed again when it is asked for."""

    def __init__(self, elapsed: Callable[[], float], seconds: float) -> None:
        self._elapsed = elapsed
        self._seconds = seconds
        self._found: tuple[float, T] | None = None

    def value(self, compute: Callable[[], T]) -> T:
        """Return the value, from ``compute`` if the last one is too old."""
        now = self._elapsed()
        if self._found is None or now - self._found[0] >= self._seconds:
            self._found = (now, compute())
        return self._found[1]

    async def awaited(self, compute: Callable[[], Awaitable[T]]) -> T:
        """Return the value, from an awaited ``compute`` if the last one is too old; calls meanwhile compute it too."""
        now = self._elapsed()
        if self._found is None or now - self._found[0] >= self._seconds:
            self._found = (now, await compute())
        return self._found[1]
