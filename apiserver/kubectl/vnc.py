"""``kubectl virt vnc``: the screen of a guest in a viewer of this machine, or on a port of loopback for one.

The port is open to loopback alone. Each connection of a viewer gets a websocket of its own; the first is opened before the viewer
starts, so that a machine that is absent or off is an error message here and not an empty window. When the right to the screen is withdrawn,
all of it ends.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from apiserver.kubectl import streams
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure, describe

ADDRESS: Final = "127.0.0.1"
CHUNK_BYTES: Final = 64 << 10
VIEWER_SECONDS: Final = 2.0
"""For a viewer that is asked to end."""
VIEWERS: Final = {
    "remote-viewer": ("vnc://{address}:{port}",),
    "vncviewer": ("{address}::{port}",),  # TigerVNC, TightVNC and RealVNC read two colons as a port
    "vinagre": ("vnc://{address}:{port}",),
    "gvncviewer": ("{address}::{port}",),
}
"""Programs to look for on PATH, in order, with their arguments."""


def viewer(address: str, port: int, which: Callable[[str], str | None] = shutil.which) -> tuple[str, ...] | None:
    """Return the command of the first viewer on PATH; None when there is none."""
    for program, arguments in VIEWERS.items():
        if found := which(program):
            return (found, *(each.format(address=address, port=port) for each in arguments))
    return None


class Proxy:
    """Viewers on one side, websockets on the other."""

    def __init__(self, name: str, load: Callable[[], Awaitable[Access]]) -> None:
        self._name = name
        self._load = load
        self._first: ClientConnection | None = None
        self._refused: asyncio.Queue[streams.End] = asyncio.Queue()
        """The end of a connection whose right was withdrawn."""

    async def run(self, *, port: int, proxy_only: bool) -> None:
        """Serve until the viewer ends, or with ``proxy_only`` until cancelled.

        Raises:
            Failure: the screen cannot be opened, the port is taken, there is no viewer, or the right to the screen was withdrawn.
        """
        async with AsyncExitStack() as stack:
            try:
                self._first = await stack.enter_async_context(streams.opened(await self._load(), self._name, "vnc"))
            except (streams.Refused, streams.Unreachable) as error:
                raise error.failure from error
            _warn(self._first)
            try:
                server = await asyncio.start_server(self._serve, ADDRESS, port)
            except OSError as error:
                raise Failure(f"error: listen on {ADDRESS}:{port}: {describe(error)}") from error
            stack.push_async_callback(_closed, server)
            port = server.sockets[0].getsockname()[1]
            if proxy_only:
                print(json.dumps({"port": port}), flush=True)
                await self._lost()  # serve_forever would wait for every viewer to leave (since Python 3.12)
            await self._view_until_lost(port)

    async def _lost(self) -> None:
        """Wait until the right to the screen is withdrawn.

        Raises:
            Failure: it was.
        """
        end = await self._refused.get()
        raise Failure(f"error: the screen of {self._name} was closed: {end}")

    async def _view_until_lost(self, port: int) -> None:
        failures: list[Failure] = []
        try:
            async with asyncio.TaskGroup() as group:
                lost = group.create_task(self._lost())
                await self._view(port)
                lost.cancel()
        except* Failure as group_of_failures:
            failures += [each for each in group_of_failures.exceptions if isinstance(each, Failure)]
        if failures:
            raise failures[0]

    async def _view(self, port: int) -> None:
        command = viewer(ADDRESS, port)
        if command is None:
            raise Failure(f"error: none of {', '.join(VIEWERS)} is on PATH: install one, or use --proxy-only and your own viewer")
        try:
            process = await asyncio.create_subprocess_exec(*command)
        except OSError as error:
            raise Failure(f"error: start {command[0]}: {error.strerror}") from error
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    async with asyncio.timeout(VIEWER_SECONDS):
                        await process.wait()
                except TimeoutError:
                    process.kill()
        if code:
            raise Failure(f"error: {command[0]} ended with code {code}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a viewer. Its end, or the websocket's, ends both."""
        try:
            first, self._first = self._first, None
            if first is not None:
                try:
                    self._ended(await _copy(first, reader, writer))
                finally:
                    await first.close()
                return
            async with streams.opened(await self._load(), self._name, "vnc") as connection:
                _warn(connection)
                self._ended(await _copy(connection, reader, writer))
        except (streams.Refused, streams.Unreachable, Failure) as error:
            sys.stderr.write(f"{error}\n")
        finally:
            writer.close()

    def _ended(self, end: streams.End | None) -> None:
        """Say why a connection was cut off, or end everything."""
        if end is None or end.wanted:
            return
        if end.refused:
            self._refused.put_nowait(end)
        else:
            sys.stderr.write(f"the screen was cut off: {end}\n")


async def _copy(connection: ClientConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> streams.End | None:
    """Copy both ways until one side ends; return why the websocket was cut off, None: it was not."""
    ends: list[streams.End] = []

    async def to_guest() -> None:
        while content := await reader.read(CHUNK_BYTES):
            await connection.send(content)
        await connection.close()

    async def to_viewer() -> None:
        async for message in connection:
            if isinstance(message, bytes):
                writer.write(message)
                await writer.drain()
        writer.close()

    try:
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(to_guest())
            await to_viewer()
            sending.cancel()
    except* (ConnectionClosed, OSError) as ended:
        ends = [streams.end_of(each) for each in ended.exceptions if isinstance(each, ConnectionClosed)]
    return ends[0] if ends else None


def _warn(connection: ClientConnection) -> None:
    sys.stderr.write("".join(f"{each}\n" for each in streams.warnings_of(connection)))


async def _closed(server: asyncio.Server) -> None:
    server.close()


async def show(name: str, load: Callable[[], Awaitable[Access]], *, port: int, proxy_only: bool) -> int:
    """Run the command; return its exit code."""
    try:
        await Proxy(name, load).run(port=port, proxy_only=proxy_only)
    except Failure as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0
