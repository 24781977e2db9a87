"""The storage port: bytes under keys, with revisions. It does not know Kubernetes.

Promises, the same for every implementation; ``tests/contracts/test_storage.py`` holds each implementation to them by number.

1. *Linearizable.* ``get``, and ``range`` without ``revision``, see every commit that was acknowledged before they were called.
2. *Atomic.* ``commit`` applies all of its writes at one new revision, or, when a condition does not hold, none. A commit that changes
   nothing (no writes, or only deletions of absent keys) makes no revision and returns the store's.
3. *Durable.* A commit that returned survives the kill of every process. One that raised ``Unavailable`` may have happened or not.
4. *Monotonic.* Every changing commit's revision is greater than every earlier one's; revisions are positive, an empty store's too.
5. *Repeatable.* ``range`` at a ``revision`` that is not compacted returns what was there at that revision, page after page.
6. *Complete.* ``watch(prefix, after=r)`` yields every change under ``prefix`` with a revision above ``r``, once, in the order of revisions;
   a batch holds all changes of one revision, its ``revision``, and promises that nothing at or below it is still to come;
   a batch without changes is progress alone.
7. *Honest.* After ``compact(c)``, a range at a revision below ``c`` and a watch whose position is below ``c`` raise ``Compacted``;
   nothing is skipped in silence. (A watch that is behind, but whose changes are under way to it already, may still yield them.)
8. *Cancellable.* Cancelling any call leaves the store usable; a cancelled ``commit`` may have happened or not. Cancelling the
   iteration of a watch ends that watch.
9. *Reconnecting.* Outages raise ``Unavailable`` from the call they hit; the next call works once the store is back. A watch survives
   a lost connection by itself, resuming after its last revision.
Entries, conditions and the like are never changed. They are not frozen, because they are made for each write and each event, and a frozen
one takes three times as long to make.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


class StorageError(Exception):
    """Root of what this package raises.

    ::

        StorageError
        ├── RevisionMismatch   a condition of a commit did not hold
        ├── Compacted          the revision asked for is gone
        ├── FutureRevision     the revision asked for does not exist yet
        ├── TooLarge           a value or a commit is larger than the store takes
        └── Unavailable        the store cannot be reached, or did not answer in time
    """


class RevisionMismatch(StorageError):
    """A condition did not hold: ``key`` is now ``actual`` (None: absent); of a range, ``actual`` is an entry in it."""

    def __init__(self, key: str, actual: Entry | None) -> None:
        super().__init__(f"revision of {key} is {actual.mod_revision if actual else 'none: it is absent'}")
        self.key = key
        self.actual = actual


class Compacted(StorageError):
    """The revision asked for was compacted; ``oldest`` is the oldest that still exists (0: not known)."""

    def __init__(self, oldest: int = 0) -> None:
        super().__init__(f"revision is compacted; the oldest that exists is {oldest or 'not known'}")
        self.oldest = oldest


class FutureRevision(StorageError):
    """The revision asked for is newer than the store."""


class TooLarge(StorageError):
    """A value or a commit is larger than the store takes (etcd: 1.5 MiB a request by default)."""


class Unavailable(StorageError):
    """The store cannot be reached or did not answer in time; a commit that raised this may have happened."""


@dataclass(slots=True, unsafe_hash=True)
class Entry:
    """One key at one revision."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    stale: bool = False
    """The value is not stored as it would be today (encrypted with an old key): write it again even if it does not change."""


@dataclass(slots=True, unsafe_hash=True)
class Condition:
    """``key`` was last changed at ``mod_revision``; 0 means that it is absent.

    With ``end``: so was every key from ``key`` on before ``end``; it is of use with 0, which means that there is none.
    """

    key: str
    mod_revision: int
    end: str = ""


@dataclass(slots=True, unsafe_hash=True)
class Put:
    """Set ``key`` to ``value``."""

    key: str
    value: bytes


@dataclass(slots=True, unsafe_hash=True)
class Delete:
    """Remove ``key``; removing an absent key changes nothing."""

    key: str


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a range, in the order of keys."""

    entries: tuple[Entry, ...]
    revision: int
    """The store's revision when the range was read (the one asked for, if one was)."""
    more: bool
    count: int
    """Keys that the prefix holds in all, from the start key on."""


@dataclass(slots=True, unsafe_hash=True)
class Change:
    """One key changed: ``entry`` is what it became (None: deleted), ``previous`` what it was (None: created, or nobody asked)."""

    key: str
    entry: Entry | None
    previous: Entry | None


@dataclass(slots=True, unsafe_hash=True)
class Batch:
    """The changes of ``revision`` under a watch's prefix; without changes: progress up to it."""

    revision: int
    changes: tuple[Change, ...]


class Storage(Protocol):
    """See the module's promises."""

    async def get(self, key: str) -> Entry | None:
        """Return ``key`` now."""
        ...

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Return the keys that begin with ``prefix``, from ``start`` (inclusive) on, at most ``limit`` (0: all).

        Raises:
            Compacted: ``revision`` is gone.
            FutureRevision: ``revision`` is not reached yet.
        """
        ...

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        """Apply ``writes`` if all ``conditions`` hold; return the new revision.

        A key may stand in ``writes`` once, and at most 128 of them fit in a commit.

        Raises:
            ValueError: a key stands in ``writes`` twice; nothing was written.
            RevisionMismatch: a condition does not hold; nothing was written.
            TooLarge: nothing was written.
            Unavailable: nothing is known.
        """
        ...

    def watch(self, prefix: str, *, after: int, previous: bool = True) -> AbstractAsyncContextManager[AsyncIterator[Batch]]:
        """Watch ``prefix`` from the revision that follows ``after``, which may lie in the future.

        ``previous``: changes say what was before. Whoever knows it spares the store to send everything twice.

        Raises (from the iterator):
            Compacted: the position of the watch is gone; read everything again.
            Unavailable: the store was closed.
        """
        ...

    async def request_progress(self) -> None:
        """Ask that every watch soon yields a batch (empty, if need be) whose revision is at least the store's revision now."""
        ...

    async def revision(self) -> int:
        """Return the store's revision, linearizably."""
        ...

    async def compact(self, revision: int) -> None:
        """Forget history below ``revision``. Watches that are past it are not disturbed. A repeat is harmless.

        Raises:
            FutureRevision: ``revision`` is not reached yet.
        """
        ...

    async def close(self) -> None:
        """Release connections; calls under way raise ``Unavailable``."""
        ...
