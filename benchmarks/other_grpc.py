"""Storage calls through other gRPC libraries, without reconnection."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import urlsplit

import grpc
import grpc.aio
from grpclib.client import Channel, StreamStreamMethod, UnaryUnaryMethod
from grpclib.config import Configuration

from storage.etcd.connection import Tls
from storage.etcd.keys import Keys
from storage.etcd.rpc import rpc_pb2 as rpc
from storage.etcd.watching import batches
from storage.port import Batch, Condition, Entry, Page, Put

METADATA = (("hasleader", "true"),)
RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
WATCH = "/etcdserverpb.Watch/Watch"


class _Storage:
    """The measured part of ``storage.port.Storage`` over etcd."""

    _range: Callable[..., Awaitable[rpc.RangeResponse]]
    _txn: Callable[..., Awaitable[rpc.TxnResponse]]

    def __init__(self) -> None:
        self._keys = Keys("")

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put]) -> int:
        """Apply ``writes``; return the new revision. AssertionError if a condition fails."""
        keys = [self._keys.inner(condition.key) for condition in conditions]
        request = rpc.TxnRequest(
            compare=[
                rpc.Compare(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=condition.mod_revision)
                for key, condition in zip(keys, conditions, strict=True)
            ],
            success=[rpc.RequestOp(request_put=rpc.PutRequest(key=self._keys.inner(each.key), value=each.value)) for each in writes],
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=key)) for key in keys],
        )
        response = await self._txn(request, timeout=5.0, metadata=METADATA)
        assert response.succeeded
        return int(response.header.revision)

    async def get(self, key: str) -> Entry | None:
        response = await self._range(rpc.RangeRequest(key=self._keys.inner(key)), timeout=5.0, metadata=METADATA)
        return self._keys.entry(response.kvs[0]) if response.kvs else None

    async def revision(self) -> int:
        response = await self._range(rpc.RangeRequest(key=b"\0", keys_only=True), timeout=5.0, metadata=METADATA)
        return int(response.header.revision)

    async def range(self, prefix: str) -> Page:
        begin, end = self._keys.bounds(prefix)
        entries: list[Entry] = []
        revision = 0
        while True:
            request = rpc.RangeRequest(key=begin, range_end=end, limit=500, revision=revision)
            response = await self._range(request, timeout=5.0, metadata=METADATA)
            revision = revision or response.header.revision
            entries += [self._keys.entry(value) for value in response.kvs]
            if not response.more:
                return Page(tuple(entries), revision, more=False, count=len(entries))
            begin = response.kvs[-1].key + b"\0"

    @asynccontextmanager
    async def watch(self, prefix: str, *, after: int) -> AsyncIterator[AsyncIterator[Batch]]:
        begin, end = self._keys.bounds(prefix)
        create = rpc.WatchCreateRequest(key=begin, range_end=end, start_revision=after, prev_kv=True, fragment=True)

        async def follow(responses: AsyncIterator[rpc.WatchResponse]) -> AsyncIterator[Batch]:
            events: list[rpc.Event] = []
            async for response in responses:
                events += response.events
                if not response.fragment:
                    for batch in batches(events, self._keys, after):
                        yield batch
                    events = []

        async with self._responses(rpc.WatchRequest(create_request=create)) as responses:
            yield follow(responses)

    def _responses(self, request: rpc.WatchRequest) -> AbstractAsyncContextManager[AsyncIterator[rpc.WatchResponse]]:
        raise NotImplementedError


class GrpcioStorage(_Storage):
    """The measured storage with grpcio, gRPC's own library."""

    def __init__(self, endpoint: str, tls: Tls | None) -> None:
        super().__init__()
        options = (("grpc.max_receive_message_length", 1 << 30), ("grpc.ssl_target_name_override", tls.server_name if tls else ""))
        target = urlsplit(endpoint).netloc
        if tls:
            credentials = grpc.ssl_channel_credentials(tls.ca_file.read_bytes(), tls.key_file.read_bytes(), tls.cert_file.read_bytes())
            self._channel = grpc.aio.secure_channel(target, credentials, options)
        else:
            self._channel = grpc.aio.insecure_channel(target, options[:1])
        self._range = self._channel.unary_unary(RANGE, rpc.RangeRequest.SerializeToString, rpc.RangeResponse.FromString)
        self._txn = self._channel.unary_unary(TXN, rpc.TxnRequest.SerializeToString, rpc.TxnResponse.FromString)
        self._watch = self._channel.stream_stream(WATCH, rpc.WatchRequest.SerializeToString, rpc.WatchResponse.FromString)

    @asynccontextmanager
    async def _responses(self, request: rpc.WatchRequest) -> AsyncIterator[AsyncIterator[rpc.WatchResponse]]:
        async def requests() -> AsyncIterator[rpc.WatchRequest]:
            yield request
            await asyncio.Event().wait()

        call = self._watch(requests(), metadata=METADATA)
        try:
            yield aiter(call)
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close(None)


class GrpclibStorage(_Storage):
    """The measured storage with grpclib, on h2."""

    def __init__(self, endpoint: str, tls: Tls | None) -> None:
        super().__init__()
        url = urlsplit(endpoint)
        config = Configuration(ssl_target_name_override=tls.server_name if tls else None)
        self._channel = Channel(url.hostname, url.port, ssl=_context(tls), config=config)
        self._range = UnaryUnaryMethod(self._channel, RANGE, rpc.RangeRequest, rpc.RangeResponse)
        self._txn = UnaryUnaryMethod(self._channel, TXN, rpc.TxnRequest, rpc.TxnResponse)
        self._watch = StreamStreamMethod(self._channel, WATCH, rpc.WatchRequest, rpc.WatchResponse)

    @asynccontextmanager
    async def _responses(self, request: rpc.WatchRequest) -> AsyncIterator[AsyncIterator[rpc.WatchResponse]]:
        async with self._watch.open(metadata=METADATA) as stream:
            await stream.send_message(request)
            yield aiter(stream)
            await stream.cancel()

    async def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def _context(tls: Tls | None) -> ssl.SSLContext | None:
    return tls.context() if tls else None
