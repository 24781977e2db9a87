"""Connections to this node's launchers, kept while they have holders.

A link reconnects until the launcher's process ends, and keeps the last status, which says how the guest ended. A launcher, which a guest
may control, is disconnected over its ``budget`` until it may send again. Changes are notified in bursts, on average at most four times a
second, always with the newest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from apiserver.client.backoff import Backoff
from controller.runtime.flowcontrol import TokenBucket
from controller.runtime.reconciling import Request
from handler.pods import launcher, places
from handler.pods.launcher import Connection, Disconnected, NotUnderstood
from handler.pods.limits import DEFAULT, Limits
from handler.pods.process import NotOfThisPod
from launcher.protocol import messages

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 0.05
"""A launcher listens some 0.1 s after its container's start, and this delays each guest's start."""
LONGEST_RETRY_SECONDS: Final = 2.0

Connect = Callable[[str, Callable[[messages.Status], None], TokenBucket], AbstractAsyncContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class Holder:
    """An object of a reconcile loop, which needs a launcher's link."""

    loop: str
    request: Request


class Link:
    """The connection to one launcher, and its last known state."""

    def __init__(self, pod_uid: str, now: float, limits: Limits = DEFAULT) -> None:
        self.pod_uid = pod_uid
        self.connection: Connection | None = None
        self.status: messages.Status | None = None
        """The newest, also after the connection ended."""
        self.not_understood = ""
        """Why there is no connection to a launcher with another protocol version, for users."""
        self.gone = False
        """The launcher's process has ended, and with it all in the pod."""
        self.holders: set[Holder] = set()
        self.budget = launcher.budget(now, limits)
        """Bytes that the launcher may still send."""
        self.waiting: asyncio.TimerHandle | None = None
        self.changes = TokenBucket(limits.changes_burst, limits.changes_per_second, now)

    def connected(self) -> Connection:
        """Return the connection to this launcher. Raises Disconnected without one."""
        if self.connection is None:
            raise Disconnected(f"virt-launcher of pod {self.pod_uid} is not connected")
        return self.connection

    @property
    def moving(self) -> bool:
        """True while the guest migrates to another pod, and after that succeeded."""
        migrations = self.status.migrations if self.status else ()
        return any(each.direction == "outgoing" and each.state in ("running", "succeeded") for each in migrations)


class Links:
    """All links to this node's launchers; ``changed(link)`` is called after changes."""

    def __init__(self, connect: Connect, *, changed: Callable[[Link], None], limits: Limits = DEFAULT) -> None:
        self._connect = connect
        self._limits = limits
        self._changed = changed
        self._links: dict[str, Link] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._starting: asyncio.Queue[Link] = asyncio.Queue()

    def get(self, pod_uid: str) -> Link | None:
        """Return the link to this pod, or None."""
        return self._links.get(pod_uid)

    def acquire(self, pod_uid: str, holder: Holder) -> Link:
        """Return the link to this pod, perhaps new and not connected, kept until :meth:`release`. Raises ValueError for an invalid uid."""
        if not places.is_uid(pod_uid):
            raise ValueError(f"{ascii(pod_uid)[:80]} is not a pod uid")
        link = self._links.get(pod_uid)
        if link is None:
            link = self._links[pod_uid] = Link(pod_uid, asyncio.get_running_loop().time(), self._limits)
            self._starting.put_nowait(link)
        link.holders.add(holder)
        return link

    def release(self, holder: Holder, *, keep: Collection[str] = ()) -> None:
        """Remove the holder from its links, except those to the pods ``keep``; drop links without holders."""
        for link in list(self._links.values()):
            if link.pod_uid not in keep and holder in link.holders:
                link.holders.discard(holder)
                if not link.holders:
                    self._drop(link)

    def is_alive(self, pod_uid: str) -> bool:
        """Return whether there is a link to this pod and its launcher has not ended."""
        link = self._links.get(pod_uid)
        return link is not None and not link.gone

    def connected(self) -> list[str]:
        """Return the uids of the pods with a connected launcher."""
        return [uid for uid, link in self._links.items() if link.connection is not None]

    def __len__(self) -> int:
        return len(self._links)

    async def run(self) -> None:
        """Connect to the launchers of all links, and reconnect, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                link = await self._starting.get()
                if self._links.get(link.pod_uid) is link:
                    self._tasks[link.pod_uid] = tasks.create_task(self._keep(link))

    def _drop(self, link: Link) -> None:
        del self._links[link.pod_uid]
        if link.waiting is not None:
            link.waiting.cancel()
        if (task := self._tasks.pop(link.pod_uid, None)) is not None:
            task.cancel()

    async def _keep(self, link: Link) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while not link.gone:
            pause = 0.0
            try:
                await self._session(link, backoff)
            except NotUnderstood as error:
                pause = self._limits.fault_seconds
                if not link.not_understood:
                    logger.warning("virt-launcher of pod %s has an incompatible version: %s", link.pod_uid, error)
                    link.not_understood = str(error)
                    self._notify(link)
            except (Disconnected, NotOfThisPod) as error:
                logger.debug("cannot connect to virt-launcher of pod %s: %s", link.pod_uid, error)
            except Exception:  # one launcher's link must not end the others
                logger.exception("serving virt-launcher of pod %s failed", link.pod_uid)
                pause = self._limits.fault_seconds
            if not link.gone:
                ignored = link.budget.delay(asyncio.get_running_loop().time(), 0)
                await asyncio.sleep(max(pause, ignored, backoff.next()))
        self._notify(link)

    async def _session(self, link: Link, backoff: Backoff) -> None:
        def on_status(status: messages.Status) -> None:
            # a new connection's hello may be no newer
            if link.status is None or status.revision >= link.status.revision:
                link.status = status
            if link.connection is not None or status.ending is not None:
                self._notify(link)

        async with self._connect(link.pod_uid, on_status, link.budget) as connection:
            backoff.reset()
            link.connection, link.not_understood = connection, ""
            self._notify(link)
            try:
                await connection.run()
            except Disconnected as error:
                link.connection = None
                link.gone = await self._has_exited(link, connection, error)
            finally:
                link.connection = None

    async def _has_exited(self, link: Link, connection: Connection, error: Disconnected) -> bool:
        """Wait shortly whether the launcher of a broken connection exits, longer if it sent too much; return whether it did."""
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(self._limits.exit_seconds, link.budget.delay(now))):
                await connection.process.ended()
        except TimeoutError:
            logger.warning("lost the connection to virt-launcher of pod %s, which still runs; reconnecting: %s", link.pod_uid, error)
            return False
        return True

    def _notify(self, link: Link) -> None:
        loop = asyncio.get_running_loop()
        if link.waiting is not None:
            return
        if wait := link.changes.delay(loop.time()):
            link.waiting = loop.call_later(wait, self._notify_now, link)
        else:
            self._notify_now(link)

    def _notify_now(self, link: Link) -> None:
        link.waiting = None
        link.changes.spend(asyncio.get_running_loop().time())
        self._changed(link)
