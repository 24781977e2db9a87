"""Return glibc's free memory to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def give_back(library: Callable[[None], object] = ctypes.CDLL) -> None:
    """Return free memory to the system (``malloc_trim``); do nothing without glibc.

    ``library(None)`` loads the process's own libraries.
    """
    trim = getattr(library(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
