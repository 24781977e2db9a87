"""Memory that is free, but that the C library keeps."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def give_back(library: Callable[[None], object] = ctypes.CDLL) -> None:
    """Let the C library return what it can to the system, after work that took much memory for a moment; others than glibc cannot."""
    trim = getattr(library(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
