"""Memory that is free, but that the C library keeps."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Let the C library return what it can to the system, after work that took much memory for a moment; others than glibc cannot."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
