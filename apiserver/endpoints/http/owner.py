"""Limits, state and callbacks of the server, for its connections."""

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
"""A returned stream has ended; an exception closes the connection."""

_TICK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Times and limits of connections."""

    unverified: Allowance = UNVERIFIED
    verified: Allowance = VERIFIED
    long_heads: int = 64
    """Unfinished, of verified clients, above the unverified limit."""
    unverified_requests: int = 8
    """From unverified clients, per iteration of the event loop."""
    idle_seconds: float = 200.0
    """Between requests."""
    linger_seconds: float = 5.0
    late_seconds: float = 0.5
    """For requests in transit when draining begins."""
    tick_seconds: float = _TICK_SECONDS


class Owned(Hashable, Protocol):
    """A connection, as the server uses it."""

    def refuse(self, error: ProtocolError) -> None:
        """Answer an unparsable request, and close."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...

    def check(self, now: float) -> None:
        """Close after the deadline, or if the client does not read."""
        ...

    def drain(self) -> None:
        """Close soon if idle."""
        ...


class Owner(Protocol):
    """A server, as its connections use it."""

    handler: Handler
    settings: Settings
    heads: Heads
    unverified_heads: Heads
    """For clients without certificate, which must not fill or displace the cache."""
    turns: Turns
    """Requests from clients without certificate."""
    draining: bool
    loop: asyncio.AbstractEventLoop
    now: Callable[[], float]

    def opened(self, connection: Owned) -> None:
        """Register a connection."""
        ...

    def closed(self, connection: Owned) -> None:
        """Remove a connection."""
        ...

    def lengthens(self, connection: Owned) -> None:
        """Register a connection with a long, incomplete head; above the limit, refuse the oldest."""
        ...

    def shortens(self, connection: Owned) -> None:
        """Unregister a connection: its long head is complete."""
        ...
