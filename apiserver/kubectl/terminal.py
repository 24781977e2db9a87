"""Standard input and output of a session: raw mode, always restored afterwards."""

from __future__ import annotations

import asyncio
import os
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

CHUNK_BYTES: Final = 4096
ANSWER_SECONDS: Final = 0.25
"""Of the terminal, to the guest's last queries."""
MODES: Final = (
    b"\x1b\\"  # ends an unfinished sequence
    b"\x1b7\x1b[?1049l"  # leaves the alternate screen, or only restores the saved cursor
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l"  # mouse
    b"\x1b[?1004l"  # focus events
    b"\x1b[?2004l"  # bracketed paste
    b"\x1b[?1l"  # application cursor keys
    b"\x1b[?25h"  # cursor
    b"\x1b[0m"  # colours
)
"""Resets modes that a guest may have left set."""


def _wait() -> None:
    time.sleep(ANSWER_SECONDS)


@contextmanager
def raw(descriptor: int, output: int, wait: Callable[[], None] = _wait) -> Iterator[None]:
    """During the block, pass on every key of a terminal, also Ctrl-C.

    Afterwards ``output`` has a shell's modes, and unread input is discarded; ``wait`` waits for the terminal's answers to the guest.
    """
    before = termios.tcgetattr(descriptor) if os.isatty(descriptor) else None
    try:
        if before is not None:
            tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        with suppress(OSError):  # it hung up
            if os.isatty(output):
                _write(output, MODES)
        if before is not None:
            wait()
            with suppress(termios.error):
                termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


async def read(descriptor: int, size: int = CHUNK_BYTES) -> bytes:
    """Wait for input; return 1 to ``size`` bytes, none at its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _set, ready)
    except OSError:  # regular files never block
        return _read(descriptor, size)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    try:
        return _read(descriptor, size)
    except BlockingIOError:
        return await read(descriptor, size)


def _read(descriptor: int, size: int) -> bytes:
    try:
        return os.read(descriptor, size)
    except BlockingIOError:
        raise
    except OSError:  # or a directory, or closed
        return b""


async def write(descriptor: int, content: bytes) -> None:
    """Write everything, in a thread: a reader may be slow. Raises OSError, such as BrokenPipeError."""
    await asyncio.to_thread(_write, descriptor, content)


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # another process shares the terminal
            _wait_writable(descriptor)


def _wait_writable(descriptor: int) -> None:
    import select  # rarely used

    select.select([], [descriptor], [], 1.0)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
