"""libvirtd as a child process during the pod's life."""

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
"""Shortest and longest delay before a restart. After a run longer than the second, it is the first again."""


def next_delay(delay: float, lived: float) -> float:
    """Return the next restart delay in seconds: twice the last one, with a maximum, or the first after a long run (``lived``)."""
    first, most = RESTART_SECONDS
    return first if lived > most else min(delay * 2, most)


class Libvirtd:
    """Keeps libvirtd running. A new one finds QEMU by its state files, so the guest notices nothing."""

    def __init__(self, children: Children, daemon: Daemon) -> None:
        self._children = children
        self._daemon = daemon
        self._pid = 0
        self._exited: asyncio.Future[int] | None = None

    async def run(self) -> None:
        """Start libvirtd, and restart it when it ends, until cancelled."""
        delay = RESTART_SECONDS[0]
        while True:
            started = asyncio.get_running_loop().time()
            with libvirtd_log.forwarding() as output:
                self._pid, self._exited = self._children.start([LIBVIRTD], self._daemon.environment(), output=output)
                code = await asyncio.shield(self._exited)
            logger.warning("libvirtd ended and is restarted; the guest keeps running", extra={"exit_code": code})
            lived = asyncio.get_running_loop().time() - started
            delay = next_delay(delay, lived)
            await asyncio.sleep(delay)

    async def stop(self, seconds: float) -> None:
        """Terminate libvirtd, and kill it after ``seconds``. Cancel :meth:`run` before."""
        if self._exited is None or self._exited.done():
            return
        terminate(self._pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._exited)
        except TimeoutError:
            terminate(self._pid, signal.SIGKILL)
