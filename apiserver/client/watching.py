"""Watches: a request with an endless response of JSON lines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object
from apiserver.client.transport import TransportError

MAX_LINE_BYTES: Final = 16 << 20
"""Of an event; no API server stores a tenth of this."""

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""Annotation of the bookmark after the initial objects (KEP-3157)."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """An event of a watch. ``type`` is ADDED, MODIFIED, DELETED or BOOKMARK; ERROR is raised instead."""

    type: str
    object: Object


async def lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield complete lines, without empty ones and an incomplete last one. Raises TransportError for a long one."""
    pending = bytearray()
    async for chunk in chunks:
        searched = len(pending)
        pending += chunk
        begin = 0
        while (end := pending.find(b"\n", max(begin, searched))) >= 0:
            if line := bytes(pending[begin:end]).strip():
                yield line
            begin = end + 1
        del pending[:begin]
        if len(pending) > MAX_LINE_BYTES:
            raise TransportError(f"an event of the watch is longer than {MAX_LINE_BYTES} bytes")


def parse(line: bytes, path: str) -> WatchEvent:
    """Return a line's WatchEvent; raise the StatusError of an ERROR, or TransportError."""
    try:
        parsed = json.loads(line)
        kind, obj = parsed["type"], parsed["object"]
    except (ValueError, KeyError, TypeError) as error:
        raise TransportError(f"watch {path}: the server sent an invalid watch event") from error
    if kind == "ERROR":
        raise errors.from_status(obj if isinstance(obj, dict) else {})
    if not isinstance(obj, dict):
        raise TransportError(f"watch {path}: the server sent an event without an object")
    return WatchEvent(kind, obj)
