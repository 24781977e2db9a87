"""Items sorted by key: the content of the watch cache."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from apiserver.apis.meta.objects import HubObject, labels_of

LAST_CHARACTER: Final = "\U0010ffff"  # above all keys of a prefix
CHUNK: Final = 512  # an insertion moves at most twice as many keys, below a microsecond
WARM: Final = 128  # decoded objects in the process
# ValueErrors of JSON and pydantic, others for unexpected shapes.
DECODING_ERRORS: Final = (ValueError, LookupError, TypeError, AttributeError)

_LABELS: Final = b'"labels":{'
_NONE: Final[Mapping[str, str]] = {}
_warm: deque[Item] = deque()


class Item:
    """One object at one revision, shared and immutable; decodes ``object`` on demand."""

    __slots__ = ("_object", "fields", "key", "labels_at", "pieces", "revision", "stale")

    def __init__(
        self, key: str, revision: int, obj: dict[str, Any] | None, *pieces: bytes, stale: bool = False, labels_at: int = 0
    ) -> None:  # fmt: skip
        """Take the JSON's ``pieces``, and the decoded ``obj`` if available.

        ``labels_at``: start of labels in the second piece (see ``canonical``), even if empty; 0: unknown.
        """
        self.key = key
        self.revision = revision
        self.pieces = pieces
        """To send, in the stored version with ``metadata.resourceVersion``; maybe shared."""
        self.stale = stale
        """Stored in an old form (key or version): the next write renews it, even without change."""
        self.labels_at = labels_at
        self.fields: Mapping[str, str] | None = None
        """Selectable fields; kept by the first selection that reads them, so further ones do not decode the object."""
        self._object = HubObject(obj) if obj is not None else None
        if obj is not None:
            _keep_warm(self)

    @property
    def data(self) -> bytes:
        """The JSON to send, in one piece."""
        return b"".join(self.pieces)

    @property
    def size(self) -> int:
        """Length of ``data`` in bytes."""
        return sum(map(len, self.pieces))

    @property
    def labels(self) -> Mapping[str, str]:
        """``metadata.labels``, without decoding the rest."""
        if self._object is not None or not self.labels_at:
            return labels_of(self.object)
        raw = self.raw_labels
        if not raw:
            return _NONE
        try:
            labels: Mapping[str, str] = orjson.loads(raw)
        except ValueError:
            return labels_of(self.object)
        return labels

    @property
    def raw_labels(self) -> bytes:
        """The labels' JSON, if ``labels_at`` is not 0; empty without labels.

        If two items have ``labels_at``, equal bytes mean equal labels.
        """
        at, second = self.labels_at, self.pieces[1]
        if not second.startswith(_LABELS, at):
            return b""
        # Labels contain no brace.
        return second[at + len(_LABELS) - 1 : second.index(b"}", at) + 1]

    def cool(self) -> None:
        """Drop the decoded object; a later use decodes again."""
        self._object = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Item):
            return NotImplemented
        return (self.key, self.revision, self.data) == (other.key, other.revision, other.data)

    def __hash__(self) -> int:
        return hash((self.key, self.revision))

    def __repr__(self) -> str:
        return f"Item({self.key!r}, {self.revision}, {self.data[:80]!r})"

    @property
    def object(self) -> HubObject:
        """The decoded ``data``, kept; never change it."""
        obj = self._object
        if obj is None:
            obj = self._object = orjson.loads(self.data)
            _keep_warm(self)
        return obj


def _keep_warm(item: Item) -> None:
    _warm.append(item)
    if len(_warm) > WARM:
        _warm.popleft().cool()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Items at ``revision``, in the order of keys; ``remaining`` more follow. ``by_trigger``: all those of the requested trigger alone."""

    items: Sequence[Item]
    revision: int
    remaining: int = 0
    by_trigger: bool = False


class SortedItems:
    """Items in sorted chunks: changes cost nearly the same at any size, slices in proportion to their length.

    With a limit, a slice also counts the chunks that follow it.
    """

    def __init__(self, items: Iterable[Item] = (), *, chunk: int = CHUNK) -> None:
        self._chunk = chunk
        ordered = sorted(items, key=lambda item: item.key)
        self._items = [ordered[start : start + chunk] for start in range(0, len(ordered), chunk)]
        self._keys = [[item.key for item in items] for items in self._items]
        self._last = [keys[-1] for keys in self._keys]
        self._length = len(ordered)

    def __len__(self) -> int:
        return self._length

    def get(self, key: str) -> Item | None:
        """Return the item of ``key``, or None."""
        chunk = bisect_left(self._last, key)
        if chunk == len(self._last):
            return None
        keys = self._keys[chunk]
        index = bisect_left(keys, key)
        return self._items[chunk][index] if keys[index] == key else None

    def put(self, item: Item) -> None:
        """Add an item, or replace that of its key."""
        key = item.key
        chunk = bisect_left(self._last, key)
        if chunk == len(self._last):
            if not chunk:
                self._items.append([])
                self._keys.append([])
                self._last.append(key)
            else:
                chunk -= 1
        keys = self._keys[chunk]
        index = bisect_left(keys, key)
        if index < len(keys) and keys[index] == key:
            self._items[chunk][index] = item
            return
        keys.insert(index, key)
        self._items[chunk].insert(index, item)
        self._last[chunk] = keys[-1]
        self._length += 1
        if len(keys) > 2 * self._chunk:
            self._split(chunk)

    def remove(self, key: str) -> None:
        """Remove ``key`` if present."""
        chunk = bisect_left(self._last, key)
        if chunk == len(self._last):
            return
        keys = self._keys[chunk]
        index = bisect_left(keys, key)
        if keys[index] != key:
            return
        del keys[index]
        del self._items[chunk][index]
        self._length -= 1
        if keys:
            self._last[chunk] = keys[-1]
        if len(keys) < self._chunk // 4:
            self._join(chunk)

    def slice(self, prefix: str, *, start: str = "", limit: int = 0) -> tuple[list[Item], int]:
        """Return (items under ``prefix`` from ``start`` on, at most ``limit``; how many follow). ``limit`` 0: all."""
        low = self._position(max(prefix, start))
        high = max(low, self._position(prefix + LAST_CHARACTER))
        found: list[Item] = []
        chunk, index = low
        while chunk < len(self._items) and chunk <= high[0] and not (limit and len(found) >= limit):
            end = high[1] if chunk == high[0] else len(self._items[chunk])
            if limit:
                end = min(end, index + limit - len(found))
            found += self._items[chunk][index:end]
            chunk, index = chunk + 1, 0
        return found, self._distance(low, high) - len(found) if limit else 0

    def count(self, prefix: str) -> int:
        """Count the items under ``prefix``."""
        low = self._position(prefix)
        return self._distance(low, max(low, self._position(prefix + LAST_CHARACTER)))

    def _position(self, key: str) -> tuple[int, int]:
        chunk = bisect_left(self._last, key)
        return (chunk, bisect_left(self._keys[chunk], key)) if chunk < len(self._last) else (chunk, 0)

    def _distance(self, low: tuple[int, int], high: tuple[int, int]) -> int:
        between = sum(len(self._keys[chunk]) for chunk in range(low[0], high[0]))
        return between + high[1] - low[1]

    def _split(self, chunk: int) -> None:
        keys, items = self._keys[chunk], self._items[chunk]
        self._keys[chunk : chunk + 1] = [keys[: self._chunk], keys[self._chunk :]]
        self._items[chunk : chunk + 1] = [items[: self._chunk], items[self._chunk :]]
        self._last[chunk : chunk + 1] = [keys[self._chunk - 1], keys[-1]]

    def _join(self, chunk: int) -> None:
        if not self._keys[chunk]:
            del self._keys[chunk], self._items[chunk], self._last[chunk]
            return
        for first in (chunk - 1, chunk):
            if 0 <= first < len(self._keys) - 1 and len(self._keys[first]) + len(self._keys[first + 1]) <= self._chunk:
                self._keys[first] += self._keys.pop(first + 1)
                self._items[first] += self._items.pop(first + 1)
                del self._last[first]
                return
