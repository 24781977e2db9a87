"""The pause that doubles while something keeps failing. Pure."""

from __future__ import annotations

from typing import Final

_MOST_DOUBLINGS: Final = 32
"""More make no difference to any pause, and a number of that size is no float any more after a thousand."""


def pause_seconds(failures: int, first: float, longest: float) -> float:
    """Return how long to wait after so many failures in a row.

    Args:
        failures: none of them, no pause.
        first: the pause in seconds after the first one, doubled with each further one.
        longest: where that ends.
    """
    return min(first * 2 ** min(failures - 1, _MOST_DOUBLINGS), longest) if failures > 0 else 0.0
