"""Exponential backoff."""

from __future__ import annotations

from typing import Final

_MOST_DOUBLINGS: Final = 32
"""More would exceed a float, and change no pause."""


def pause_seconds(failures: int, first: float, longest: float) -> float:
    """Return the pause in seconds: ``first``, doubled per further failure up to ``longest``; 0 without failures."""
    return min(first * 2 ** min(failures - 1, _MOST_DOUBLINGS), longest) if failures > 0 else 0.0
