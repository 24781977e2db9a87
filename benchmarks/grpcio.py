"""Storage calls through gRPC's own library, for comparison, without reconnection."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import grpc
import grpc.aio

from storage.etcd.connection import Tls
from storage.etcd.keys import Keys
from storage.etcd.rpc import rpc_pb2 as rpc
from storage.etcd.watching import batches
from storage.port import Batch, Condition, Entry, Page, Put

METADATA = (("hasleader", "true"),)


class GrpcioStorage:
    """The measured part of the port."""

    def __init__(self, endpoint: str, tls: Tls | None) -> None:
        options = (("grpc.max_receive_message_length", 1 << 30), ("grpc.ssl_target_name_override", tls.server_name if tls else ""))
        target = urlsplit(endpoint).netloc
        if tls:
            credentials = grpc.ssl_channel_credentials(tls.ca_file.read_bytes(), tls.key_file.read_bytes(), tls.cert_file.read_bytes())
            self.channel = grpc.aio.secure_channel(target, credentials, options)
        else:
            self.channel = grpc.aio.insecure_channel(target, options[:1])
        kv = "/etcdserverpb.KV/"
        self._range = self.channel.unary_unary(f"{kv}Range", rpc.RangeRequest.SerializeToString, rpc.RangeResponse.FromString)
        self._txn = self.channel.unary_unary(f"{kv}Txn", rpc.TxnRequest.SerializeToString, rpc.TxnResponse.FromString)
        self._watch = self.channel.stream_stream(
            "/etcdserverpb.Watch/Watch", rpc.WatchRequest.SerializeToString, rpc.WatchResponse.FromString
        )  # fmt: skip
        self._keys = Keys("")

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put]) -> int:
        """See the port."""
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
        """See the port."""
        response = await self._range(rpc.RangeRequest(key=self._keys.inner(key)), timeout=5.0, metadata=METADATA)
        return self._keys.entry(response.kvs[0]) if response.kvs else None

    async def revision(self) -> int:
        """See the port."""
        response = await self._range(rpc.RangeRequest(key=b"\0", keys_only=True), timeout=5.0, metadata=METADATA)
        return int(response.header.revision)

    async def range(self, prefix: str) -> Page:
        """See the port."""
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
        """See the port."""
        begin, end = self._keys.bounds(prefix)
        create = rpc.WatchCreateRequest(key=begin, range_end=end, start_revision=after, prev_kv=True, fragment=True)

        async def requests() -> AsyncIterator[rpc.WatchRequest]:
            yield rpc.WatchRequest(create_request=create)
            await asyncio.Event().wait()

        call = self._watch(requests(), metadata=METADATA)

        async def follow() -> AsyncIterator[Batch]:
            events: list[rpc.Event] = []
            while True:
                response = await call.read()
                assert isinstance(response, rpc.WatchResponse)
                events += response.events
                if not response.fragment:
                    for batch in batches(events, self._keys, after):
                        yield batch
                    events = []

        try:
            yield follow()
        finally:
            call.cancel()

    async def close(self) -> None:
        """See the port."""
        await self.channel.close(None)
