"""``kubectl virt logs``: what a guest printed on a serial port, and prints.

A terminal gets no control sequences of the guest, unlike ``kubectl virt console``; a file or pipe gets every byte.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from apiserver.apis.virt.places.layout import CONSOLE_HISTORY_BYTES
from apiserver.kubectl import streams, terminal
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure

_SEQUENCE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
"""ECMA-48: CSI, OSC, and sequences of two or three bytes."""
_CONTROLS: Final = bytes(each for each in (*range(32), 127) if each not in b"\n\t")


Write = Callable[[bytes], Awaitable[None]]
EMPTY: Final = "The guest has printed nothing on serial port {port} so far. To see its screen: kubectl virt screenshot {name} -o screen.png"
MAX_HELD_BYTES: Final = 2 * CONSOLE_HISTORY_BYTES


@dataclass(frozen=True, slots=True)
class Settings:
    """Which output of a guest to print."""

    name: str
    follow: bool = False
    tail: int | None = None
    """Lines of what was printed before; None: all that is kept."""
    port: int = 0


class Newest:
    """Holds back a log's first output, until a pause or too much of it, to print only its last ``lines``; None: holds nothing back."""

    def __init__(self, lines: int | None) -> None:
        self._lines = lines
        self._content = b""

    @property
    def is_waiting(self) -> bool:
        """True while output is held back."""
        return self._lines is not None

    def add(self, content: bytes) -> bytes:
        """Take further output; return what to print now."""
        if self._lines is None:
            return content
        self._content += content
        return self.rest() if len(self._content) > MAX_HELD_BYTES else b""

    def rest(self) -> bytes:
        """Return the last lines of the held output, or empty; later output is not held."""
        lines, content, self._lines = self._lines, self._content, None
        if lines is None or not lines:
            return b""
        found = content.splitlines(keepends=True)
        return b"".join(found[-lines:])


def plain(content: bytes) -> bytes:
    """Return output without terminals' control sequences, and without control characters other than newline and tab."""
    return _SEQUENCE.sub(b"", content).translate(None, _CONTROLS)


async def _print(connection: ClientConnection, newest: Newest, write: Write, pause_seconds: float | None) -> streams.End:
    try:
        while True:
            try:
                async with asyncio.timeout(pause_seconds if newest.is_waiting else None):
                    message = await connection.recv()
            except TimeoutError:
                await write(newest.rest())
                continue
            if isinstance(message, bytes):
                await write(newest.add(message))
    except ConnectionClosed as closed:
        await write(newest.rest())
        return streams.end_of(closed)


async def show(settings: Settings, load: Callable[[], Awaitable[Access]], *, stdout: int = 1, pause_seconds: float = 1.0) -> int:
    """Print a guest's serial output; return 0 at its end. Raises Failure.

    ``pause_seconds``: with ``follow`` and ``tail``, earlier output ends at the first pause of this length.
    """
    query: dict[str, int | str] = {"port": settings.port, "follow": str(settings.follow).lower()}
    is_terminal = os.isatty(stdout)

    has_printed = False

    async def write(content: bytes) -> None:
        nonlocal has_printed
        has_printed = has_printed or bool(content)
        await terminal.write(stdout, plain(content) if is_terminal else content)

    try:
        async with streams.opened(await load(), settings.name, "log", query) as connection:
            for warning in streams.warnings_of(connection):
                sys.stderr.write(f"{warning}\n")
            end = await _print(connection, Newest(settings.tail), write, pause_seconds if settings.follow else None)
    except (streams.UpgradeFailed, streams.Unreachable) as error:
        raise error.failure from error
    if end.wanted:
        if not has_printed and settings.tail != 0:
            sys.stderr.write(f"{EMPTY.format(port=settings.port, name=settings.name)}\n")
        return 0
    raise Failure(f"error: the log of {settings.name} was cut off: {end}")
