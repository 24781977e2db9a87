"""Channels to etcd's endpoints: which one to use now, with which certificates."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import grpc
import grpc.aio
from google.protobuf.message import Message

from storage.etcd.rpc import rpc_pb2 as rpc
from storage.port import Unavailable

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 1024 * 1024 * 1024  # more than a page of the largest values that etcd takes by default (500 of 1.5 MiB)
CHECK_FILES_SECONDS = 5.0
POLL_SECONDS = 0.02  # while there is no connection; gRPC itself reconnects at the pace of the options below

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # etcd closes connections that ping more often than every 5 s. A stopped etcd is noticed after 10 + 5 s by those who only listen.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # gRPC waits up to two minutes between attempts by default; a restarted etcd shall be found at once.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),  # what is repeated, and when, is the store's decision
    ("grpc.use_local_subchannel_pool", 1),  # channels with new certificates shall not share connections with old ones
    ("grpc.enable_http_proxy", 0),  # secrets do not take a detour because of an environment variable
)


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM; read again when they change."""

    ca_file: Path
    cert_file: Path
    key_file: Path
    server_name: str = ""
    """The name that the server's certificate must have, when it is not the endpoint's host."""

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes when a file does (a mounted Secret swaps a symbolic link, so that the inode is another)."""
        stats = [path.stat() for path in (self.ca_file, self.cert_file, self.key_file)]
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files."""
        return grpc.ssl_channel_credentials(self.ca_file.read_bytes(), self.key_file.read_bytes(), self.cert_file.read_bytes())


class Endpoint:
    """One etcd member: its channel and the calls that we make on it."""

    def __init__(self, url: str, credentials: grpc.ChannelCredentials | None, server_name: str) -> None:
        target, options = urlsplit(url).netloc, list[tuple[str, Any]](OPTIONS)
        if server_name:
            options.append(("grpc.ssl_target_name_override", server_name))
        self.url = url
        self.channel = grpc.aio.secure_channel(target, credentials, options) if credentials else grpc.aio.insecure_channel(target, options)
        self.range = self._unary("KV/Range", rpc.RangeRequest, rpc.RangeResponse)
        self.txn = self._unary("KV/Txn", rpc.TxnRequest, rpc.TxnResponse)
        self.compact = self._unary("KV/Compact", rpc.CompactionRequest, rpc.CompactionResponse)
        self.watch: grpc.aio.StreamStreamMultiCallable[rpc.WatchRequest, rpc.WatchResponse] = self.channel.stream_stream(
            "/etcdserverpb.Watch/Watch", rpc.WatchRequest.SerializeToString, rpc.WatchResponse.FromString
        )

    def is_ready(self) -> bool:
        """Say whether there is a connection; if not, begin to make one."""
        return self.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY

    def _unary(self, method: str, request: type[Request], response: type[Response]) -> grpc.aio.UnaryUnaryMultiCallable[Request, Response]:
        return self.channel.unary_unary(f"/etcdserverpb.{method}", request.SerializeToString, response.FromString)


class Connection:
    """Picks the endpoint for each call: the one that worked last, else any that can be reached."""

    def __init__(self, endpoints: tuple[str, ...], tls: Tls | None, clock: Callable[[], float]) -> None:
        """Connect later.

        Args:
            endpoints: URLs, ``https`` exactly if there is ``tls``.
            tls: certificates.
            clock: monotonic seconds; paces how often the files are looked at.

        Raises:
            ValueError: endpoints and ``tls`` do not fit.
            OSError: a file cannot be read.
        """
        if not endpoints:
            raise ValueError("etcd needs at least one endpoint")
        for url in endpoints:
            if urlsplit(url).scheme != ("https" if tls else "http") or not urlsplit(url).netloc:
                raise ValueError(
                    f"etcd endpoint {url}: want {'https' if tls else 'http'}://host:port{'' if tls else ' when no certificates are given'}"
                )
        self._urls = endpoints
        self._tls = tls
        self._clock = clock
        self._made: weakref.WeakSet[grpc.aio.Channel] = weakref.WeakSet()  # watches hold on to channels that we have left
        self._stamp = tls.stamp() if tls else ()
        self._checked = clock()
        self._current = 0
        self._endpoints = self._connect()
        self.closed = False

    async def ready(self, until: float) -> Endpoint:
        """Return an endpoint that is connected, at the latest at loop time ``until``.

        Raises:
            Unavailable: none is.
        """
        while True:
            if self.closed:
                raise Unavailable("the store is closed")
            self._check_files(CHECK_FILES_SECONDS)
            for offset in range(len(self._endpoints)):
                index = (self._current + offset) % len(self._endpoints)
                if self._endpoints[index].is_ready():
                    self._current = index
                    return self._endpoints[index]
            if asyncio.get_running_loop().time() >= until:
                raise Unavailable(f"etcd cannot be reached at {', '.join(self._urls)}")
            await asyncio.sleep(POLL_SECONDS)
            self._check_files(1.0)  # perhaps nothing is ready because the certificates have expired

    def failed(self, endpoint: Endpoint) -> None:
        """Say that ``endpoint`` did not do; the next call tries another first."""
        if self._endpoints[self._current] is endpoint:
            self._current = (self._current + 1) % len(self._endpoints)

    async def close(self) -> None:
        """Close every channel; calls under way on them end."""
        self.closed = True
        for channel in list(self._made):
            await channel.close(None)

    def _connect(self) -> list[Endpoint]:
        credentials = self._tls.credentials() if self._tls else None
        endpoints = [Endpoint(url, credentials, self._tls.server_name if self._tls else "") for url in self._urls]
        self._made.update(endpoint.channel for endpoint in endpoints)
        return endpoints

    def _check_files(self, every: float) -> None:
        if self._tls is None or self._clock() - self._checked < every:
            return
        self._checked = self._clock()
        try:
            stamp = self._tls.stamp()
            if stamp == self._stamp:
                return
            self._endpoints = self._connect()
        except OSError as error:
            logger.warning("The certificates for etcd cannot be read; going on with those read before", extra={"error": str(error)})
            return
        self._stamp = stamp
        logger.info("The certificates for etcd changed; connecting with the new ones")
