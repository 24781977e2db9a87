"""Return memory that the C library keeps free to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def give_back(library: Callable[[None], object] = ctypes.CDLL) -> None:
    """Trim glibc's heap after work with a high peak of memory; other C libraries lack the function.

    Args:
        library: loads the process's own libraries when called without a name.
    """
    trim = getattr(library(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
