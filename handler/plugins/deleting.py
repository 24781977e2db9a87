"""Calls ``DEL`` for what plugins added to pods that are gone, until they succeed.

A pod is gone once the kubelet has removed its volumes, after the end of all its containers. This check needs no API server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from apiserver.apis.meta import objects
from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.client.backoff import Backoff
from controller.runtime.validating import Events
from handler.plugins.faults import Fault
from handler.plugins.protocol import Command, Kind
from handler.plugins.records import Element, Record, Records

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
FIRST_RETRY_SECONDS: Final = 5.0
LONGEST_RETRY_SECONDS: Final = 300.0
DEL_FAILED: Final = "PluginDelFailed"
MAX_WORDS: Final = 1024
_WORDS: Final[Mapping[Kind, str]] = {"network": "interface", "storage": "disk"}

PluginCall = Callable[[Kind, str, Command, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Calls a plugin: ``calling.Plugins.call``."""


def event_recorder(events: Events) -> Callable[[Record, Fault], None]:
    """Return a function that records an Event about a failed ``DEL`` on its machine, which may be gone."""

    def say(record: Record, fault: Fault) -> None:
        names = {each: str(objects.dig(record.document, "machine", each) or "") for each in ("namespace", "name", "uid")}
        machine = {"apiVersion": VIRTUAL_MACHINES.api_version, "kind": VIRTUAL_MACHINES.kind, "metadata": names}
        words = one_line(f"{_WORDS[record.kind]} {record.element!r}: {fault}; virt-handler retries", MAX_WORDS)
        events.event(machine, VIRTUAL_MACHINES, "Warning", DEL_FAILED, words)

    return say


class Deleter:
    """Calls ``DEL`` of plugins for pods that are gone."""

    def __init__(
        self,
        records: Records,
        call: PluginCall,
        is_there: Callable[[str], bool],
        failed: Callable[[Record, Fault], None],
        monotonic: Callable[[], float] = time.monotonic,
        *,
        look_seconds: float = LOOK_SECONDS,
        first_retry_seconds: float = FIRST_RETRY_SECONDS,
    ) -> None:
        """``is_there`` returns whether the pod with this uid still has its volumes; ``failed`` is called for each failed ``DEL``."""
        self._look_seconds = look_seconds
        self._first_retry_seconds = first_retry_seconds
        self._records = records
        self._call = call
        self._is_there = is_there
        self._failed = failed
        self._monotonic = monotonic
        self._waiting: dict[Element, tuple[float, Backoff]] = {}
        """Time of the next retry and its backoff."""
        self._under_way: set[Element] = set()

    async def run(self) -> None:
        """Call ``DEL`` repeatedly until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._begin(group)
                await asyncio.sleep(self._look_seconds)

    async def look(self) -> None:
        """Call ``DEL`` once for each record of a pod that is gone, except during the pause after a failure; wait for the answers."""
        async with asyncio.TaskGroup() as group:
            await self._begin(group)

    async def _begin(self, group: asyncio.TaskGroup) -> None:
        gone = await asyncio.to_thread(self._gone)
        now = self._monotonic()
        keys = {each.key for each in gone}
        self._waiting = {key: each for key, each in self._waiting.items() if key in keys}
        for key in keys - self._under_way:
            if key not in self._waiting or self._waiting[key][0] <= now:
                self._under_way.add(key)
                group.create_task(self._delete(key))

    def _gone(self) -> list[Record]:
        return [each for each in self._records.all() if not self._is_there(each.pod_uid)]

    async def _delete(self, key: Element) -> None:
        try:
            async with self._records.lock(key):
                # under the lock: an ADD that was running has recorded its answer by now
                record = await asyncio.to_thread(self._records.of, key)
                if record is not None:
                    await self._ask(record)
        except Exception:  # one record or plugin must not stop the other deletions
            logger.exception("cannot undo the plugin calls for pod %s", key.pod_uid)
            self._wait(key)
        finally:
            self._under_way.discard(key)

    def _wait(self, key: Element) -> None:
        _, backoff = self._waiting.setdefault(key, (0.0, Backoff(self._first_retry_seconds, LONGEST_RETRY_SECONDS)))
        self._waiting[key] = (self._monotonic() + backoff.next(), backoff)

    async def _ask(self, record: Record) -> None:
        try:
            await self._call(record.kind, record.plugin, "DEL", record.request())
        except Fault as fault:
            self._wait(record.key)
            logger.warning("plugin DEL of %s %s of pod %s failed, retrying: %s", record.kind, record.element, record.pod_uid, fault)
            self._failed(record, fault)
        else:
            await asyncio.to_thread(self._records.remove, record)
