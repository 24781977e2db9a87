"""Connections to etcd's endpoints: selection and certificates."""

from __future__ import annotations

import asyncio
import logging
import ssl
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from certs import contexts
from storage.grpc import headers
from storage.grpc.calls import RpcError
from storage.grpc.link import Link, connect
from storage.port import Unavailable

logger = logging.getLogger(__name__)

CHECK_FILES_SECONDS: Final = 5.0
ATTEMPT_SECONDS: Final = 2.0
NEXT_ENDPOINT_SECONDS: Final = 0.1
FIRST_BACKOFF_SECONDS: Final = 0.02
MAX_BACKOFF_SECONDS: Final = 0.5
# Ends calls and streams of a member cut off from its leader, which would stay open without a message.
_REQUIRE_LEADER: Final = ("hasleader", "true")


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files for connections to etcd, reloaded when they change."""

    ca_file: Path
    cert_file: Path
    key_file: Path
    server_name: str = ""
    """Name in the server's certificate, if not the endpoint's host."""
    check_seconds: float = CHECK_FILES_SECONDS

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Return a value that changes with the files. Includes inodes, because a mounted Secret swaps a symlink. Raises OSError."""
        stats = [path.stat() for path in (self.ca_file, self.cert_file, self.key_file)]
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)

    def context(self) -> ssl.SSLContext:
        """Return a client context with the files. Raises OSError."""
        context = contexts.trusting(file=str(self.ca_file))
        context.load_cert_chain(self.cert_file, self.key_file)
        context.set_alpn_protocols(["h2"])
        return context


class Endpoint:
    """An etcd member, its connection, and the header blocks of calls to it."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, server_name: str, timeout_seconds: float) -> None:
        parts = urlsplit(url)
        self.url = url
        self.link: Link | None = None
        self._host = parts.hostname or ""
        self._port = parts.port or 2379
        self._tls = tls
        self._server_name = server_name
        self._timeout_seconds = timeout_seconds
        self.range = self._block("etcdserverpb.KV/Range")
        self.txn = self._block("etcdserverpb.KV/Txn")
        self.compact = self._block("etcdserverpb.KV/Compact")
        self.status = self._block("etcdserverpb.Maintenance/Status")
        self.watch = self._block("etcdserverpb.Watch/Watch", times_out=False)

    @property
    def is_ready(self) -> bool:
        """True if the connection can start new calls."""
        return self.link is not None and self.link.is_usable

    async def connect(self) -> None:
        """Connect to the member. Raises OSError, RpcError."""
        self.link = await connect(self._host, self._port, self._tls, self._server_name)

    def leave(self) -> None:
        """Start no further calls on the connection; running ones continue."""
        link, self.link = self.link, None
        if link:
            link.leave()

    def _block(self, method: str, *, times_out: bool = True) -> bytes:
        # The server may give up slightly later, so all calls share the block.
        metadata = (_REQUIRE_LEADER, *([("grpc-timeout", f"{int(self._timeout_seconds * 1000) + 100}m")] if times_out else []))
        scheme, authority = ("https" if self._tls else "http"), self._server_name or urlsplit(self.url).netloc
        return headers.request(f"/{method}", scheme=scheme, authority=authority, metadata=metadata)


class _Decided(Exception):
    """Ends all other attempts: one has connected, or the store was closed."""


class Connection:
    """Selects an endpoint per call: the last that worked, else the first reachable."""

    def __init__(self, endpoints: tuple[str, ...], tls: Tls | None, clock: Callable[[], float], *, timeout_seconds: float = 5.0) -> None:
        """Prepare; connect later. ``clock`` returns monotonic seconds.

        Raises:
            ValueError: without an endpoint, or if one does not begin with ``https://`` (with ``tls``) or ``http://`` (without).
            OSError: a file is unreadable.
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
        self._timeout_seconds = timeout_seconds
        self._made: weakref.WeakSet[Link] = weakref.WeakSet()
        self._stamp = tls.stamp() if tls else ()
        self._checked = clock()
        self._current = 0
        self._endpoints = self._make()
        self._connecting = asyncio.Lock()
        self._closing = asyncio.Event()
        self._backoff_seconds = 0.0
        self._again_at = 0.0
        self._why = "no attempt was made"

    @property
    def closed(self) -> bool:
        """True if the store was closed."""
        return self._closing.is_set()

    def usable(self) -> Endpoint | None:
        """Return the endpoint that worked last if connected, else None."""
        endpoint = self._endpoints[self._current]
        if self._tls is not None:
            self._check_files()
        return endpoint if endpoint.is_ready else None

    async def ready(self, until: float) -> tuple[Endpoint, Link]:
        """Return a connected endpoint and its link, waiting at most until the loop time ``until``. Raises Unavailable."""
        try:
            async with asyncio.timeout_at(until):
                return await self._ready()
        except TimeoutError:
            raise Unavailable(f"etcd cannot be reached at {', '.join(self._urls)}: {self._why}") from None

    def failed(self, endpoint: Endpoint) -> None:
        """Record a failure of ``endpoint``; the next call tries another first."""
        if self._endpoints[self._current] is endpoint:
            self._current = (self._current + 1) % len(self._endpoints)

    async def close(self) -> None:
        """Close every connection; running calls fail."""
        self._closing.set()
        for link in list(self._made):
            link.abort("the store is closed")

    async def _ready(self) -> tuple[Endpoint, Link]:
        while True:
            if self.closed:
                raise Unavailable("the store is closed")
            self._check_files()
            for offset in range(len(self._endpoints)):
                index = (self._current + offset) % len(self._endpoints)
                endpoint = self._endpoints[index]
                if endpoint.link is not None and endpoint.link.is_usable:
                    self._current = index
                    return endpoint, endpoint.link
            async with self._connecting:  # one caller connects for all
                if not any(endpoint.is_ready for endpoint in self._endpoints):
                    await self._attempt()

    async def _attempt(self) -> None:
        loop = asyncio.get_running_loop()
        decided = False
        try:
            async with asyncio.TaskGroup() as tasks:
                closing = tasks.create_task(self._until_closed())
                if (pause := self._again_at - loop.time()) > 0:
                    await asyncio.sleep(pause)
                self._check_files(1.0)
                ordered = self._endpoints[self._current :] + self._endpoints[: self._current]
                attempts = [tasks.create_task(self._connect(each, position)) for position, each in enumerate(ordered)]
                for attempt in attempts:
                    await attempt
                closing.cancel()
        except* _Decided:
            decided = True
        self._backoff_seconds = 0.0 if decided else min(max(2 * self._backoff_seconds, FIRST_BACKOFF_SECONDS), MAX_BACKOFF_SECONDS)
        self._again_at = loop.time() + self._backoff_seconds

    async def _connect(self, endpoint: Endpoint, position: int) -> None:
        await asyncio.sleep(position * NEXT_ENDPOINT_SECONDS)
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                await endpoint.connect()
        except (OSError, RpcError, ValueError) as error:  # a TimeoutError is an OSError, an invalid name a ValueError
            self._why = f"{endpoint.url}: {str(error) or type(error).__name__}"
            return
        if endpoint.link:
            self._made.add(endpoint.link)
        raise _Decided

    async def _until_closed(self) -> None:
        await self._closing.wait()
        raise _Decided

    def _make(self) -> list[Endpoint]:
        context = self._tls.context() if self._tls else None
        server_name = self._tls.server_name if self._tls else ""
        return [Endpoint(url, context, server_name, self._timeout_seconds) for url in self._urls]

    def _check_files(self, every: float | None = None) -> None:
        if self._tls is None or self._clock() - self._checked < (self._tls.check_seconds if every is None else every):
            return
        self._checked = self._clock()
        try:
            stamp = self._tls.stamp()
            if stamp == self._stamp:
                return
            endpoints = self._make()
        except OSError as error:
            logger.warning("Cannot read the certificates for etcd; keeping the previous ones", extra={"error": str(error)})
            return
        for endpoint in self._endpoints:
            endpoint.leave()
        self._endpoints = endpoints
        self._stamp = stamp
        self._again_at = 0.0
        logger.info("The certificates for etcd changed; connecting with the new ones")
