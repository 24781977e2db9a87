from __future__ import annotations

import asyncio
from typing import Any

from apiserver.apis.core.resources import LEASES
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Promise
from apiserver.client.config import Config
from apiserver.client.rest import Client
from controller.runtime.clock import SystemClock
from controller.runtime.recorder import Recorder
from controller.sealing.sealing import Sealing
from tests.unit.controller.virtualtime import in_virtual_time

TIMES = guards.DEFAULT
NODE = {"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}


class Storage(Client):
    """In memory: the Lease of silent node a, and those of voters that echo each beat at once."""

    def __init__(self) -> None:
        super().__init__(Config(server="http://127.0.0.1:1"), user_agent="test")
        self.beats: dict[str, str] = {}
        self.read_seconds = self.write_seconds = 0.0
        self.seals = 0

    async def patch(self, *given: Any, **named: Any) -> Object:
        self.beats = {"replica": given[2]["metadata"]["annotations"][f"{guards.BEAT_PREFIX}replica"]}
        return {}

    async def list(self, resource: Resource, *given: Any, **named: Any) -> Object:
        if resource != LEASES:
            return {"items": [NODE]}
        await asyncio.sleep(self.read_seconds)
        return {"items": [self.lease("a", {}), self.lease("b", self.beats), self.lease("c", self.beats)]}

    def lease(self, name: str, beats: dict[str, str]) -> Object:
        promise = Promise(voters=("a", "b", "c"), beats=beats)
        made = guards.lease(name, "ns", promise, "2026-01-01T00:00:00.000000Z", None)
        return {**made, "metadata": {**made["metadata"], "resourceVersion": beats.get("replica", "0")}}

    async def update(self, *given: Any, **named: Any) -> Object:
        self.seals += 1
        await asyncio.sleep(self.write_seconds)
        return {}


def sealing(storage: Storage) -> Sealing:
    clock = SystemClock()
    return Sealing(storage, Recorder(storage, "test", clock), clock, "ns", "replica", lambda: asyncio.get_running_loop().time())


async def looks_until(made: Sealing, end: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await made.beat()
        await made.look()
        if loop.time() >= end:
            return
        await asyncio.sleep(min(TIMES.read, end - loop.time()))


@in_virtual_time
async def test_a_lease_is_unchanged_since_the_end_of_a_read() -> None:
    storage = Storage()
    made = sealing(storage)
    storage.read_seconds = 1.9
    await made.beat()
    await made.look()
    storage.read_seconds = 0.0
    await looks_until(made, TIMES.wait + 1.8)
    assert storage.seals == 0
    await looks_until(made, TIMES.wait + 2)
    assert storage.seals == 1


@in_virtual_time
async def test_the_write_of_a_seal_has_a_limit() -> None:
    storage = Storage()
    made = sealing(storage)
    storage.write_seconds = 600.0
    async with asyncio.timeout(TIMES.wait + TIMES.read + TIMES.read_limit):
        await looks_until(made, TIMES.wait)
    assert storage.seals == 1
