"""A connection to virt-launcher of one pod: requests, answers, and the newest status.

virt-launcher outlives connections and says everything in each status, so a lost connection loses nothing: open another one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from apiserver.apis.virt import layout
from handler.pods import places
from handler.pods.process import Launcher
from launcher.protocol import codec, messages

READ_BYTES: Final = 1 << 16
HELLO_SECONDS: Final = 10.0
CALL_SECONDS: Final = 120.0
"""Starting a domain on a loaded node takes seconds; libvirt gives up on most things after 30."""


class Disconnected(Exception):
    """The connection to virt-launcher is gone, or could not be made."""


class Refused(Exception):
    """Virt-launcher answered that it did not do it."""

    def __init__(self, refusal: messages.Refusal) -> None:
        super().__init__(refusal.message)
        self.reason = refusal.reason
        self.disks = refusal.disks
        self.status = refusal.status


class Connection:
    """One connection. :attr:`status` is the newest there is; ``on_status`` is called (synchronously) whenever it changes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, process: Launcher, on_status: Callable[[messages.Status], None]
    ) -> None:
        self.process = process
        self._reader = reader
        self._writer = writer
        self._on_status = on_status
        self._receiver = codec.replies()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[messages.Reply | messages.Refusal]] = {}
        self._status: messages.Status | None = None
        self._gone = False

    @property
    def status(self) -> messages.Status:
        """The newest status."""
        if self._status is None:
            raise Disconnected("virt-launcher has not said hello")
        return self._status

    async def run(self) -> None:
        """Take in what virt-launcher says, until it hangs up.

        Raises:
            Disconnected: always, at the end.
        """
        try:
            while True:
                for message in await self._receive():
                    self._take(message)
        finally:
            self._gone = True
            for future in self._waiting.values():
                future.cancel()

    async def hello(self) -> None:
        """Wait for virt-launcher's first words.

        Raises:
            Disconnected: none came, or it speaks another version of the wire.
        """
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                while self._status is None:
                    for message in await self._receive():
                        self._take(message)
        except TimeoutError as error:
            raise Disconnected(f"virt-launcher said nothing for {HELLO_SECONDS:.0f} s") from error

    async def call(self, request: messages.Request) -> messages.Status:
        """Send a request and return the status after it; :meth:`run` must run meanwhile.

        Raises:
            Refused: virt-launcher says that it did not do it.
            Disconnected: no answer came; it may or may not have been done.
        """
        if self._gone:
            raise Disconnected("the connection to virt-launcher is gone")
        number = next(self._ids)
        future: asyncio.Future[messages.Reply | messages.Refusal] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(CALL_SECONDS):
                self._writer.write(codec.encode(messages.Call(number, request)))
                await self._writer.drain()
                await asyncio.wait((future,))
        except (OSError, TimeoutError) as error:
            raise Disconnected(f"{type(request).__name__}: {str(error) or 'no answer in time'}") from error
        finally:
            del self._waiting[number]
        if future.cancelled():
            raise Disconnected(f"{type(request).__name__}: virt-launcher hung up")
        answer = future.result()
        if isinstance(answer, messages.Refusal):
            raise Refused(answer)
        return answer.status

    async def _receive(self) -> list[messages.FromLauncher]:
        try:
            data = await self._reader.read(READ_BYTES)
            if not data:
                self._receiver.close()
                raise Disconnected("virt-launcher hung up")
            return self._receiver.receive(data)
        except (OSError, codec.ProtocolError) as error:
            raise Disconnected(f"virt-launcher: {error}") from error

    def _take(self, message: messages.FromLauncher) -> None:
        if isinstance(message, messages.Hello) and message.protocol != messages.PROTOCOL:
            raise Disconnected(f"virt-launcher {message.launcher_version} speaks version {message.protocol} of the wire")
        if self._status is None and not isinstance(message, messages.Hello):
            raise Disconnected("virt-launcher spoke before its hello")
        if self._status is None or message.status.revision > self._status.revision:
            self._status = message.status
            self._on_status(message.status)
        if isinstance(message, messages.Reply | messages.Refusal):
            future = self._waiting.get(message.id)
            if future is not None and not future.done():
                future.set_result(message)


@asynccontextmanager
async def connect(
    pod_uid: str,
    on_status: Callable[[messages.Status], None],
    *,
    kubelet: Path = places.KUBELET_DIRECTORY,
    identify: Callable[[int, str], Launcher] = Launcher.of,
) -> AsyncIterator[Connection]:
    """Yield a connection to the launcher of this pod that has said hello; run :meth:`Connection.run` beside using it.

    ``identify`` takes the process id of who listens and the pod's uid, and vouches for it.

    Raises:
        Disconnected: nobody listens there (yet, or any more).
        NotOfThisPod: somebody does who is not of this pod.
    """
    try:
        reader, writer, process = await _open(pod_uid, kubelet, identify)
    except OSError as error:
        raise Disconnected(f"connect to the launcher of pod {pod_uid}: {error}") from error
    try:
        connection = Connection(reader, writer, process, on_status)
        await connection.hello()
        yield connection
    finally:
        writer.close()
        process.close()


async def _open(
    pod_uid: str, kubelet: Path, identify: Callable[[int, str], Launcher]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Launcher]:
    with places.run_directory(pod_uid, kubelet) as directory:
        link = places.connect(directory, layout.LAUNCHER_SOCKET)
    try:
        process = identify(places.peer_process(link), pod_uid)
    except BaseException:
        link.close()
        raise
    try:
        reader, writer = await asyncio.open_unix_connection(sock=link)
    except BaseException:
        link.close()
        process.close()
        raise
    return reader, writer, process
