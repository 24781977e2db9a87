"""Bounds of what one connection takes of the server: little until its client has shown a certificate, enough for the aggregator then."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from apiserver.client import buffers
from apiserver.endpoints.http.heads import MAX_FIELDS, MAX_HEAD_BYTES


@dataclass(frozen=True, slots=True)
class Allowance:
    """Bounds of one connection."""

    head_bytes: int
    """Of a request line and its fields."""
    fields: int
    """In a head."""
    waiting_bytes: int
    """Sent ahead, before the connection is not read from any more."""
    head_seconds: float
    """From the first byte of a request, or from the handshake, to the end of its header fields (Go: ``ReadHeaderTimeout``)."""
    stall_seconds: float
    """For a client that reads nothing of what is written to it."""
    socket_bytes: int = 0
    """Bytes that the kernel keeps of what was written, and of what came, for a pod's memory limit counts them; 0: what it likes."""

    def bound(self, transport: asyncio.BaseTransport) -> None:
        """Tell the kernel how much to keep; it doubles what it is told, for needs of its own."""
        if self.socket_bytes:
            buffers.narrow(transport, self.socket_bytes // 2)


UNVERIFIED: Final = Allowance(16 << 10, 100, 16 << 10, 10.0, 20.0, 64 << 10)
"""Before it is known who is there: a bearer token comes only with the head."""
VERIFIED: Final = Allowance(MAX_HEAD_BYTES, MAX_FIELDS, 128 << 10, 32.0, 60.0)
"""The handshake has shown a certificate: the aggregator tells of all groups of a user in the head."""
