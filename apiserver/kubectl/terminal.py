"""Standard input and output of a session: raw while it lasts, as it was afterwards, whatever happens."""

from __future__ import annotations

import asyncio
import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

CHUNK_BYTES: Final = 4096


@contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Pass every key on unread (Ctrl-C, too) while this lasts; does nothing to what is no terminal.

    Output stays processed as it was, so that a guest's lone line feeds look as on a real serial terminal only when it sends CR itself.
    """
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        with suppress(termios.error):  # it was hung up
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


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
