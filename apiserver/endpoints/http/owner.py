"""The server as a connection needs it: times and bounds, what is shared, and who takes note of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Protocol

from apiserver.endpoints.http.allowances import UNVERIFIED, VERIFIED, Allowance
from apiserver.endpoints.http.heads import Heads, ProtocolError
from apiserver.endpoints.http.messages import Request, Response
from apiserver.endpoints.http.turns import Turns

Handler = Callable[[Request], Awaitable[Response]]
"""Answers a request. A stream that it returns has ended; what it raises ends the connection."""

_TICK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Times and bounds of connections."""

    unverified: Allowance = UNVERIFIED
    verified: Allowance = VERIFIED
    long_heads: int = 64
    """Unfinished heads of verified clients that are longer than an unverified client's may be, at once."""
    strange_requests: int = 8
    """Requests of unverified clients that begin in one turn of the event loop."""
    idle_seconds: float = 200.0
    """Between requests."""
    linger_seconds: float = 5.0
    """For the client to close after an answer that ends the connection."""
    late_seconds: float = 0.5
    """For requests that are on their way when the server begins to drain."""
    tick_seconds: float = _TICK_SECONDS
    """Seconds between looks at the connections."""


class Owned(Hashable, Protocol):
    """A connection, as its server sees it."""

    def refuse(self, error: ProtocolError) -> None:
        """Answer what is no request, and end."""
        ...

    def abort(self) -> None:
        """End at once."""
        ...

    def check(self, now: float) -> None:
        """End if its time is over."""
        ...

    def drain(self) -> None:
        """End soon, if nothing is under way."""
        ...


class Owner(Protocol):
    """A server, as its connections see it."""

    handler: Handler
    settings: Settings
    heads: Heads
    strange_heads: Heads
    """For clients without a certificate: they shall neither fill what is remembered nor push others out of it."""
    turns: Turns
    """The queue of requests of clients without a certificate."""
    draining: bool
    """Answers end their connections."""
    loop: asyncio.AbstractEventLoop
    now: Callable[[], float]
    """The loop's time."""

    def opened(self, connection: Owned) -> None:
        """Take note of a connection."""
        ...

    def closed(self, connection: Owned) -> None:
        """Forget a connection."""
        ...

    def lengthens(self, connection: Owned) -> None:
        """Take note of a long head that is not complete; if there are too many, the oldest is refused."""
        ...

    def shortens(self, connection: Owned) -> None:
        """Forget a long head: it is complete."""
        ...
