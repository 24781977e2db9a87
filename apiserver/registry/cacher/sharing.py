"""Sharing of equal bytes among objects: the fields that a manager owns are held once.

A manager writes its objects alike, so their ``fieldsV1`` are equal to the byte, and a third of a small object. The bytes of an object
are cut around them into pieces, and equal pieces are one. A cut at another place would only find less to share: joined, the pieces
are the object whatever was found.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MANAGED: Final = b'"managedFields":[{'  # nowhere else in an object: within a string the quotes are escaped
_FIELDS: Final = b'"fieldsV1":{'
_ENTRY: Final = b'{"manager":'
_SHORTEST: Final = 256
"""Less does not pay for the pieces that it leaves."""
_LONGEST: Final = 8192
_REMEMBERED: Final = 512
"""With ``_LONGEST`` the bound of what is kept for objects that are gone: 4 MiB, which takes somebody who writes 512 such objects."""
_MOST: Final = 8
"""Pieces of an object that are shared; managers are few."""


def pieces(lead: bytes, value: bytes, at: int = 0) -> tuple[bytes, ...]:
    """Return ``lead`` and ``value`` from ``at`` on, cut around what others have alike; the first piece begins with ``lead``."""
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
