"""Connections from their first byte to what their handshake has shown: whose turn it is, and how many there may be.

Before the handshake is over nobody knows who is there, and each costs a signature. So handshakes take turns (:mod:`~.turns`), those that
have begun before those that begin. How many there may be at once, and how many whose client showed no certificate, is bounded
(:mod:`~.caps`); a client with a verified certificate is counted apart, by the certificate, where nobody else can take its place.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from apiserver.endpoints.http.caps import Caps, Places
from apiserver.endpoints.http.connection import Connection
from apiserver.endpoints.http.tls import FEW_ARRIVALS, Tls
from apiserver.endpoints.http.turns import Turns

_ARRIVALS: Final = 64 << 10
_STEPS: Final = 4
"""Handshakes that go on in one turn of the event loop, of some 0.5 ms each."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on connections, and the time of a handshake."""

    seconds: float
    handshakes: Caps
    """By address."""
    unverified: Caps
    """Of clients that showed no certificate; by address."""
    verified: Caps
    """By certificate."""


class Handshakes:
    """Makes the TLS of new connections: pass it to ``loop.create_server``, without ``ssl``."""

    def __init__(self, newest: Callable[[], ssl.SSLContext], make: Callable[[], Connection], limits: Limits) -> None:
        """Take what returns the context for one more connection, what makes its protocol, and how much there may be of what."""
        self.make = make
        self.limits = limits
        self.arrivals = memoryview(bytearray(_ARRIVALS))
        """The buffer in which the bytes of all connections arrive."""
        self.few_arrivals = self.arrivals[:FEW_ARRIVALS]
        """The same, for those that have shown no certificate."""
        self.outgoing = ssl.MemoryBIO()
        """Bytes that OpenSSL wrote, for whichever connection it worked last: empty whenever it does not work."""
        self.under_way: Places[Tls] = Places(self.limits.handshakes)
        self.unverified: Places[Tls] = Places(self.limits.unverified)
        self.verified: Places[Tls] = Places(self.limits.verified)
        self.failures = 0
        """Handshakes that failed."""
        self.newest = newest
        self._loop = asyncio.get_running_loop()
        self.turns = Turns(_STEPS)

    def __call__(self) -> Tls:
        """Return the protocol of a new socket."""
        return Tls(self)

    def __len__(self) -> int:
        """Return the number of handshakes under way."""
        return len(self.under_way)

    def began(self, tls: Tls) -> asyncio.TimerHandle:
        """Take note of a handshake; return what ends it when it takes too long."""
        self.under_way.take(tls, tls.origin)
        return self._loop.call_later(self.limits.seconds, tls.abort)

    def shaken(self, tls: Tls, certificate: bytes | None) -> None:
        """Count a connection by what its handshake has shown."""
        self.under_way.leave(tls)
        if certificate is None:
            self.unverified.take(tls, tls.origin)
        else:
            self.verified.take(tls, certificate)

    def ended(self, tls: Tls) -> None:
        """Forget a connection, wherever it was counted."""
        for each in (self.under_way, self.unverified, self.verified):
            each.leave(tls)

    def failed(self) -> None:
        """Count a handshake that failed."""
        self.failures += 1

    def abort(self) -> None:
        """End all that are under way."""
        for each in list(self.under_way):
            each.abort()
