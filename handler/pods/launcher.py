"""A connection to a pod's virt-launcher: requests, answers, and the newest status.

Each status is complete, and virt-launcher survives connections. So one that sends too much or does not answer is disconnected.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import layout
from controller.runtime.flowcontrol import TokenBucket
from handler.pods import places
from handler.pods.limits import BUDGET_BYTES_PER_SECOND, DEFAULT, Limits
from handler.pods.process import Launcher
from launcher.protocol import codec, messages, reading

READ_BYTES: Final = 1 << 16
_SLOW: Final = (messages.Sync, messages.PrepareMigrationTarget)

MESSAGE_BYTES: Final = 8 << 10
"""Added to each message's length, because the shortest costs as much as some kilobytes of a long one."""


def budget(now: float, limits: Limits) -> TokenBucket:
    """Return the token bucket for a launcher's bytes, refilled with ``BUDGET_BYTES_PER_SECOND``, or 16 short messages."""
    return TokenBucket(limits.budget_bytes, BUDGET_BYTES_PER_SECOND, now, debt=limits.debt_bytes)


class Disconnected(Exception):
    """The connection to virt-launcher ended, or could not be made."""


class NotUnderstood(Disconnected):
    """virt-launcher supports no protocol version of this process; the text is for users."""


class LauncherRefused(Exception):
    """virt-launcher refused a request; ``status`` is its status then."""

    def __init__(self, refusal: messages.Refusal) -> None:
        super().__init__(refusal.message)
        self.reason = refusal.reason
        self.disks = refusal.disks
        self.full = refusal.full
        self.unresolved = refusal.unresolved
        self.status = refusal.status


Answer = messages.Reply | messages.Refusal | messages.Content


class Connection:
    """One connection to a launcher. ``on_status`` is called (synchronously) with each new status."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        process: Launcher,
        on_status: Callable[[messages.Status], None],
        budget: TokenBucket,
        limits: Limits = DEFAULT,
    ) -> None:
        self.process = process
        self._limits = limits
        self._budget = budget
        self._reader = reader
        self._writer = writer
        self._on_status = on_status
        self._receiver = codec.replies()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._status: messages.Status | None = None
        self._reads: frozenset[str] = frozenset()
        self._actions: frozenset[str] = frozenset()
        self.operations: frozenset[str] = frozenset()
        """Supported actions of :class:`messages.Operate`."""
        self._gone = False

    @property
    def status(self) -> messages.Status:
        """virt-launcher's newest status. Raises Disconnected before its hello."""
        if self._status is None:
            raise Disconnected("virt-launcher has not sent its hello message yet")
        return self._status

    def tells(self, what: str) -> bool:
        """Return whether this launcher, which may be older, supports this :class:`messages.Read`."""
        return what in self._reads

    def knows(self, request: type[messages.Import | messages.PauseForMigration | messages.SetPassword | messages.Execute]) -> bool:
        """Return whether this launcher, which may be older, supports a request."""
        return request.__name__ in self._actions

    async def run(self) -> None:
        """Receive messages until the connection ends; always raises Disconnected."""
        try:
            while True:
                for message in await self._receive():
                    self._take(message)
        finally:
            self._gone = True
            for future in list(self._waiting.values()):
                future.cancel()

    async def hello(self) -> None:
        """Wait for virt-launcher's hello, before :meth:`run`.

        Raises:
            Disconnected: none came.
            NotUnderstood: it has another protocol version.
        """
        try:
            async with asyncio.timeout(self._limits.hello_seconds):
                while self._status is None:
                    for message in await self._receive():
                        self._take(message)
        except TimeoutError as error:
            raise Disconnected(f"virt-launcher sent no hello message within {self._limits.hello_seconds:.0f} s") from error

    async def call(self, request: messages.Request) -> messages.Status:
        """Send a request and return the launcher's status after it; :meth:`run` must run meanwhile.

        Raises:
            LauncherRefused: virt-launcher refused it.
            Disconnected: the connection ended, or is cut without an answer in time; the request may have been carried out.
            ProtocolError: the request is too long.
        """
        pending = self.begin(request)
        try:
            async with asyncio.timeout_at(pending.deadline):
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            pending.forget()
            self.cut()
            raise Disconnected(f"{type(request).__name__}: {str(error) or 'no answer in time'}") from error
        await pending.answered()
        return self.status

    def begin(self, request: messages.Request) -> Pending:
        """Send a request, and return the Pending to wait for its answer. Raises Disconnected, or ProtocolError for too long a request."""
        if self._gone:
            raise Disconnected("the connection to virt-launcher is closed")
        number = next(self._ids)
        line = codec.encode(messages.Call(number, request))
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        self._writer.write(line)
        seconds = self._limits.start_seconds if isinstance(request, _SLOW) else self._limits.call_seconds
        return Pending(self, type(request).__name__, future, seconds)

    def cut(self) -> None:
        """Close the connection at once, and drop unsent data."""
        self._writer.transport.abort()

    async def _receive(self) -> list[messages.FromLauncher]:
        try:
            data = await self._reader.read(READ_BYTES)
            if not data:
                self._receiver.close()
                raise Disconnected("virt-launcher closed the connection")
            found = self._receiver.receive(data)
        except codec.OtherProtocol as error:
            self.cut()
            raise NotUnderstood(str(error)) from error
        except (OSError, reading.ProtocolError) as error:
            self.cut()
            raise Disconnected(f"virt-launcher: {error}") from error
        now = asyncio.get_running_loop().time()
        self._budget.spend(now, len(data) + MESSAGE_BYTES * len(found))
        if pause := self._budget.delay(now, 0):
            self.cut()
            self._take_newest(found)
            raise Disconnected(f"virt-launcher sends too many messages; virt-handler ignores them for {pause:.0f} s")
        return found

    def _take_newest(self, found: list[messages.FromLauncher]) -> None:
        if found and self._status is None:
            self._take(found[0])
        if told := [each for each in found if not isinstance(each, messages.Content)]:
            self._take(max(told, key=lambda message: message.status.revision))

    def _take(self, message: messages.FromLauncher) -> None:
        if self._status is None and not isinstance(message, messages.Hello):
            raise Disconnected("virt-launcher sent a message before its hello")
        if isinstance(message, messages.Hello):
            self._reads, self._actions, self.operations = map(frozenset, (message.reads, message.actions, message.operations))
        if not isinstance(message, messages.Content) and (self._status is None or message.status.revision > self._status.revision):
            self._status = message.status
            self._on_status(message.status)
        if isinstance(message, messages.Reply | messages.Refusal | messages.Content):
            future = self._waiting.get(message.id)
            if future is not None and not future.done():
                future.set_result(message)


class Pending:
    """The answer to a request, perhaps still to come."""

    def __init__(self, connection: Connection, what: str, future: asyncio.Future[Answer], seconds: float) -> None:
        self.connection = connection
        self.deadline = asyncio.get_running_loop().time() + seconds
        self.answered_at: float | None = None
        """In the event loop's time."""
        self._what = what
        self._future = future
        future.add_done_callback(self._note_time)

    async def answered(self, *, within: float | None = None) -> bool:
        """Wait for the answer; return False if it takes more than ``within`` seconds. None: until the deadline. May be called again.

        Raises LauncherRefused, or Disconnected if no answer came before the deadline.
        """
        left = self.deadline - asyncio.get_running_loop().time()
        try:
            await asyncio.wait((self._future,), timeout=max(0.0, left if within is None else min(within, left)))
        except asyncio.CancelledError:
            if within is None:
                self.forget()
            raise
        if not self._future.done():
            if within is not None and within < left:
                return False
            self.forget()
            self.connection.cut()
            raise Disconnected(f"{self._what}: no answer in time")
        if self._future.cancelled():
            raise Disconnected(f"{self._what}: virt-launcher closed the connection")
        answer = self._future.result()
        if isinstance(answer, messages.Refusal):
            raise LauncherRefused(answer)
        return True

    @property
    def text(self) -> str:
        """The text of a ``Read``, after :meth:`answered` returned True. Raises Disconnected for another answer."""
        answer = self._future.result()
        if not isinstance(answer, messages.Content):
            raise Disconnected(f"{self._what}: virt-launcher answered without a text")
        return answer.text

    def _note_time(self, _: object) -> None:
        self.answered_at = asyncio.get_running_loop().time()

    def forget(self) -> None:
        """Stop waiting for the answer; virt-launcher may still carry out the request."""
        self._future.cancel()


@asynccontextmanager
async def connect(
    pod_uid: str,
    on_status: Callable[[messages.Status], None],
    budget: TokenBucket,
    *,
    kubelet: Path = places.KUBELET_DIRECTORY,
    identify: Callable[[int, str], Launcher] = Launcher.of,
    limits: Limits = DEFAULT,
) -> AsyncIterator[Connection]:
    """Yield a connection to this pod's launcher, after its hello; run :meth:`Connection.run` in parallel.

    ``identify`` checks that the process with this id belongs to the pod.

    Raises:
        Disconnected: no process listens there (yet, or any more), or it sent no hello.
        NotUnderstood: it has another protocol version.
        NotOfThisPod: a process outside of this pod listens there.
    """
    try:
        reader, writer, process = await _open(pod_uid, kubelet, identify)
    except OSError as error:
        raise Disconnected(f"cannot connect to virt-launcher of pod {pod_uid}: {error}") from error
    try:
        connection = Connection(reader, writer, process, on_status, budget, limits)
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
    with descriptors.on_error(link.close):
        process = identify(places.peer_process(link), pod_uid)
    with descriptors.on_error(link.close, process.close):
        reader, writer = await asyncio.open_unix_connection(sock=link)
    return reader, writer, process
