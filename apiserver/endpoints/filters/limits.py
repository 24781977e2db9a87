"""How many requests at once: a server that takes on too much serves nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from apiserver.apis.meta.errors import Details, TooManyRequests
from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.endpoints.users import MASTERS, User


@dataclass(slots=True)
class InFlight:
    """Counts requests that read and requests that write, apart. Watches and streams do not count, ``system:masters`` always may."""

    max_reading: int = 400
    max_writing: int = 200
    reading: int = 0
    writing: int = 0

    @contextmanager
    def admitted(self, user: User, info: RequestInfo, *, long_running: bool) -> Iterator[None]:
        """Count one request while it is answered; 0 as a limit means none.

        Raises:
            TooManyRequests: there are too many; its body was not read.
        """
        if long_running:
            yield
            return
        writes = info.mutating
        count, limit = (self.writing, self.max_writing) if writes else (self.reading, self.max_reading)
        if limit and count >= limit and MASTERS not in user.groups:
            raise TooManyRequests("Too many requests, please try again later.", Details(retry_after_seconds=1))
        self._add(1, writes=writes)
        try:
            yield
        finally:
            self._add(-1, writes=writes)

    def _add(self, number: int, *, writes: bool) -> None:
        if writes:
            self.writing += number
        else:
            self.reading += number
