"""One watch: an etcd stream, reopened after every break at the last complete revision."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, suppress

from storage.etcd.connection import Connection, Endpoint
from storage.etcd.failures import translated
from storage.etcd.keys import Keys
from storage.etcd.rpc import rpc_pb2 as rpc
from storage.grpc.calls import RpcError
from storage.grpc.link import Messages
from storage.port import Batch, Change, Compacted, Unavailable

logger = logging.getLogger(__name__)

# etcd silently drops a progress request while it replays history to the watch.
ASK_AGAIN_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 2.0

_MOST_DOUBLINGS = 10
"""More would exceed the maximum, and a float after half an hour without etcd."""

_PROGRESS = rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()).SerializeToString()


def pause_seconds(failures: int) -> float:
    """Return the seconds before a watch is reopened, doubled per failure up to ``MAX_BACKOFF_SECONDS``."""
    return min(0.02 * float(2 ** min(failures, _MOST_DOUBLINGS)), MAX_BACKOFF_SECONDS)


class Progress:
    """Requests a watch's progress, one request at a time, and repeats it until etcd answers."""

    def __init__(self, send: Callable[[], None], *, asked: bool, again_seconds: float = ASK_AGAIN_SECONDS) -> None:
        self._again_seconds = again_seconds
        self._send_request = send
        self._asked = asked
        self._again: asyncio.TimerHandle | None = None
        if asked:
            self._send()

    @property
    def is_asked(self) -> bool:
        """Return whether a progress request is unanswered or waits to be sent."""
        return self._asked or self._again is not None

    def ask(self) -> None:
        """Request progress, if necessary once an earlier request is answered."""
        if self._again is None:
            self._send()
        else:
            self._asked = True

    def answered(self) -> None:
        """Stop repeating the answered request, and send a waiting one."""
        self.close()
        if self._asked:
            self._send()

    def close(self) -> None:
        """Stop repeating the request."""
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _send(self) -> None:
        self._asked = False
        # Further requests do not postpone it.
        self._again = asyncio.get_running_loop().call_later(self._again_seconds, self._send)
        self._send_request()


def batches(events: Iterable[rpc.Event], keys: Keys, position: int, *, previous: bool = True) -> Iterator[Batch]:
    """Yield a Batch of the ``events`` of each revision above ``position``; ``previous``: with previous values.

    Raises Compacted if a previous value, and so the position, is compacted.
    """
    for revision, group in itertools.groupby(events, key=lambda event: event.kv.mod_revision):
        if revision > position:
            yield Batch(revision, tuple(_change(event, keys, previous=previous) for event in group))


def _change(event: rpc.Event, keys: Keys, *, previous: bool) -> Change:
    value = event.kv
    entry = keys.entry(value) if event.type == rpc.Event.PUT else None
    key = entry.key if entry is not None else keys.outer(value.key)
    if event.HasField("prev_kv"):
        return Change(key, entry, keys.entry(event.prev_kv))
    if previous and (entry is None or value.version != 1):
        raise Compacted
    return Change(key, entry, None)


class Watch:
    """A watch of etcd that survives interruptions. Unread events stay in etcd, by HTTP/2's flow control."""

    def __init__(
        self,
        connection: Connection,
        keys: Keys,
        prefix: str,
        after: int,
        timeout_seconds: float,
        revision_now: Callable[[], Awaitable[int]],
        *,
        previous: bool = True,
    ) -> None:
        """``revision_now`` reads the store's revision, to detect a replaced history."""
        self._previous = previous
        self._connection = connection
        self._keys = keys
        self._prefix = prefix
        self._position = after
        self._timeout_seconds = timeout_seconds
        self._revision_now = revision_now
        self._messages: Messages | None = None
        self._is_abandoned = False
        self._progress: Progress | None = None
        self._asked = False

    def ask_progress(self) -> None:
        """Request a batch up to the current revision."""
        if self._progress:
            self._progress.ask()
        else:
            self._asked = True

    def abandon(self) -> None:
        """End the watch with Compacted for its reader: the store's history was replaced."""
        self._is_abandoned = True
        if self._messages:
            self._messages.cancel()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield batches until closed. Raises Compacted, or Unavailable if the store was closed."""
        failures = 0
        while True:
            try:
                async with aclosing(self._stream()) as stream:
                    async for batch in stream:
                        failures = 0
                        yield batch
            except Unavailable as error:
                if self._connection.closed:
                    raise
                if self._is_abandoned:
                    raise Compacted from error
                logger.info(
                    "A watch of etcd was interrupted; resuming",
                    extra={"prefix": self._prefix, "after": self._position, "error": str(error)},
                )
            failures += 1
            await asyncio.sleep(pause_seconds(failures))
            await self._look_back()

    async def _look_back(self) -> None:
        """Raise Compacted if the store's history was replaced during an interruption; unchecked while etcd is unavailable."""
        with suppress(Unavailable):
            await self._revision_now()
        if self._is_abandoned:
            raise Compacted

    async def _stream(self) -> AsyncGenerator[Batch, None]:
        loop = asyncio.get_running_loop()
        endpoint, link = await self._connection.ready(loop.time() + self._timeout_seconds)
        messages = self._messages = link.stream(endpoint.watch)
        messages.send(self._creation())
        progress = self._progress = Progress(lambda: messages.send(_PROGRESS), asked=self._asked)
        self._asked = False
        try:
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    response = await self._read(messages, endpoint)
            except TimeoutError:
                self._connection.failed(endpoint)
                raise Unavailable(f"watch {self._prefix}: etcd did not answer in time") from None
            events: list[rpc.Event] = []
            while True:
                if response.canceled:
                    raise self._ended(response)
                events += response.events
                if events and not response.fragment:
                    for batch in batches(events, self._keys, self._position, previous=self._previous):
                        self._position = batch.revision
                        yield batch
                    events = []
                elif not events and not response.created:
                    progress.answered()
                    if response.header.revision >= self._position:
                        self._position = response.header.revision
                        yield Batch(self._position, ())
                response = await self._read(messages, endpoint)
        finally:
            self._asked = progress.is_asked
            self._progress = self._messages = None
            progress.close()
            messages.cancel()

    def _creation(self) -> bytes:
        begin, end = self._keys.bounds(self._prefix)
        # etcd refuses exactly positions below the compacted revision.
        start = max(self._position, 1)
        create = rpc.WatchCreateRequest(key=begin, range_end=end, start_revision=start, prev_kv=self._previous, fragment=True)
        return rpc.WatchRequest(create_request=create).SerializeToString()

    async def _read(self, messages: Messages, endpoint: Endpoint) -> rpc.WatchResponse:
        try:
            return rpc.WatchResponse.FromString(await messages.read())
        except RpcError as error:
            self._connection.failed(endpoint)
            raise translated(error, f"watch {self._prefix}") from error

    def _ended(self, response: rpc.WatchResponse) -> Compacted | Unavailable:
        if response.compact_revision:
            return Compacted(response.compact_revision)
        return Unavailable(f"watch {self._prefix}: etcd cancelled it: {response.cancel_reason}")
