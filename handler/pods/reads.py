"""Reads texts from launchers on demand (:class:`messages.Read`), shared by all readers.

A launcher gets one request per text at a time, and none while the last answer is fresh, so readers cannot keep it or a guest agent busy.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from apiserver.apis.meta import errors
from apiserver.apis.meta.lines import one_line
from handler.pods.launcher import Connection, Disconnected, LauncherRefused, Pending
from handler.pods.links import Link, Links
from launcher.protocol import messages

WAIT_SECONDS: Final = 30.0
"""Wait of one reader; the launcher's own timeouts are shorter."""
FRESH_SECONDS: Final = 5.0
"""How long an answer or refusal is shared: two kinds of the longest texts stay below a launcher's budget."""
MIN_FORGET_SECONDS: Final = 0.1
MAX_REFUSAL: Final = 512
RETRY_SECONDS: Final = 5


class _Text(NamedTuple):
    pod_uid: str
    what: str


class Reads:
    """Reads texts from launchers; an answer is fresh for ``fresh_seconds``."""

    def __init__(self, links: Links, *, wait_seconds: float = WAIT_SECONDS, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._links = links
        self._wait_seconds = wait_seconds
        self._fresh_seconds = fresh_seconds
        self._asked: dict[_Text, Pending] = {}
        self._next: asyncio.TimerHandle | None = None

    async def read(self, pod_uid: str, what: str) -> str:
        """Return the untrusted text ``what`` (such as ``guestinfo``) from this pod's launcher.

        Raises StatusError: BadRequest if the launcher does not support it, Conflict if it is not available now, Timeout without an answer
        of its source, ServiceUnavailable without one of the launcher.
        """
        self._forget()
        connection = connection_of(self._links.get(pod_uid))
        if not connection.tells(what):
            raise errors.BadRequest(f"its virt-launcher is of an older version without {what}; restart the machine")
        pending = self._asked.get(_Text(pod_uid, what))
        if pending is None or pending.connection is not connection:
            pending = self._begin(connection, pod_uid, what)
        try:
            text = pending.text if await pending.answered(within=self._wait_seconds) else None
        except LauncherRefused as refused:
            raise error_of(refused) from refused
        except Disconnected as error:
            self._asked.pop(_Text(pod_uid, what), None)
            raise errors.ServiceUnavailable(f"its virt-launcher closed the connection during a request for {what}", _AGAIN) from error
        if text is None:
            raise errors.Timeout(f"its virt-launcher did not return {what} within {self._wait_seconds:.0f} s")
        return text

    def _begin(self, connection: Connection, pod_uid: str, what: str) -> Pending:
        try:
            pending = self._asked[_Text(pod_uid, what)] = connection.begin(messages.Read(what))
        except Disconnected as error:
            raise errors.ServiceUnavailable("its virt-launcher has just closed the connection", _AGAIN) from error
        self._forget()
        return pending

    def _forget(self) -> None:
        loop = asyncio.get_running_loop()
        now, fresh = loop.time(), self._fresh_seconds
        self._asked = {text: each for text, each in self._asked.items() if each.answered_at is None or now - each.answered_at < fresh}
        if self._next is not None:
            self._next.cancel()
        ages = [now - each.answered_at for each in self._asked.values() if each.answered_at is not None]
        self._next = loop.call_later(max(fresh - max(ages, default=0.0), MIN_FORGET_SECONDS), self._forget) if self._asked else None


_AGAIN: Final = errors.Details(retry_after_seconds=RETRY_SECONDS)


def connection_of(link: Link | None) -> Connection:
    """Return the link's connection to its launcher. Raises ServiceUnavailable without a link or connection."""
    if link is None or link.connection is None:
        raise errors.ServiceUnavailable("its virt-launcher is not connected to virt-handler", _AGAIN)
    return link.connection


def error_of(refused: LauncherRefused) -> errors.StatusError:
    """Return the StatusError for a launcher's refusal: Timeout, Conflict (also for NotReady), BadRequest, or else ServiceUnavailable."""
    message = one_line(str(refused), MAX_REFUSAL)
    match refused.reason:
        case "Timeout":
            return errors.Timeout(message)  # Go clients retry errors with a retry delay ten times, invisible to users
        case "Conflict" | "NotReady":
            return errors.Conflict(message)
        case "Invalid":
            return errors.BadRequest(message)
        case "Failed":
            return errors.ServiceUnavailable(message)
