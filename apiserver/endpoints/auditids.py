"""Audit ids, which identify a request in every log."""

from __future__ import annotations

import random
from itertools import count
from typing import Final
from uuid import uuid4

_MAX_LENGTH: Final = 64
_OURS: Final = str(uuid4())[:-12]
_LAST_PART: Final = (1 << 48) - 1
_NUMBERS: Final = count(random.getrandbits(48))


def audit_id(given: str) -> str:
    """Return ``given``, the aggregator's id, so logs can be joined; if unusable, a new one."""
    return given if given and len(given) <= _MAX_LENGTH and given.isprintable() else new_id()


def new_id() -> str:
    """Return an id in UUIDv4 form, not secret: the process's prefix and a counter with a random start."""
    return f"{_OURS}{next(_NUMBERS) & _LAST_PART:012x}"
