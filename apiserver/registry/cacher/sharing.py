"""Share equal bytes among objects: managed fields are stored once.

The pieces always join to the object, even after wrong cuts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MANAGED: Final = b'"managedFields":[{'  # unique, because strings escape quotes
_FIELDS: Final = b'"fieldsV1":{'
_ENTRY: Final = b'{"manager":'
_SHORTEST: Final = 256
"""Shorter costs more than it saves."""
_LONGEST: Final = 8192
_REMEMBERED: Final = 512
"""Limits data of deleted objects to 4 MiB, with ``_LONGEST``."""
_MOST: Final = 8


def pieces(lead: bytes, value: bytes, at: int = 0) -> tuple[bytes, ...]:
    """Return ``lead`` and ``value[at:]`` in pieces; equal managed fields of medium length share pieces. The first starts with ``lead``."""
    begin = value.find(_MANAGED, at)
    if begin < 0:
        return (lead + value[at:],)
    found = [lead]
    end = value.find(b"]", begin + len(_MANAGED))
    last = value.rfind(_ENTRY, begin, end)
    while begin >= 0 and len(found) < 2 * _MOST:
        start = value.find(_FIELDS, begin, end)
        begin = value.find(_ENTRY, start, end) if 0 <= start < last else -1
        stop = begin if begin >= 0 else end
        if start >= 0 and _SHORTEST <= stop - start <= _LONGEST:
            found[-1] += value[at:start]
            found += (_shared(value[start:stop]), b"")
            at = stop
    found[-1] += value[at:]
    return tuple(found)


@lru_cache(maxsize=_REMEMBERED)
def _shared(piece: bytes) -> bytes:
    return piece
