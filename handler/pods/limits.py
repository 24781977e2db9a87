"""Times and limits of the connections to launchers, which their guests may have taken over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BUDGET_BYTES_PER_SECOND: Final = 128 << 10


@dataclass(frozen=True, slots=True)
class Limits:
    """Times of a connection to a launcher, and bounds of what it may say."""

    hello_seconds: float = 10.0
    call_seconds: float = 45.0
    """virt-launcher gives up on libvirt after 30 and says so."""
    start_seconds: float = 100.0
    """For what includes libvirtd's start and overlays, each of which virt-launcher gives 60. Less than a pass of the loop may take."""
    exit_seconds: float = 2.0
    """Seconds after hanging up in which a launcher may exit before the link tries again."""
    fault_seconds: float = 30.0
    """Before a link is tried again whose task met something that nobody expected, or a launcher that speaks another version of the wire."""
    changes_burst: int = 32
    changes_per_second: float = 4.0
    """A live migration, the most talkative thing that happens to a guest, changes its status twice a second."""
    budget_bytes: int = 4 << 20
    debt_bytes: int = 30 * BUDGET_BYTES_PER_SECOND
    """Nobody is silenced for more than half a minute: the newest status is worth more than the punishment."""


DEFAULT: Final = Limits()
