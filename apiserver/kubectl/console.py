"""``kubectl virt console``: a guest's serial port on this terminal.

When the connection breaks (virt-api restarts, the guest moves), the session reconnects for a while, without repeating
output (``scrollback``); it discards keys typed meanwhile (``docs/decisions/streams.md``). A withdrawn right ends the session.

Without a terminal, output is copied until the guest is off; after the input's end, a little longer (``--linger``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from apiserver.kubectl import streams, terminal
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure, first, said
from apiserver.kubectl.scrollback import Overlap, Scrollback

ESCAPE: Final = b"\x1d"
"""Ctrl-]"""
FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 1.0
"""A console returns at most this long after virt-handler."""
MAX_TYPED_AHEAD: Final = 64
"""Reads of at most 4 KiB while disconnected."""
DISCARDED: Final = "Input typed while disconnected was not sent to the guest."
FINAL: Final = frozenset({401, 403, 404, 405, 410, 422})
"""Answers that end reconnecting, unlike 400: the guest is not running yet, or restarting."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Machine, serial port and times of a console's session."""

    name: str
    wait_seconds: float = 0.0
    """For the virtual machine to run."""
    reconnect_seconds: float = 60.0
    """After a connection broke."""
    linger_seconds: float = 1.0
    """After a script's input."""
    port: int = 0
    replay_seconds: float = 1.0
    """To compare new with earlier output."""


class Detached(Exception):
    """The user or the script left the console, or the terminal hung up."""


class Session:
    """A user's or a script's session at a guest's serial console, which reconnects."""

    def __init__(self, settings: Settings, load: Callable[[], Awaitable[Access]], *, stdin: int = 0, stdout: int = 1) -> None:
        self._settings = settings
        self._load = load
        self._stdin = stdin
        self._stdout = stdout
        self._keys: asyncio.Queue[bytes] = asyncio.Queue(MAX_TYPED_AHEAD)
        self._unsent = b""
        """Taken from the queue for a broken connection."""
        self._attached = asyncio.Event()
        """From the first connection on."""
        self._is_cut_off = False
        """True while reconnecting."""
        self._is_script = not os.isatty(stdin)
        """Its input waits for the next connection: the guest may read it at any time."""
        self._has_discarded = False
        """Since the break."""
        self._seen = Scrollback()

    async def run(self) -> None:
        """Stay attached until the user leaves or the guest is off.

        Raises Failure, also after a withdrawn right; BrokenPipeError.
        """
        access = await self._load()
        failures: list[BaseException] = []
        ending = ""
        with terminal.raw(self._stdin, self._stdout):
            try:
                async with asyncio.TaskGroup() as group:
                    # So that Ctrl-] leaves while connecting.
                    reading = group.create_task(self._read())
                    ending = f"The console was closed: {await self._attach_again_and_again(access)}."
                    reading.cancel()
            except* Detached:
                pass
            except* (Failure, BrokenPipeError) as group_of_failures:
                failures.append(first(group_of_failures))
        if failures:
            raise failures[0]
        self._say(ending)  # the guest's alternate screen would hide it earlier

    async def _read(self) -> None:
        script = self._is_script
        while content := await terminal.read(self._stdin):
            before, escape, _ = content.partition(ESCAPE)
            if before and script:
                await self._keys.put(before)
            elif before and self._is_cut_off:
                self._has_discarded = True
            elif before and not self._keys.full():
                self._keys.put_nowait(before)
            if escape:
                if script:
                    await self._keys.join()
                raise Detached
        if script:
            await self._attached.wait()
            await self._keys.join()
            await asyncio.sleep(self._settings.linger_seconds)
        raise Detached  # or the terminal hung up

    async def _attach_again_and_again(self, access: Access) -> streams.End:
        deadline, pause = time.monotonic() + self._settings.wait_seconds, FIRST_PAUSE_SECONDS
        renewed = waiting = False
        query = {"port": self._settings.port} if self._settings.port else {}
        while True:
            try:
                async with streams.opened(access, self._settings.name, "console", query) as connection:
                    self._welcome(streams.warnings_of(connection))
                    end = await self._pass_on(connection)
                if end.wanted:
                    return end
                if end.refused:
                    raise Failure(f"error: the console of {self._settings.name} was closed: {end}")
                self._say(
                    f"The console was disconnected: {end}. Reconnecting for up to {self._settings.reconnect_seconds:g} s; Ctrl-] leaves."
                )
                self._discard_unsent()
                deadline, pause = time.monotonic() + self._settings.reconnect_seconds, FIRST_PAUSE_SECONDS
                renewed = False
            except streams.UpgradeFailed as refused:
                if refused.error.code == 401 and self._attached.is_set() and not renewed:
                    access, renewed = await self._load(), True  # it may have expired
                    continue
                if refused.error.code in FINAL or time.monotonic() >= deadline:
                    raise refused.failure from refused
                if not self._attached.is_set() and not waiting:
                    self._say(f"Waiting for {self._settings.wait_seconds:g} s; Ctrl-] leaves: {refused.error.message}")
                    waiting = True
            except streams.Unreachable as unreachable:
                if not self._attached.is_set() or time.monotonic() >= deadline:
                    raise unreachable.failure from unreachable
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _pass_on(self, connection: ClientConnection) -> streams.End:
        ends: list[streams.End] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._type(connection))
                await self._print(connection)
        except* ConnectionClosed as closed:
            ends = [streams.end_of(each) for each in closed.exceptions if isinstance(each, ConnectionClosed)]
        return ends[0] if ends else streams.End(1006, "")

    async def _print(self, connection: ClientConnection) -> None:
        overlap, deadline = Overlap(self._seen.content), asyncio.get_running_loop().time() + self._settings.replay_seconds
        try:
            while True:
                try:
                    async with asyncio.timeout_at(None if overlap.decided else deadline):
                        message = await connection.recv()
                except TimeoutError:
                    await self._write(overlap.rest())
                    continue
                if isinstance(message, bytes):  # the protocol has no text messages
                    await self._write(overlap.take(message))
        except ConnectionClosed:
            await self._write(overlap.rest())
            raise

    async def _write(self, content: bytes) -> None:
        self._seen.add(content)
        try:
            await terminal.write(self._stdout, content)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Failure(f"error: cannot write to standard output: {error.strerror}") from error

    def _discard_unsent(self) -> None:
        self._is_cut_off = not self._is_script
        if self._is_script:
            return
        self._has_discarded = bool(self._unsent) or not self._keys.empty()
        self._unsent = b""
        while not self._keys.empty():
            self._keys.get_nowait()

    async def _type(self, connection: ClientConnection) -> None:
        while True:
            if not self._unsent:
                self._unsent = await self._keys.get()
            await connection.send(self._unsent)
            self._unsent = b""
            self._keys.task_done()

    def _welcome(self, warnings: Iterable[str]) -> None:
        if self._attached.is_set():
            self._say(f"Reconnected. {DISCARDED}" if self._has_discarded else "Reconnected.")
            self._is_cut_off = self._has_discarded = False
        else:
            self._say(f"Connected to the console of {self._settings.name}. Ctrl-] leaves; press Enter for a prompt.")
        for warning in warnings:
            self._say(warning)
        self._attached.set()

    def _say(self, text: str) -> None:
        # Standard output only has the guest's bytes; the raw terminal needs CR.
        with contextlib.suppress(OSError):  # the terminal hung up
            sys.stderr.write(f"\r\n{said(text)}\r\n" if text else "\r\n")
            sys.stderr.flush()


async def attach(settings: Settings, load: Callable[[], Awaitable[Access]]) -> int:
    """Run a session on the standard streams; return 0, or 1 after printing a failure."""
    try:
        await Session(settings, load).run()
    except Failure as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0
