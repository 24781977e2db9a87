"""Follow one object by a watch or, without one, by polling."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import errors, objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.kubectl import messages, verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Unreachable

WATCH_SECONDS: Final = 300
MAX_LINE_BYTES: Final = 1 << 20
"""Of an event; an object has at most 512 KiB."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times of following an object, in seconds."""

    look: float = 2.0
    """Between polls without a watch."""
    figures: float = 2.0
    """For the target's figures, after another component wrote the success."""
    unreachable: float = 60.0
    """Such as during restarts."""


TIMES: Final = Times()


class Watching:
    """Follows one object, with ``changed`` called per state."""

    def __init__(
        self,
        load: Callable[[], Awaitable[Access]],
        access: Access,
        resource: Resource,
        first: Object,
        changed: Callable[[Object], None],
        times: Times = TIMES,
    ) -> None:
        """``first``: the object as created or read; ``load`` renews expired credentials."""
        self._load = load
        self._access = access
        self._resource = resource
        self._doing = f"follow {resource.kind.lower()} {objects.namespace_of(first)}/{objects.name_of(first)}"
        self._path = resource.path(access.namespace, objects.name_of(first))
        self._changed = changed
        self._times = times
        self._reached = asyncio.get_running_loop().time()
        self._renewed = False
        self.gone = False
        """``newest`` is the last state."""
        self.newest = first

    async def until(self, is_over: Callable[[], bool], look: float | None = None) -> None:
        """Watch the object until ``is_over()``; when a watch ends, wait ``look`` seconds, read it, and watch again.

        A deletion sets ``gone``, which ``is_over`` must check. Raises Failure.
        """
        while not is_over():
            await self._watch(is_over)
            if not is_over():
                await asyncio.sleep(self._times.look if look is None else look)
                await self._look()

    def _take(self, kind: str, seen: Object) -> None:
        if objects.uid_of(seen) != objects.uid_of(self.newest):
            self.gone = True  # another one has its name
            return
        self.gone = kind == "DELETED"
        self.newest = seen
        self._changed(seen)

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        try:
            seen = await verbs.answered(self._access, "GET", self._path, self._doing)
        except errors.NotFound:
            self.gone = True
            return
        except errors.Unauthorized as error:
            if self._renewed:
                raise messages.of_status(error, self._doing) from error
            self._access, self._renewed = await self._load(), True
            return
        except errors.StatusError as error:
            if (error.code < 500 and error.code != 429) or now - self._reached > self._times.unreachable:
                raise messages.of_status(error, self._doing) from error
            return
        except Unreachable:
            if now - self._reached > self._times.unreachable:
                raise
            return
        self._reached, self._renewed = now, False
        if seen.get("kind") == self._resource.kind:
            self._take("MODIFIED", seen)

    async def _watch(self, until: Callable[[], bool]) -> None:
        from apiserver.kubectl import http  # slow to import

        path, total = self._resource.path(self._access.namespace), WATCH_SECONDS + 30
        try:
            async with contextlib.aclosing(
                http.lines(self._access, path, self._parameters(), seconds=total, max_line_bytes=MAX_LINE_BYTES)
            ) as lines:
                async for line in lines:
                    event = json.loads(line)
                    kind, seen = (event.get("type"), event.get("object")) if isinstance(event, dict) else ("", None)
                    if kind not in ("ADDED", "MODIFIED", "DELETED") or not isinstance(seen, dict):
                        return  # an error: the revision is too old
                    self._take(kind, seen)
                    if until():
                        return
        except http.FAILURES:
            return

    def _parameters(self) -> dict[str, str]:
        return {
            "watch": "true",
            "fieldSelector": f"metadata.name={objects.name_of(self.newest)}",
            "resourceVersion": objects.resource_version_of(self.newest),
            "timeoutSeconds": str(WATCH_SECONDS),
        }
