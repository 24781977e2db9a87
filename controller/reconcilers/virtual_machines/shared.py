"""Values shared by all machines' passes of the same second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

SHARED_SECONDS: Final = 1.0
T = TypeVar("T")


class Shared(Generic[T]):
    """A value computed at most once a second."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._found: tuple[float, T] | None = None

    def value(self, compute: Callable[[], T]) -> T:
        """Return the value, from ``compute`` if the last one is older than a second."""
        now = self._elapsed()
        if self._found is None or now - self._found[0] >= SHARED_SECONDS:
            self._found = (now, compute())
        return self._found[1]
