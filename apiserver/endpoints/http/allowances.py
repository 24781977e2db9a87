"""Limits of one connection: small until a client certificate, then enough for the aggregator."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from apiserver.client import buffers
from apiserver.endpoints.http.heads import MAX_FIELDS, MAX_HEAD_BYTES


@dataclass(frozen=True, slots=True)
class Allowance:
    """Limits of one HTTP connection."""

    head_bytes: int
    fields: int
    waiting_bytes: int
    """Received ahead before reading pauses."""
    head_seconds: float
    """From the first byte, or the handshake, to the end of the header fields (Go: ``ReadHeaderTimeout``)."""
    stall_seconds: float
    """Without the client reading our output."""
    socket_bytes: int = 0
    """Kernel buffers each way, part of the pod's memory; 0: the default."""

    def bound(self, transport: asyncio.BaseTransport) -> None:
        """Limit the kernel's memory for the transport's buffers to ``socket_bytes`` each way; 0: no change."""
        if self.socket_bytes:
            buffers.narrow(transport, self.socket_bytes // 2)


UNVERIFIED: Final = Allowance(16 << 10, 100, 16 << 10, 10.0, 20.0, 64 << 10)
"""A bearer token comes only with the head."""
VERIFIED: Final = Allowance(MAX_HEAD_BYTES, MAX_FIELDS, 128 << 10, 32.0, 60.0)
"""The aggregator's headers list all groups of a user."""
