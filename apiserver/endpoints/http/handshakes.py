"""Order and limit TLS handshakes and the resulting connections.

Each handshake costs a signature for an unknown client. So they take turns (:mod:`~.turns`), started ones first, and
:mod:`~.caps` limits them and connections without certificate. Verified clients count by certificate, so others
cannot displace them.
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
"""About 0.5 ms each, per iteration of the event loop."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on connections, and a handshake's time limit."""

    seconds: float
    handshakes: Caps
    """By address."""
    unverified: Caps
    """Without a certificate, by address."""
    verified: Caps
    """By certificate."""


class Handshakes:
    """Runs TLS on new connections: pass it to ``loop.create_server``, without ``ssl``."""

    def __init__(self, newest: Callable[[], ssl.SSLContext], make: Callable[[], Connection], limits: Limits) -> None:
        """``newest`` returns the current TLS context, ``make`` a new connection's protocol."""
        self.make = make
        self.limits = limits
        self.arrivals = memoryview(bytearray(_ARRIVALS))
        self.few_arrivals = self.arrivals[:FEW_ARRIVALS]
        self.outgoing = ssl.MemoryBIO()
        self.under_way: Places[Tls] = Places(self.limits.handshakes)
        self.unverified: Places[Tls] = Places(self.limits.unverified)
        self.verified: Places[Tls] = Places(self.limits.verified)
        self.failures = 0
        self.newest = newest
        self._loop = asyncio.get_running_loop()
        self.turns = Turns(_STEPS)

    def __call__(self) -> Tls:
        """Return the protocol of a new socket."""
        return Tls(self)

    def __len__(self) -> int:
        return len(self.under_way)

    def began(self, tls: Tls) -> asyncio.TimerHandle:
        """Count a handshake by address; return its timer."""
        self.under_way.take(tls, tls.origin)
        return self._loop.call_later(self.limits.seconds, tls.abort)

    def shaken(self, tls: Tls, certificate: bytes | None) -> None:
        """Count the connection by client certificate, or by address."""
        self.under_way.leave(tls)
        if certificate is None:
            self.unverified.take(tls, tls.origin)
        else:
            self.verified.take(tls, certificate)

    def ended(self, tls: Tls) -> None:
        """Remove a connection from all counts."""
        for each in (self.under_way, self.unverified, self.verified):
            each.leave(tls)

    def failed(self) -> None:
        """Count a failed handshake."""
        self.failures += 1

    def abort(self) -> None:
        """Abort all handshakes."""
        for each in list(self.under_way):
            each.abort()
