"""The storage port: bytes under keys, with revisions, independent of Kubernetes.

Guarantees of every implementation; ``tests/contracts/test_storage.py`` tests them by number.

1. *Linearizable.* ``get``, and ``range`` without ``revision``, see every commit acknowledged before the call.
2. *Atomic.* ``commit`` applies all its writes at one new revision, or none if a condition fails. A commit without changes (no writes, or
   only deletions of absent keys) returns the store's revision without a new one.
3. *Durable.* A commit that returned survives the kill of every process. One that raised ``Unavailable`` may have happened.
4. *Monotonic.* Every changing commit gets a higher revision than all earlier ones; revisions are positive, even in an empty store.
5. *Repeatable.* ``range`` at an uncompacted ``revision`` returns the state at that revision, on every page.
6. *Complete.* ``watch(prefix, after=r)`` yields every change under ``prefix`` with a revision above ``r``, once, in the order of revisions.
   A batch holds all changes of its ``revision``, and nothing up to it is still to come; a batch without changes only reports progress.
7. *Honest.* After ``compact(c)``, a range at a revision below ``c`` and a watch at a position below ``c`` raise ``Compacted``. A watch that
   lags may yield changes already in transit.
8. *Cancellable.* Cancelling any call leaves the store usable; a cancelled ``commit`` may have happened. Cancelling a watch's iteration
   ends the watch.
9. *Reconnecting.* An outage raises ``Unavailable`` from the calls it hits; later calls work once the store is back. A watch survives a lost
   connection, and resumes after its last revision.

Entries, conditions and so on are immutable by convention: freezing would triple their time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


class StorageError(Exception):
    """Base of the errors of a Storage."""


class RevisionMismatch(StorageError):
    """A condition failed: ``key`` is now ``actual`` (None: absent); for a range, ``actual`` is an entry in it."""

    def __init__(self, key: str, actual: Entry | None) -> None:
        super().__init__(f"revision of {key} is {actual.mod_revision if actual else 'none: it is absent'}")
        self.key = key
        self.actual = actual


class Compacted(StorageError):
    """The requested revision was compacted; ``oldest`` is the oldest remaining one (0: unknown)."""

    def __init__(self, oldest: int = 0) -> None:
        super().__init__(f"revision is compacted; the oldest available is {oldest or 'not known'}")
        self.oldest = oldest


class FutureRevision(StorageError):
    """The requested revision is above the store's newest."""


class TooLarge(StorageError):
    """A value or a commit exceeds the store's limit of bytes or writes (etcd's default: 1.5 MiB per request)."""


class Unavailable(StorageError):
    """The store is unreachable or too late; a commit that raised this may have happened."""


@dataclass(slots=True, unsafe_hash=True)
class Entry:
    """One key at one revision."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    stale: bool = False
    """A write would store the value differently (encrypted with an old key): rewrite it even if unchanged."""


@dataclass(slots=True, unsafe_hash=True)
class Condition:
    """``key`` was last changed at ``mod_revision``; 0: it is absent.

    With ``end``, every key from ``key`` up to ``end``, exclusive; 0: there is none.
    """

    key: str
    mod_revision: int
    end: str = ""


@dataclass(slots=True, unsafe_hash=True)
class Put:
    """A write that sets ``key`` to ``value``."""

    key: str
    value: bytes


@dataclass(slots=True, unsafe_hash=True)
class Delete:
    """A write that removes ``key``, if it exists."""

    key: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a range, in the order of keys; ``count`` is of the whole range."""

    entries: tuple[Entry, ...]
    revision: int
    """The requested revision, or the store's."""
    more: bool
    count: int
    """Keys with the prefix, from the start key on."""


@dataclass(slots=True, unsafe_hash=True)
class Change:
    """A change of one key from ``previous`` (None: created, or not requested) to ``entry`` (None: deleted)."""

    key: str
    entry: Entry | None
    previous: Entry | None


@dataclass(slots=True, unsafe_hash=True)
class Batch:
    """The changes of ``revision`` under a watch's prefix; without changes: progress up to it."""

    revision: int
    changes: tuple[Change, ...]


class Storage(Protocol):
    """Bytes under keys, with revisions and watches; the module lists the guarantees. Any call may raise Unavailable."""

    async def get(self, key: str) -> Entry | None:
        """Return the current entry of ``key``, or None if absent."""
        ...

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Return a ``Page`` of at most ``limit`` (0: all) entries with ``prefix``, from key ``start`` (inclusive) on.

        ``revision`` 0 is the current one.

        Raises:
            Compacted: ``revision`` is gone.
            FutureRevision: ``revision`` does not exist yet.
        """
        ...

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        """Apply ``writes``, of at most 128 keys, if all ``conditions`` hold; return the new revision, or without a change the present one.

        Raises:
            ValueError: a key is in ``writes`` twice; no write happened.
            RevisionMismatch: a condition failed; no write happened.
            TooLarge: no write happened.
            Unavailable: the result is unknown.
        """
        ...

    def watch(self, prefix: str, *, after: int, previous: bool = True) -> AbstractAsyncContextManager[AsyncIterator[Batch]]:
        """Return a context manager with batches of the changes under ``prefix`` after the revision ``after``, perhaps a future one.

        ``previous``: changes include previous values, for which the store sends twice as much.

        Raises (from the iterator):
            Compacted: the watch's position is gone; read everything again.
            Unavailable: the store was closed.
        """
        ...

    async def request_progress(self) -> None:
        """Make every watch yield a batch, possibly empty, of at least the current revision, soon."""
        ...

    async def revision(self) -> int:
        """Return the store's revision, linearizably."""
        ...

    async def compact(self, revision: int) -> None:
        """Drop history below ``revision``. Watches beyond it are unaffected. Safe to repeat. Raises FutureRevision."""
        ...

    async def close(self) -> None:
        """Close connections; running calls raise ``Unavailable``."""
        ...
