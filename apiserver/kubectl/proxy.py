"""Serve a machine's stream on a loopback port, for a local program.

The first websocket opens before the program starts, so the plugin reports the machine's errors. A withdrawn right
ends everything.

The kubeconfig is loaded again when its credentials are rejected: by a 401, or by a failed connection from a server that
requires a client certificate.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import ClassVar, Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from apiserver.apis.virt.places.streams import Stream
from apiserver.kubectl import streams
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure, describe

ADDRESS: Final = "127.0.0.1"
CHUNK_BYTES: Final = 64 << 10
PROGRAM_SECONDS: Final = 2.0
"""After the request."""


class Proxy:
    """Serves a machine's stream on a local port: each connection of a program gets its own websocket."""

    stream: ClassVar[Stream]
    what: str
    """In messages: ``the … of testvm was closed``."""
    ends_by_empty: ClassVar[bool] = False
    """An empty message says that the program sends no more."""

    def __init__(self, name: str, load: Callable[[], Awaitable[Access]]) -> None:
        self._name = name
        self._load = load
        self._loading = asyncio.Lock()
        self._access: Access | None = None
        """With accepted credentials; None if unknown."""
        self._first: ClientConnection | None = None
        self._refused: asyncio.Queue[streams.End] = asyncio.Queue()
        """Ends after a withdrawn right."""

    def opened(self, access: Access) -> AbstractAsyncContextManager[ClientConnection]:
        """Return a context manager that opens a websocket to the stream."""
        return streams.opened(access, self._name, self.stream)

    async def serve(self, port: int, command: Callable[[int], tuple[str, ...]] | None) -> None:
        """Serve connections on a loopback ``port`` (0: any) until the program ends; without a program, until cancelled.

        ``command`` returns the program's command line for the port; None: print the port. Raises Failure.
        """
        async with AsyncExitStack() as stack:
            try:
                self._access = await self._load()
                self._first = await stack.enter_async_context(self.opened(self._access))
            except (streams.UpgradeFailed, streams.Unreachable) as error:
                raise error.failure from error
            _warn(self._first)
            try:
                server = await asyncio.start_server(self.serve_one, ADDRESS, port)
            except OSError as error:
                raise Failure(f"error: cannot listen on {ADDRESS}:{port}: {describe(error)}") from error
            stack.push_async_callback(_closed, server)
            port = server.sockets[0].getsockname()[1]
            if command is None:
                print(json.dumps({"port": port}), flush=True)
                await self.lost()  # since Python 3.12, serve_forever waits for every client
            else:
                await self._run_until_lost(command(port))

    async def lost(self) -> None:
        """Wait until the user loses the right to the stream; then raise Failure."""
        end = await self._refused.get()
        raise Failure(f"error: the {self.what} of {self._name} was closed: {end}")

    async def _run_until_lost(self, command: tuple[str, ...]) -> None:
        failures: list[Failure] = []
        try:
            async with asyncio.TaskGroup() as group:
                lost = group.create_task(self.lost())
                await _run(command)
                lost.cancel()
        except* Failure as group_of_failures:
            failures += [each for each in group_of_failures.exceptions if isinstance(each, Failure)]
        if failures:
            raise failures[0]

    async def serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a program's connection until it or the websocket ends; print why a websocket could not be opened."""
        try:
            first, self._first = self._first, None
            if first is not None:
                try:
                    self.ended(await self._copy(first, reader, writer))
                finally:
                    await first.close()
                return
            async with self.opened_again() as connection:
                _warn(connection)
                self.ended(await self._copy(connection, reader, writer))
        except (streams.UpgradeFailed, streams.Unreachable, Failure) as error:
            sys.stderr.write(f"{error}\n")
        finally:
            writer.close()

    @asynccontextmanager
    async def opened_again(self) -> AsyncIterator[ClientConnection]:
        """Yield an open websocket; after a 401, try once more with new credentials. Raises UpgradeFailed, Unreachable, Failure."""
        async with AsyncExitStack() as stack:
            access = await self._loaded()
            try:
                connection = await stack.enter_async_context(self.opened(access))
            except streams.UpgradeFailed as refused:
                if refused.error.code != 401:
                    raise
                connection = await stack.enter_async_context(self.opened(await self._loaded(worn=access)))
            except streams.Unreachable:
                if self._access is access:
                    self._access = None
                raise
            yield connection

    async def _loaded(self, worn: Access | None = None) -> Access:
        """Return the last accepted Access; load another if there is none, or a server refused it (``worn``)."""
        async with self._loading:
            if self._access is worn or self._access is None:
                self._access = await self._load()
            return self._access

    async def _copy(self, connection: ClientConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> streams.End | None:
        ends: list[streams.End] = []

        async def to_guest() -> None:
            while content := await reader.read(CHUNK_BYTES):
                await connection.send(content)
            await (connection.send(b"") if self.ends_by_empty else connection.close())

        async def to_program() -> None:
            async for message in connection:
                if isinstance(message, bytes):
                    writer.write(message)
                    await writer.drain()
            writer.close()

        try:
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(to_guest())
                await to_program()
                sending.cancel()
        except* (ConnectionClosed, OSError) as ended:
            ends = [streams.end_of(each) for each in ended.exceptions if isinstance(each, ConnectionClosed)]
        return ends[0] if ends else None

    def ended(self, end: streams.End | None) -> None:
        """Print why a connection was cut off, if that was not wanted; after a withdrawn right, :meth:`lost` raises instead."""
        if end is None or end.wanted:
            return
        if end.refused:
            self._refused.put_nowait(end)
        else:
            sys.stderr.write(f"the {self.what} was disconnected: {end}\n")


async def _run(command: tuple[str, ...]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(*command)
    except OSError as error:
        raise Failure(f"error: cannot start {command[0]}: {error.strerror}") from error
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(PROGRAM_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
    if code:
        raise Failure(f"error: {command[0]} ended with code {code}")


def _warn(connection: ClientConnection) -> None:
    sys.stderr.write("".join(f"{each}\n" for each in streams.warnings_of(connection)))


async def _closed(server: asyncio.Server) -> None:
    server.close()
