"""The outgoing relays of this process, by migration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from handler.relays.outgoing import Destination, Outgoing

logger = logging.getLogger(__name__)

READY_SECONDS: Final = 10.0


class Relays:
    """Starts and ends outgoing relays; :meth:`run` runs them."""

    def __init__(self, make: Callable[[str, str, Destination], Outgoing], *, changed: Callable[[str], None]) -> None:
        self._make = make
        self._changed = changed
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running: dict[str, Outgoing] = {}
        self._starting: asyncio.Queue[Outgoing] = asyncio.Queue()

    async def open(self, migration_uid: str, pod_uid: str, destination: Destination) -> None:
        """Relay from this pod to that node; return at once if the migration's relays were begun before."""
        if migration_uid in self._tasks:
            return
        relay = self._make(migration_uid, pod_uid, destination)
        self._starting.put_nowait(relay)
        async with asyncio.timeout(READY_SECONDS):
            await relay.ready.wait()

    async def release(self, migration_uid: str, pod_uid: str, destination: Destination, *, paused: bool) -> None:
        """Call :meth:`Outgoing.release` of a relay."""
        await self._make(migration_uid, pod_uid, destination).release(paused=paused)

    def close(self, migration_uid: str) -> None:
        """Begin to end this migration's relays, if any."""
        if (task := self._tasks.get(migration_uid)) is not None:
            task.cancel()

    def verify_again(self) -> None:
        """End connections to nodes that are not trusted any more."""
        for relay in list(self._running.values()):
            relay.verify_again()

    async def run(self) -> None:
        """Run the opened relays until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                relay = await self._starting.get()
                self._tasks[relay.migration_uid] = tasks.create_task(self._carry(relay))

    async def _carry(self, relay: Outgoing) -> None:
        self._running[relay.migration_uid] = relay
        try:
            await relay.run()
        except (OSError, ValueError) as error:  # an invalid uid, which must not become a path
            logger.warning("cannot run the relays of migration %s: %s", relay.migration_uid, error)
        except Exception:  # one migration's relays must not end the others
            logger.exception("relays of migration %s failed", relay.migration_uid)
        finally:
            self._running.pop(relay.migration_uid, None)
            self._tasks.pop(relay.migration_uid, None)
            self._changed(relay.migration_uid)
