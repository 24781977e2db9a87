"""Where audit events go: a file (or standard output) that is rotated, and a webhook.

Both take events without waiting and store them in batches beside the event loop: a batch is whatever came within 100 ms, so that a busy
server makes ten writes a second and not twenty thousand. Each write wakes a thread, and the thread the loop: at 20 ms that was some 2 %
of the processor time of a server with 600 writes a second, and more with few. Whoever may not lose 100 ms when the process is killed takes
``blocking-strict``. What differs is what happens when the other side is slow:

===================== ===============================================================================================
``batch``             events beyond the buffer are lost, and counted in ``apiserver_audit_error_total``
``blocking``          requests wait, before anything is done, until there is room in the buffer again
``blocking-strict``   as blocking; and a request waits until its first event is stored, and is refused if it cannot be
===================== ===============================================================================================

At the end of the process everything that was taken is stored.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Final, Literal

from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.instruments import Cell
from apiserver.client.rest import Client
from apiserver.client.transport import ExchangeFailed

logger = logging.getLogger(__name__)

Mode = Literal["batch", "blocking", "blocking-strict"]
MODES: Final[tuple[Mode, ...]] = ("batch", "blocking", "blocking-strict")
GATHER_SECONDS: Final = 0.1
FLUSH_SECONDS: Final = 10.0
"""How long the end of the process may wait for what is not stored."""
_FACTOR: Final = 1.5
_DAY: Final = 86400.0
_STAMP: Final = "%Y-%m-%dT%H-%M-%S.%f"


@dataclass(frozen=True, slots=True)
class Buffering:
    """How much waits, and what happens beyond it."""

    mode: Mode
    buffer: int = 10_000
    """Events."""
    batch: int = 4000
    """The most that are stored at once."""
    wait_seconds: float = GATHER_SECONDS


class Buffer:
    """Events on their way to a place that is slow. ``run`` must run."""

    def __init__(self, name: str, store: Callable[[list[str]], object], buffering: Buffering, lost: Cell) -> None:
        """Take the deed.

        Args:
            name: of the backend.
            store: stores a batch and returns nothing, or something to await; raises OSError when it cannot.
            buffering: the bounds.
            lost: counts events that were lost.
        """
        self.name = name
        self._store = store
        self._buffering = buffering
        self._lost = lost
        self._events: list[str] = []
        self._some = asyncio.Event()
        self._stored = asyncio.Event()
        self._failed = False
        self._closing = False
        self._strict = buffering.mode == "blocking-strict"

    @property
    def full(self) -> bool:
        """Whether requests must wait for :meth:`room`."""
        return self._strict or (self._buffering.mode == "blocking" and len(self._events) >= self._buffering.buffer)

    def add(self, event: str) -> None:
        """Take an event."""
        events = self._events
        if len(events) >= self._buffering.buffer and self._buffering.mode == "batch":
            self._lost.value += 1
            return
        if not events:
            self._some.set()
        events.append(event)

    async def room(self) -> None:
        """Wait for room; strict: until everything is stored.

        Raises:
            OSError: strict, and it was not stored.
        """
        while self._events and (self._strict or len(self._events) >= self._buffering.buffer):
            self._stored.clear()
            await self._stored.wait()
        if self._strict and self._failed:
            raise OSError(f"the audit backend {self.name} does not store")

    async def run(self) -> None:
        """Store what comes until closed; returns when all is stored."""
        while not self._closing or self._events:
            await self._some.wait()
            if not self._strict and not self._closing:
                await asyncio.sleep(self._buffering.wait_seconds)
            await self._flush()

    def close(self) -> None:
        """Let :meth:`run` end once all is stored."""
        self._closing = True
        self._some.set()

    async def _flush(self) -> None:
        batch = self._events[: self._buffering.batch]
        if not batch:
            return
        stored = False
        try:
            waiting = self._store(batch)
            if asyncio.iscoroutine(waiting):
                await waiting
            stored = True
        except OSError as error:
            self._lost.value += len(batch)
            logger.error("audit events were lost", extra={"backend": self.name, "events": len(batch), "error": str(error)})  # noqa: TRY400 - the message says it
        finally:
            self._failed = not stored
            del self._events[: len(batch)]
            if not self._events and not self._closing:
                self._some.clear()
            self._stored.set()


class LogFile:
    """A file that is rotated by size; old ones go by number and age. ``-`` is standard output."""

    def __init__(self, path: str, *, megabytes: int = 100, backups: int = 100, days: int = 366, compress: bool = False) -> None:
        """Open the file.

        Args:
            path: of the file; its directory must exist.
            megabytes: at which it is rotated; 0: never.
            backups: how many old ones stay; 0: all.
            days: how long they stay; 0: for ever.
            compress: old ones are gzipped.

        Raises:
            OSError: it cannot be written.
        """
        self._path = None if path == "-" else Path(path)
        self._limit = megabytes << 20
        self._backups = backups
        self._days = days
        self._compress = compress
        self._writing = Lock()
        self._descriptor = sys.stdout.fileno() if self._path is None else self._open(self._path)
        self._size = 0 if self._path is None else os.fstat(self._descriptor).st_size

    async def store(self, batch: list[str]) -> None:
        """Append a batch."""
        await asyncio.to_thread(self.write, batch)

    def write(self, batch: list[str]) -> None:
        """Append a batch.

        Raises:
            OSError: not all of it was written.
        """
        with self._writing:
            self._append(batch)

    def _append(self, batch: list[str]) -> None:
        data = "\n".join([*batch, ""]).encode()
        if self._path is not None and self._limit and self._size and self._size + len(data) > self._limit:
            self._rotate(self._path)
        view = memoryview(data)
        while view:
            written = os.write(self._descriptor, view)
            view = view[written:]
        self._size += len(data)

    def close(self) -> None:
        """Close the file."""
        if self._path is not None:
            os.close(self._descriptor)

    @staticmethod
    def _open(path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _rotate(self, path: Path) -> None:
        old = path.with_name(f"{path.stem}-{datetime.now(UTC).strftime(_STAMP)[:-3]}{path.suffix}")
        path.rename(old)
        os.close(self._descriptor)
        self._descriptor = self._open(path)
        self._size = 0
        if self._compress:
            with old.open("rb") as source, gzip.open(f"{old}.gz", "wb", compresslevel=1) as target:
                shutil.copyfileobj(source, target)
            old.unlink()
        self._forget(path)

    def _forget(self, path: Path) -> None:
        pattern = re.compile(re.escape(path.stem) + r"-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}" + re.escape(path.suffix) + r"(\.gz)?")
        old = sorted((each for each in path.parent.iterdir() if pattern.fullmatch(each.name)), key=lambda each: each.name, reverse=True)
        oldest = time.time() - self._days * _DAY
        for index, each in enumerate(old):
            if (self._backups and index >= self._backups) or (self._days and each.stat().st_mtime < oldest):
                each.unlink(missing_ok=True)


class Webhook:
    """Posts batches as an ``EventList``; tries again whatever went wrong, with growing pauses (``--audit-webhook-initial-backoff``)."""

    TRIES: Final = 5

    def __init__(self, client: Client, *, backoff_seconds: float = 10.0) -> None:
        self._client = client
        self._backoff = backoff_seconds

    async def store(self, batch: list[str]) -> None:
        """Send a batch.

        Raises:
            OSError: it was not taken, after all tries.
        """
        body = '{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[' + ",".join(batch) + "]}"
        pause = self._backoff
        for attempt in range(1, self.TRIES + 1):
            try:
                async with self._client.stream("POST", "", data=body.encode()):
                    return
            except (StatusError, ExchangeFailed, TimeoutError, OSError) as error:
                if attempt == self.TRIES:
                    raise OSError(f"post audit events: {error}") from error
            await asyncio.sleep(pause)
            pause *= _FACTOR
