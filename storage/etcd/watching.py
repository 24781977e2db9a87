"""One watch: a stream of etcd's that is opened again wherever it breaks, after the last revision that it was complete to."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Self

import grpc
import grpc.aio

from storage.etcd.connection import Connection, Endpoint
from storage.etcd.failures import closing_is_unavailable, translated
from storage.etcd.keys import Keys
from storage.etcd.rpc import rpc_pb2 as rpc
from storage.port import Batch, Change, Compacted, Unavailable

logger = logging.getLogger(__name__)

# etcd drops a progress request while it is still replaying history to the watch, without a word.
ASK_AGAIN_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 2.0
# With it, a member that is cut off from its leader ends our streams, instead of keeping them open and silent.
REQUIRE_LEADER = (("hasleader", "true"),)

_PROGRESS = rpc.WatchRequest(progress_request=rpc.WatchProgressRequest())


class Requests:
    """What the stream sends: its creation, then a progress request when somebody asked, one at a time."""

    def __init__(self, create: rpc.WatchRequest, *, asked: bool) -> None:
        self._create: rpc.WatchRequest | None = create
        self._wake = asyncio.Event()
        self._asked = asked
        self._sent = False
        self._again_at = 0.0  # counted from the sending: those who ask meanwhile do not put it off
        self._closed = False

    @property
    def is_asked(self) -> bool:
        """Say whether somebody asked for progress and has no answer."""
        return self._asked or self._sent

    def ask(self) -> None:
        """Ask for progress."""
        self._asked = True
        self._wake.set()

    def answered(self) -> None:
        """Progress came."""
        self._sent = False
        self._wake.set()

    def close(self) -> None:
        """End the sending side."""
        self._closed = True
        self._wake.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> rpc.WatchRequest:
        """Return the next request to send."""
        if self._create is not None:
            create, self._create = self._create, None
            return create
        while not self._closed:
            if self._asked and not self._sent:
                return self._send()
            self._wake.clear()
            try:
                async with asyncio.timeout_at(self._again_at if self._sent else None):
                    await self._wake.wait()
            except TimeoutError:
                return self._send()
        raise StopAsyncIteration

    def _send(self) -> rpc.WatchRequest:
        self._asked = False
        self._sent = True
        self._again_at = asyncio.get_running_loop().time() + ASK_AGAIN_SECONDS
        return _PROGRESS


def batches(events: Iterable[rpc.Event], keys: Keys, position: int) -> Iterator[Batch]:
    """Return the events above ``position``, one batch a revision.

    Raises:
        Compacted: what a key was before is gone, so the position of the watch is.
    """
    for revision, group in itertools.groupby(events, key=lambda event: event.kv.mod_revision):
        if revision > position:
            yield Batch(revision, tuple(_change(event, keys) for event in group))


def _change(event: rpc.Event, keys: Keys) -> Change:
    entry = keys.entry(event.kv) if event.type == rpc.Event.PUT else None
    if event.HasField("prev_kv"):
        return Change(keys.outer(event.kv.key), entry, keys.entry(event.prev_kv))
    if event.type != rpc.Event.PUT or event.kv.version != 1:
        raise Compacted
    return Change(keys.outer(event.kv.key), entry, None)


Call = grpc.aio.StreamStreamCall[rpc.WatchRequest, rpc.WatchResponse]


class Watch:
    """See ``Storage.watch``. Nothing is buffered here: what is not read stays in etcd, held back by HTTP/2's flow control."""

    def __init__(self, connection: Connection, keys: Keys, prefix: str, after: int, timeout_seconds: float) -> None:
        self._connection = connection
        self._keys = keys
        self._prefix = prefix
        self._position = after
        self._timeout_seconds = timeout_seconds
        self._requests: Requests | None = None
        self._asked = False

    def ask_progress(self) -> None:
        """Ask for a batch up to the present revision."""
        if self._requests:
            self._requests.ask()
        else:
            self._asked = True

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield batches until closed.

        Raises:
            Compacted: the position is gone.
            Unavailable: the store was closed.
        """
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
                logger.info("A watch of etcd broke; resuming", extra={"prefix": self._prefix, "after": self._position, "error": str(error)})
            failures += 1
            await asyncio.sleep(min(0.02 * 2**failures, MAX_BACKOFF_SECONDS))

    async def _stream(self) -> AsyncGenerator[Batch, None]:
        loop = asyncio.get_running_loop()
        endpoint = await self._connection.ready(loop.time() + self._timeout_seconds)
        requests = self._requests = Requests(self._creation(), asked=self._asked)
        call = endpoint.watch(requests, metadata=REQUIRE_LEADER)
        try:
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    response = await self._read(call, endpoint)
            except TimeoutError:
                self._connection.failed(endpoint)
                raise Unavailable(f"watch {self._prefix}: etcd did not answer in time") from None
            events: list[rpc.Event] = []
            while True:
                if response.canceled:
                    raise self._ended(response)
                events += response.events
                if events and not response.fragment:
                    for batch in batches(events, self._keys, self._position):
                        self._position = batch.revision
                        yield batch
                    events = []
                elif not events and not response.created:
                    requests.answered()
                    if response.header.revision >= self._position:
                        self._position = response.header.revision
                        yield Batch(self._position, ())
                response = await self._read(call, endpoint)
        finally:
            self._asked = requests.is_asked
            self._requests = None
            requests.close()
            call.cancel()

    def _creation(self) -> rpc.WatchRequest:
        begin, end = self._keys.bounds(self._prefix)
        # From the position itself, not from the revision after it: etcd then refuses exactly the positions below the compacted
        # revision. What it repeats of that revision is dropped.
        start = max(self._position, 1)
        create = rpc.WatchCreateRequest(key=begin, range_end=end, start_revision=start, prev_kv=True, fragment=True)
        return rpc.WatchRequest(create_request=create)

    async def _read(self, call: Call, endpoint: Endpoint) -> rpc.WatchResponse:
        doing = f"watch {self._prefix}"
        try:
            with closing_is_unavailable(doing):
                response = await call.read()
        except grpc.aio.AioRpcError as error:
            self._connection.failed(endpoint)
            raise translated(error, doing) from error
        if not isinstance(response, rpc.WatchResponse):  # the stream's end
            raise Unavailable(f"{doing}: etcd ended the stream")
        return response

    def _ended(self, response: rpc.WatchResponse) -> Compacted | Unavailable:
        if response.compact_revision:
            return Compacted(response.compact_revision)
        return Unavailable(f"watch {self._prefix}: etcd cancelled it: {response.cancel_reason}")
