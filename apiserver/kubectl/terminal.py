"""Standard input and output of a session: raw while it lasts, as it was afterwards, whatever happens."""

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
"""For a terminal's answers to what a guest asked of it last."""
MODES: Final = (
    b"\x1b\\"  # ends what a guest began and did not end
    b"\x1b7\x1b[?1049l"  # back from the alternate screen; where it was not left, the cursor goes to where it has just been saved
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l"  # the mouse
    b"\x1b[?1004l"  # the focus
    b"\x1b[?2004l"  # bracketed paste
    b"\x1b[?1l"  # application cursor keys
    b"\x1b[?25h"  # the cursor is seen
    b"\x1b[0m"  # colours
)
"""Takes back what a guest may have left on."""


def _wait() -> None:
    time.sleep(ANSWER_SECONDS)


@contextmanager
def raw(descriptor: int, output: int, wait: Callable[[], None] = _wait) -> Iterator[None]:
    """Pass every key on unread (Ctrl-C, too) while this lasts; does nothing to what is no terminal.

    Lone line feeds of a guest look as on a real serial terminal, where it has to send CR itself. Afterwards ``output`` has the modes of a
    shell's terminal, and what nobody has read is thrown away: it may be what a guest had the terminal answer, and not what was typed.

    Args:
        descriptor: where keys come from.
        output: where the guest's output goes.
        wait: for answers of the terminal that are under way.
    """
    before = termios.tcgetattr(descriptor) if os.isatty(descriptor) else None
    try:
        if before is not None:
            tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        with suppress(OSError):  # it was hung up
            if os.isatty(output):
                _write(output, MODES)
        if before is not None:
            wait()
            with suppress(termios.error):  # as above
                termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


async def read(descriptor: int) -> bytes:
    """Return what was typed or piped, at least a byte; nothing at its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _set, ready)
    except OSError:  # epoll refuses regular files, which never make anybody wait
        return _read(descriptor)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    try:
        return _read(descriptor)
    except BlockingIOError:
        return await read(descriptor)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except BlockingIOError:
        raise
    except OSError:  # the terminal was hung up, it is a directory, or it is closed
        return b""


async def write(descriptor: int, content: bytes) -> None:
    """Write everything; a reader that is slow (a pager) holds up this session and nothing else.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    await asyncio.to_thread(_write, descriptor, content)


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # somebody made the shared terminal non-blocking
            _wait_writable(descriptor)


def _wait_writable(descriptor: int) -> None:
    import select  # needed in this odd case alone

    select.select([], [descriptor], [], 1.0)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
