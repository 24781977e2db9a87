"""Times and limits of the loops over guests and their migrations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_STEPS: Final = 8
"""Plans per pass; more would mean that launcher and plan contradict each other."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Times and limits of a loop."""

    image_seconds: float = 2.0
    """Until the next attempt for claims without an image: other pods' files trigger no event."""
    import_seconds: float = 3.0
    start_patience_seconds: float = 2.0
    """A start takes half a second; a longer one is continued in the next pass."""
    start_again_seconds: float = 0.5
    disagree_seconds: float = 5.0
    """Until the next request to a launcher that reported success without effect."""
    not_understood_seconds: float = 30.0
    """Until the next pass for an incompatible launcher: another write of its machine may be pending."""
    writes_burst: int = 20
    write_seconds: float = 5.0
    """Twelve writes a minute on average; a live migration, which takes precedence, writes five in all."""
    network_tries_burst: int = 10
    network_seconds: float = 5.0
    network_heals_seconds: float = 2.0
    """Shorter faults of the pod's network are not reported."""
    progress_seconds: float = 5.0
    release_again_seconds: float = 2.0
    """Until the next release request to a migration's target; meanwhile the guest is paused."""


DEFAULT: Final = Limits()
