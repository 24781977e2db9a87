"""Connections to the launchers of this node, kept up for as long as somebody wants them.

A link survives virt-launcher being slow to start and connections breaking; it ends when the launcher's process is gone. The last status
is kept beyond that, because it says how the guest ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from apiserver.client.backoff import Backoff
from handler.pods.launcher import Connection, Disconnected
from handler.pods.process import NotOfThisPod
from launcher.protocol import messages

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 0.05
"""A container's launcher listens some 0.1 s after it started: this wait is part of every start of a guest."""
LONGEST_RETRY_SECONDS: Final = 2.0
EXIT_SECONDS: Final = 2.0
"""How long after hanging up a launcher may take to exit before the link tries again."""

Connect = Callable[[str, Callable[[messages.Status], None]], AbstractAsyncContextManager[Connection]]


class Link:
    """What is known of one launcher."""

    def __init__(self, pod_uid: str) -> None:
        self.pod_uid = pod_uid
        self.connection: Connection | None = None
        """None while there is none."""
        self.status: messages.Status | None = None
        """The newest, also after the connection is gone."""
        self.gone = False
        """The launcher's process has ended: nothing in the pod runs any more."""
        self.wanted: set[str] = set()

    @property
    def moving(self) -> bool:
        """Whether the guest is leaving, or has left, for another pod."""
        migrations = self.status.migrations if self.status else ()
        return any(each.direction == "outgoing" and each.state in ("running", "succeeded") for each in migrations)


class Links:
    """All links; ``changed(pod_uid)`` is called after every change of one."""

    def __init__(self, connect: Connect, *, changed: Callable[[str], None]) -> None:
        self._connect = connect
        self._changed = changed
        self._links: dict[str, Link] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._starting: asyncio.Queue[Link] = asyncio.Queue()

    def get(self, pod_uid: str) -> Link | None:
        """Return the link to this pod, if one is kept."""
        return self._links.get(pod_uid)

    def want(self, pod_uid: str, who: str) -> Link:
        """Return the link to this pod, kept until ``who`` (and everyone else who wants it) calls :meth:`release`."""
        link = self._links.get(pod_uid)
        if link is None:
            link = self._links[pod_uid] = Link(pod_uid)
            self._starting.put_nowait(link)
        link.wanted.add(who)
        return link

    def release(self, who: str, *, keep: str = "") -> None:
        """Drop what ``who`` wanted, but for the pod ``keep``."""
        for link in list(self._links.values()):
            if link.pod_uid != keep and who in link.wanted:
                link.wanted.discard(who)
                if not link.wanted:
                    del self._links[link.pod_uid]
                    if (task := self._tasks.pop(link.pod_uid, None)) is not None:
                        task.cancel()

    def is_alive(self, pod_uid: str) -> bool:
        """Whether somebody wants this pod and its launcher is not known to be gone."""
        link = self._links.get(pod_uid)
        return link is not None and not link.gone

    def __len__(self) -> int:
        return len(self._links)

    async def run(self) -> None:
        """Keep links up until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                link = await self._starting.get()
                if self._links.get(link.pod_uid) is link:
                    self._tasks[link.pod_uid] = tasks.create_task(self._keep(link))

    async def _keep(self, link: Link) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while not link.gone:
            try:
                await self._session(link, backoff)
            except (Disconnected, NotOfThisPod) as error:
                logger.debug("no connection to the launcher of pod %s: %s", link.pod_uid, error)
            if not link.gone:
                await asyncio.sleep(backoff.next())
        self._changed(link.pod_uid)

    async def _session(self, link: Link, backoff: Backoff) -> None:
        def on_status(status: messages.Status) -> None:
            # A connection that broke can be followed by one whose hello is no newer; a revision never goes back within a pod.
            if link.status is None or status.revision >= link.status.revision:
                link.status = status
            if link.connection is not None:
                self._changed(link.pod_uid)

        async with self._connect(link.pod_uid, on_status) as connection:
            backoff.reset()
            link.connection = connection
            self._changed(link.pod_uid)
            try:
                await connection.run()
            except Disconnected:
                try:
                    async with asyncio.timeout(EXIT_SECONDS):
                        await connection.process.ended()
                    link.gone = True
                except TimeoutError:
                    logger.warning("the launcher of pod %s hung up and lives on; connecting again", link.pod_uid)
            finally:
                link.connection = None
