"""Timeouts and limits of connections to launchers, which their guests may control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BUDGET_BYTES_PER_SECOND: Final = 128 << 10


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts of a connection to a launcher, and limits on what it sends."""

    hello_seconds: float = 10.0
    call_seconds: float = 45.0
    """virt-launcher reports a libvirt timeout after 30 s."""
    start_seconds: float = 100.0
    """For requests that include libvirtd's start and overlays, each with 60 s in virt-launcher; less than a pass may take."""
    exit_seconds: float = 2.0
    """How long a launcher may take to exit before the link reconnects."""
    fault_seconds: float = 30.0
    """After an unexpected error, or after another protocol version."""
    changes_burst: int = 32
    changes_per_second: float = 4.0
    """A live migration, the most frequent source, changes the status twice a second."""
    budget_bytes: int = 4 << 20
    debt_bytes: int = 30 * BUDGET_BYTES_PER_SECOND
    """Half a minute without messages: the newest status matters more than the limit."""


DEFAULT: Final = Limits()
