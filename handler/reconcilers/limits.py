"""Times and limits of the loops over guests and their migrations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_STEPS: Final = 8
"""Plans in one pass; more would mean that launcher and plan disagree for ever."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Times and bounds of a loop."""

    image_seconds: float = 2.0
    """Until a pod whose claims have no image yet is asked again: a file on another machine's disk has no event."""
    import_seconds: float = 3.0
    """Between two looks at how far an import is."""
    start_patience_seconds: float = 2.0
    """A start takes half a second; the pass of one that takes longer ends, and looks again at what is asked of the machine."""
    start_again_seconds: float = 0.5
    disagree_seconds: float = 5.0
    """Until a launcher is asked again that says it did something and does not show it."""
    not_understood_seconds: float = 30.0
    """Until a machine is looked at again whose launcher is not understood: another write of it may not have had its turn."""
    writes_burst: int = 20
    write_seconds: float = 5.0
    """Twelve writes a minute in the long run; a live migration, which is worth more, writes five in all."""
    network_tries_burst: int = 10
    network_seconds: float = 5.0
    """Until the network of a running guest is tried again."""
    network_heals_seconds: float = 2.0
    """A fault of the pod's network that is gone after this long is nobody's business."""
    progress_seconds: float = 5.0
    """Between two writes of the progress of a migration."""
    release_again_seconds: float = 2.0
    """Until the target of a migration is told again that the guest left: it stands still until the target has heard."""


DEFAULT: Final = Limits()
