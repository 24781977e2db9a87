"""Exponential backoff. Pure."""

from __future__ import annotations

from typing import Final

_MOST_DOUBLINGS: Final = 32
"""More doublings change no pause, and a thousand would exceed a float."""


def pause_seconds(failures: int, first: float, longest: float) -> float:
    """Return the pause after consecutive failures.

    Args:
        failures: their number; 0: no pause.
        first: the first pause in seconds, doubled after each further failure.
        longest: the longest pause.
    """
    return min(first * 2 ** min(failures - 1, _MOST_DOUBLINGS), longest) if failures > 0 else 0.0
