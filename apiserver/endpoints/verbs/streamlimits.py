"""Limits of the streams that are open on one server: in all, of one user, and of one user to one stream of one object.

Flow control knows nothing of them: a stream holds no seat while it lasts, as in Go, and costs memory and a connection on two sides. So
they are counted here, from before the other side is dialled to the end, and what is too many is answered before the upgrade: 429.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.errors import Details, TooManyRequests
from apiserver.apis.meta.users import User
from apiserver.endpoints.requestinfo import RequestInfo

RETRY_SECONDS: Final = 5
"""A stream ends when a person has had enough of it; asking sooner is of no use."""
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"

Stream = tuple[str, str, str, str, str]
"""Group, resource, namespace, name, subresource."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The flags; 0 is no limit."""

    max_streams: int = 256
    max_streams_per_user: int = 64
    max_streams_per_user_and_object: int = 4


DEFAULTS: Final = StreamLimits()


def holder_of(user: User) -> str:
    """Return who answers for a stream of a user.

    Whoever may create service accounts in a namespace could have a user for each stream, so those of one namespace are counted together.
    """
    if user.name.startswith(_SERVICE_ACCOUNT):
        return user.name.rpartition(":")[0] + ":*"
    return user.name


def token_of(holder: str) -> str:
    """Return what tells holders apart and says nothing else of them: for other processes, which need not know their names."""
    return hashlib.sha256(holder.encode()).hexdigest()[:32]


def refusal(limits: StreamLimits, everyone: int, of_holder: int, of_object: int, stream: Stream) -> str:
    """Return why one more stream is one too many, or an empty string.

    Args:
        limits: what is allowed.
        everyone: streams that are open now.
        of_holder: those of who asks.
        of_object: those of who asks to ``stream``.
        stream: what is asked for.
    """
    _, resource, _, name, subresource = stream
    for limit, count, of in (
        (limits.max_streams_per_user_and_object, of_object, f' of yours to {subresource} of {resource} "{name}"'),
        (limits.max_streams_per_user, of_holder, " of yours"),
        (limits.max_streams, everyone, ""),
    ):
        if limit and count >= limit:
            return f"too many streams: {count}{of} are open on this server, and {limit} is the limit; close one and try again"
    return ""


class OpenStreams:
    """The streams that are open now."""

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._holders: Counter[str] = Counter()
        self._objects: Counter[tuple[str, Stream]] = Counter()

    def __len__(self) -> int:
        return self._holders.total()

    @asynccontextmanager
    async def one(self, user: User, info: RequestInfo) -> AsyncIterator[str]:
        """Count a stream as long as the block runs; yields its holder's token.

        Raises:
            TooManyRequests: it would be one too many.
        """
        holder = holder_of(user)
        stream = (info.group, info.resource, info.namespace, info.name, info.subresource)
        if why := refusal(self._limits, len(self), self._holders[holder], self._objects[holder, stream], stream):
            raise TooManyRequests(why, Details(name=info.name, group=info.group, kind=info.resource, retry_after_seconds=RETRY_SECONDS))
        self._add(holder, stream, 1)
        try:
            yield token_of(holder)
        finally:
            self._add(holder, stream, -1)

    def _add(self, holder: str, stream: Stream, number: int) -> None:
        self._holders[holder] += number
        self._objects[holder, stream] += number
        if not self._holders[holder]:
            del self._holders[holder]
        if not self._objects[holder, stream]:
            del self._objects[holder, stream]
