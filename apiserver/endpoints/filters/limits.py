"""Limits on requests in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.errors import Details, TooManyRequests
from apiserver.apis.meta.users import MASTERS, User

RETRY_SECONDS: Final = 1


@dataclass(slots=True)
class InFlight:
    """Go's max-in-flight limit, of reads and writes apart. ``system:masters`` are never refused; 0: unlimited."""

    max_reading: int = 400
    max_writing: int = 200
    reading: int = 0
    writing: int = 0
    most_reading: int = 0
    most_writing: int = 0

    def enter(self, user: User, *, writes: bool) -> None:
        """Count a running request; :meth:`leave` follows. Raises TooManyRequests above the limit, except for system:masters."""
        count, limit = (self.writing, self.max_writing) if writes else (self.reading, self.max_reading)
        if limit and count >= limit and MASTERS not in user.groups:
            raise TooManyRequests("Too many requests, please try again later.", Details(retry_after_seconds=RETRY_SECONDS))
        if writes:
            self.writing += 1
            self.most_writing = max(self.most_writing, self.writing)
        else:
            self.reading += 1
            self.most_reading = max(self.most_reading, self.reading)

    def leave(self, *, writes: bool) -> None:
        """Stop counting a request."""
        if writes:
            self.writing -= 1
        else:
            self.reading -= 1

    def take_peaks(self) -> tuple[int, int]:
        """Return the peaks of reads and writes since the last call."""
        most = self.most_reading, self.most_writing
        self.most_reading, self.most_writing = self.reading, self.writing
        return most
