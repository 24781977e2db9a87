"""Limits on requests in flight, which protect the server from overload."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from apiserver.apis.meta.errors import Details, TooManyRequests
from apiserver.apis.meta.users import MASTERS, User
from apiserver.endpoints.requestinfo import RequestInfo

RETRY_SECONDS: Final = 1


class Seat(Protocol):
    """A request's place among the running ones."""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Response headers that describe the limit."""
        ...

    @property
    def waits(self) -> bool:
        """True if it is not free yet: await :meth:`taken`."""
        ...

    async def taken(self) -> float:
        """Wait until it is free; return the seconds.

        Raises:
            TooManyRequests: the wait took too long.
        """
        ...

    def initialized(self) -> None:
        """Release the seat early: a watch costs little after its initial objects."""
        ...

    def leave(self) -> None:
        """Release the seat; safe to repeat."""
        ...


class Limiter(Protocol):
    """Admits requests up to a limit."""

    def enter(self, user: User, info: RequestInfo, *, long_running: bool) -> Seat | None:
        """Return a request's seat; None if it needs none.

        Raises:
            TooManyRequests: no seat is free; the body was not read.
        """
        ...

    def take_peaks(self) -> tuple[int, int]:
        """Return the peak numbers of running reads and writes since the last call."""
        ...

    def take_queued(self) -> tuple[int, int]:
        """Return the peak numbers of waiting reads and writes since the last call."""
        ...


class Rejected(TooManyRequests):
    """Raised when no seat is free."""

    headers: tuple[tuple[str, str], ...] = ()


def too_many(headers: tuple[tuple[str, str], ...] = ()) -> Rejected:
    """Return the 429 error; clients retry after the seconds in its header."""
    error = Rejected("Too many requests, please try again later.", Details(retry_after_seconds=RETRY_SECONDS))
    error.headers = headers
    return error


@dataclass(slots=True)
class Watermark:
    """Counts running reads and writes, and their peaks."""

    reading: int = 0
    writing: int = 0
    most_reading: int = 0
    most_writing: int = 0

    def add(self, *, writes: bool) -> None:
        """Count one more."""
        if writes:
            self.writing += 1
            self.most_writing = max(self.most_writing, self.writing)
        else:
            self.reading += 1
            self.most_reading = max(self.most_reading, self.reading)

    def remove(self, *, writes: bool) -> None:
        """Count one less."""
        if writes:
            self.writing -= 1
        else:
            self.reading -= 1

    def take(self) -> tuple[int, int]:
        """Return both peaks since the last call."""
        most = self.most_reading, self.most_writing
        self.most_reading, self.most_writing = self.reading, self.writing
        return most


@dataclass(slots=True)
class InFlight:
    """Go's max-in-flight limit. Watches, streams and ``system:masters`` do not count; 0 means unlimited."""

    max_reading: int = 400
    max_writing: int = 200
    watermark: Watermark = field(default_factory=Watermark)

    def enter(self, user: User, info: RequestInfo, *, long_running: bool) -> Seat | None:
        """See :class:`Limiter`."""
        if long_running:
            return None
        writes = info.mutating
        mark = self.watermark
        count, limit = (mark.writing, self.max_writing) if writes else (mark.reading, self.max_reading)
        if limit and count >= limit and MASTERS not in user.groups:
            raise too_many()
        mark.add(writes=writes)
        return _Counted(mark, writes)

    def take_peaks(self) -> tuple[int, int]:
        """See :class:`Limiter`."""
        return self.watermark.take()

    def take_queued(self) -> tuple[int, int]:
        """See :class:`Limiter`: no request waits here."""
        return 0, 0


class _Counted:
    __slots__ = ("_left", "_mark", "_writes")
    headers = ()
    waits = False

    def __init__(self, mark: Watermark, writes: bool) -> None:  # noqa: FBT001 - on the hot path, where a keyword costs
        self._mark = mark
        self._writes = writes
        self._left = False

    async def taken(self) -> float:
        return 0.0

    def initialized(self) -> None:
        pass

    def leave(self) -> None:
        if not self._left:
            self._left = True
            self._mark.remove(writes=self._writes)
