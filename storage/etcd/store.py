"""The storage port over etcd's ``KV`` service; ``watching`` has the watches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import assert_never

from storage.etcd.connection import Connection, Endpoint, Tls
from storage.etcd.failures import is_outage, translated
from storage.etcd.keys import Keys
from storage.etcd.rpc import rpc_pb2 as rpc
from storage.etcd.watching import Watch
from storage.grpc.calls import RpcError
from storage.port import Batch, Compacted, Condition, Delete, Entry, Page, Put, RevisionMismatch, Unavailable

logger = logging.getLogger(__name__)

PAGE_LIMIT = 500  # keys per answer; larger ranges are read in pages, at one revision
AGAIN_SECONDS = 0.05
# A linearizable read without answer: no key is empty.
_NOTHING = rpc.RangeRequest(key=b"\0", keys_only=True).SerializeToString()

Method = Callable[[Endpoint], bytes]
_RANGE: Method = attrgetter("range")
_TXN: Method = attrgetter("txn")
_COMPACT: Method = attrgetter("compact")
_STATUS: Method = attrgetter("status")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the connection to etcd."""

    endpoints: tuple[str, ...]
    """URLs, ``https`` exactly if ``tls`` is given."""
    tls: Tls | None = None
    prefix: str = ""
    """Before every key, so servers can share an etcd."""
    timeout_seconds: float = 5.0
    """Per call, including the wait for a connection."""


class EtcdStorage:
    """A ``storage.port.Storage`` over etcd. Create and ``close`` it in a running event loop."""

    def __init__(self, settings: Settings) -> None:
        """Prepare; connect later.

        Raises:
            ValueError: an endpoint is invalid.
            OSError: a certificate is unreadable.
        """
        self._connection = Connection(settings.endpoints, settings.tls, time.monotonic, timeout_seconds=settings.timeout_seconds)
        self._keys = Keys(settings.prefix)
        self._timeout_seconds = settings.timeout_seconds
        self._loop = asyncio.get_running_loop()
        self._watches: set[Watch] = set()
        self._newest = 0

    async def get(self, key: str) -> Entry | None:
        """Return the entry of ``key``, or None."""
        response = await self._read(f"get {key}", rpc.RangeRequest(key=self._keys.inner(key)))
        return self._keys.entry(response.kvs[0]) if response.kvs else None

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Return a page as ``Storage.range``."""
        begin, end = self._keys.bounds(prefix, start)
        entries: list[Entry] = []
        count = 0
        if end != b"\0" and begin >= end:  # etcd takes an empty range for one key
            response = await self._read(f"range {prefix}", rpc.RangeRequest(key=begin, revision=revision, count_only=True))
            return Page((), revision or response.header.revision, more=False, count=0)
        while True:
            wanted = min(PAGE_LIMIT, limit - len(entries)) if limit else PAGE_LIMIT
            request = rpc.RangeRequest(key=begin, range_end=end, limit=wanted, revision=revision)
            response = await self._read(f"range {prefix}", request)
            count = count or response.count
            revision = revision or response.header.revision
            entries += [self._keys.entry(value) for value in response.kvs]
            if not response.more or len(entries) == limit:
                return Page(tuple(entries), revision, more=response.more, count=count)
            begin = response.kvs[-1].key + b"\0"

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        """Apply ``writes`` as ``Storage.commit``; return the new revision."""
        if len(writes) > 1 and len({write.key for write in writes}) < len(writes):
            raise ValueError("a key occurs twice in the writes of one commit")
        request = self._transaction(conditions, writes)
        # Repeated only if it certainly did not start.
        before = self._newest
        response = rpc.TxnResponse.FromString(await self._call("commit", _TXN, request, repeat=False))
        self._follow(before, response.header.revision)
        if not response.succeeded:
            raise self._mismatch(conditions, response)
        return response.header.revision

    @asynccontextmanager
    async def watch(self, prefix: str, *, after: int, previous: bool = True) -> AsyncIterator[AsyncIterator[Batch]]:
        """Watch as ``Storage.watch``, across reconnections."""
        watch = Watch(self._connection, self._keys, prefix, after, self._timeout_seconds, self.revision, previous=previous)
        self._watches.add(watch)
        try:
            async with aclosing(watch.batches()) as batches:
                yield batches
        finally:
            self._watches.discard(watch)

    async def request_progress(self) -> None:
        """Request progress of every watch."""
        if self._connection.closed:
            raise Unavailable("the store is closed")
        for watch in self._watches:
            watch.ask_progress()

    async def revision(self) -> int:
        """Return the store's revision, by an empty linearizable read."""
        before = self._newest
        answer = await self._call("read the revision", _RANGE, _NOTHING, repeat=True)
        revision = rpc.RangeResponse.FromString(answer).header.revision
        self._follow(before, revision)
        return revision

    async def compact(self, revision: int) -> None:
        """Drop history below ``revision``."""
        request = rpc.CompactionRequest(revision=revision).SerializeToString()
        with suppress(Compacted):
            await self._call(f"compact to {revision}", _COMPACT, request, repeat=True)

    async def size(self) -> int:
        """Return the bytes of the answering member's database file; not in the port. Raises Unavailable."""
        answer = await self._call("read the status", _STATUS, b"", repeat=True)
        return rpc.StatusResponse.FromString(answer).dbSize

    async def close(self) -> None:
        """Close all connections; running calls fail."""
        await self._connection.close()

    async def _read(self, doing: str, request: rpc.RangeRequest) -> rpc.RangeResponse:
        return rpc.RangeResponse.FromString(await self._call(doing, _RANGE, request.SerializeToString(), repeat=True))

    async def _call(self, doing: str, method: Method, request: bytes, *, repeat: bool) -> bytes:
        until = self._loop.time() + self._timeout_seconds
        while True:
            endpoint = self._connection.usable()
            if endpoint is not None and endpoint.link is not None:
                link = endpoint.link
            else:
                endpoint, link = await self._connection.ready(until)
            try:
                return await link.unary(method(endpoint), request, until)
            except RpcError as error:
                outage = is_outage(error)
                if outage:
                    self._connection.failed(endpoint)
                again = outage and (repeat or not error.processed)
                if not again or self._loop.time() + AGAIN_SECONDS >= until or self._connection.closed:
                    raise translated(error, doing) from error
            await asyncio.sleep(AGAIN_SECONDS)

    def _follow(self, before: int, revision: int) -> None:
        """End all watches if ``revision``, an answer's, is below ``before``, the highest when the call began: etcd was restored."""
        if revision > self._newest:
            self._newest = revision
        elif revision < before and self._newest == before:
            logger.error(
                "etcd's revision went back, as after a restore from a backup; reading all objects again",
                extra={"revision": revision, "before": before},
            )
            self._newest = revision
            for watch in self._watches:
                watch.abandon()

    def _transaction(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> bytes:
        # Field by field: keyword arguments cost twice as much.
        request = rpc.TxnRequest()
        for condition in conditions:
            key = self._keys.inner(condition.key)
            compare = request.compare.add()  # EQUAL is the default
            compare.key = key
            compare.target = rpc.Compare.MOD
            compare.mod_revision = condition.mod_revision
            read = request.failure.add().request_range
            read.key = key
            if condition.end:
                compare.range_end = read.range_end = self._keys.inner(condition.end)
                read.limit = 1
        for write in writes:
            key = self._keys.inner(write.key)
            match write:
                case Put():
                    put = request.success.add().request_put
                    put.key = key
                    put.value = write.value
                case Delete():
                    request.success.add().request_delete_range.key = key
                case _:
                    assert_never(write)
        return request.SerializeToString()

    def _mismatch(self, conditions: Sequence[Condition], response: rpc.TxnResponse) -> RevisionMismatch:
        for condition, each in zip(conditions, response.responses, strict=True):
            values = each.response_range.kvs
            if (values[0].mod_revision if values else 0) != condition.mod_revision:
                return RevisionMismatch(condition.key, self._keys.entry(values[0]) if values else None)
        raise AssertionError("etcd rejected a commit although all its conditions hold")
