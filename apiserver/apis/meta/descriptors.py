"""File descriptors and connections that are closed after use, or after an error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Yield a descriptor; close it at the end of the ``with`` block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def on_error(*undo: Callable[[], object]) -> Iterator[None]:
    """Call these functions in turn, then re-raise, if the ``with`` block fails or is cancelled."""
    try:
        yield
    except BaseException:
        for each in undo:
            each()
        raise


@contextmanager
def in_memory(content: bytes) -> Iterator[int]:
    """Yield the descriptor of a file in memory with this content, at its start, and close it at the end as :func:`closing` does."""
    with closing(os.memfd_create("content")) as descriptor:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
