"""libvirtd, a child of ours for as long as the pod lives."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Final

from launcher.hypervisor.daemon import LIBVIRTD, Daemon
from launcher.main.programs import libvirtd_log
from launcher.main.programs.children import Children, terminate

logger = logging.getLogger(__name__)

RESTART_SECONDS: Final = (0.1, 5.0)
"""Before it is started again: the least, and the most, which is also how long one has to live to count as a first one."""


def next_delay(delay: float, lived: float) -> float:
    """Return how long to wait before libvirtd is started again that lived so long, after the delay before it; seconds."""
    first, most = RESTART_SECONDS
    return first if lived > most else min(delay * 2, most)


class Libvirtd:
    """Keeps libvirtd alive. A guest does not notice when it dies: a new one finds QEMU by the state files."""

    def __init__(self, children: Children, daemon: Daemon) -> None:
        """Do nothing yet."""
        self._children = children
        self._daemon = daemon
        self._pid = 0
        self._exited: asyncio.Future[int] | None = None

    async def run(self) -> None:
        """Start it, and start it again whenever it ends, until cancelled."""
        delay = RESTART_SECONDS[0]
        while True:
            started = asyncio.get_running_loop().time()
            with libvirtd_log.forwarding() as output:
                self._pid, self._exited = self._children.start([LIBVIRTD], self._daemon.environment(), output=output)
                code = await asyncio.shield(self._exited)
            logger.warning("libvirtd ended and is started again; the guest goes on", extra={"exit_code": code})
            lived = asyncio.get_running_loop().time() - started
            delay = next_delay(delay, lived)
            await asyncio.sleep(delay)

    async def stop(self, seconds: float) -> None:
        """Ask it to end, and see to it after ``seconds``."""
        if self._exited is None or self._exited.done():
            return
        terminate(self._pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._exited)
        except TimeoutError:
            terminate(self._pid, signal.SIGKILL)
