"""Limits on open streams of one server: in total, per user, and per user and object's stream.

A stream counts from before the dial, and gets 429 before the upgrade.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from apiserver.apis.meta.errors import Details, TooManyRequests
from apiserver.apis.meta.users import User
from apiserver.endpoints.requestinfo import RequestInfo

RETRY_SECONDS: Final = 5
"""Long, because people end streams."""
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"

Stream = tuple[str, str, str, str, str]
"""Group, resource, namespace, name, subresource."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The most open streams, set by flags; 0: unlimited."""

    max_streams: int = 256
    max_streams_per_user: int = 64
    max_streams_per_user_and_object: int = 4


DEFAULTS: Final = StreamLimits()


def holder_of(user: User) -> str:
    """Return the key under which a user's streams count: for service accounts, their namespace."""
    if user.name.startswith(_SERVICE_ACCOUNT):
        return user.name.rpartition(":")[0] + ":*"
    return user.name


def token_of(holder: str) -> str:
    """Return a hash by which other processes recognize a holder without its name."""
    return hashlib.sha256(holder.encode()).hexdigest()[:32]


def refusal(limits: StreamLimits, everyone: int, of_holder: int, of_object: int, stream: Stream) -> str:
    """Return why another stream would exceed a limit; empty if not. The counts: open streams."""
    _, resource, _, name, subresource = stream
    for limit, count, of in (
        (limits.max_streams_per_user_and_object, of_object, f' of your streams to {subresource} of {resource} "{name}"'),
        (limits.max_streams_per_user, of_holder, " of yours"),
        (limits.max_streams, everyone, ""),
    ):
        if limit and count >= limit:
            return f"too many streams: {count}{of} are open on this server, and {limit} is the limit; close one and try again"
    return ""


class OpenStreams:
    """Counts and limits the open streams."""

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._holders: Counter[str] = Counter()
        self._objects: Counter[tuple[str, Stream]] = Counter()

    def __len__(self) -> int:
        return self._holders.total()

    @asynccontextmanager
    async def one(self, user: User, info: RequestInfo, share: int = 1) -> AsyncIterator[str]:
        """Count a stream while the block runs; yield :func:`token_of` its holder. Raises TooManyRequests.

        ``share`` multiplies the limit per user and object.
        """
        holder = holder_of(user)
        stream = (info.group, info.resource, info.namespace, info.name, info.subresource)
        limits = replace(self._limits, max_streams_per_user_and_object=self._limits.max_streams_per_user_and_object * share)
        if why := refusal(limits, len(self), self._holders[holder], self._objects[holder, stream], stream):
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
