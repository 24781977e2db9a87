from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from handler.plugins.deleting import LONGEST_RETRY_SECONDS, Deleter, event_recorder
from handler.plugins.faults import Failed, Fault
from handler.plugins.protocol import Command, Kind
from handler.plugins.records import Element, Record, Records

HERE, GONE = (str(uuid.UUID(int=each)) for each in (1, 2))
MACHINE = {"machine": {"namespace": "default", "name": "vm", "uid": "u-1"}}


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.records = Records(directory)
        self.calls: list[tuple[str, str, Mapping[str, Any]]] = []
        self.fault: Fault | None = None
        self.faults: list[str] = []
        self.looked: list[str] = []
        self.now = 0.0
        self.deleter = Deleter(
            self.records,
            self.call,
            self.is_there,
            lambda record, fault: self.faults.append(f"{record.element}: {fault}"),
            lambda: self.now,
            look_seconds=0.01,
        )

    def is_there(self, uid: str) -> bool:
        self.looked.append(uid)
        return uid == HERE

    async def call(self, kind: Kind, name: str, command: Command, document: Mapping[str, Any]) -> Mapping[str, Any]:
        await asyncio.sleep(0)
        if name == "slow":
            self.calls.append((f"{kind} {name}", command, document))
            await asyncio.get_running_loop().create_future()
        self.calls.append((f"{kind} {name}", command, document))
        if self.fault is not None and name == "images":
            raise self.fault
        return {}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_records_of_gone_pods_are_deleted_with_their_result(world: World) -> None:
    world.records.write(Record("storage", HERE, "data", "images", MACHINE, {"disk": {}}))
    world.records.write(Record("storage", GONE, "data", "images", MACHINE, {"disk": {"size": 512}}))
    world.records.write(Record("network", GONE, "lan", "isolated", MACHINE))
    await world.deleter.look()
    assert sorted(world.calls, key=lambda each: each[0]) == [
        ("network isolated", "DEL", MACHINE),
        ("storage images", "DEL", {**MACHINE, "prevResult": {"disk": {"size": 512}}}),
    ]
    assert [each.pod_uid for each in world.records.all()] == [HERE]


async def test_failed_deletion_is_reported_retried_and_blocks_no_other(world: World) -> None:
    world.fault = Failed("the pool is away")
    world.records.write(Record("storage", GONE, "data", "images", MACHINE))
    world.records.write(Record("network", GONE, "lan", "isolated", MACHINE))
    await world.deleter.look()
    await world.deleter.look()
    assert (world.faults, [each.element for each in world.records.all()]) == (["data: the pool is away"], ["data"])
    world.fault, world.now = None, LONGEST_RETRY_SECONDS
    await world.deleter.look()
    assert not list(world.records.all())
    assert [name for name, _, _ in world.calls].count("network isolated") == 1


async def test_hanging_deletion_delays_no_later_one(world: World) -> None:
    world.records.write(Record("storage", GONE, "slow", "slow", MACHINE))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        running = group.create_task(world.deleter.run())
        while not world.calls:
            await asyncio.sleep(0.01)
        world.records.write(Record("storage", GONE, "data", "images", MACHINE))
        while [each.element for each in world.records.all()] != ["slow"]:
            await asyncio.sleep(0.01)
        assert [name for name, _, _ in world.calls] == ["storage slow", "storage images"]
        running.cancel()


async def test_deletion_waits_for_a_running_add(world: World) -> None:
    record = Record("storage", GONE, "data", "images", MACHINE)
    async with asyncio.TaskGroup() as group, world.records.lock(Element("storage", GONE, "data")):
        world.records.write(record)
        group.create_task(world.deleter.look())
        while not world.looked:
            await asyncio.sleep(0.001)
        for _ in range(10):
            await asyncio.to_thread(world.looked.count, GONE)
        assert world.calls == []
        world.records.write(record.answered({"disk": {"size": 512}}))
    assert world.calls == [("storage images", "DEL", {**MACHINE, "prevResult": {"disk": {"size": 512}}})]
    assert not list(world.records.all())


class Events:
    def __init__(self) -> None:
        self.said: list[Any] = []

    def event(self, *said: Any) -> None:
        self.said.append(said)


def test_an_event_tells_the_owner_of_a_machine_that_may_be_gone() -> None:
    events = Events()
    event_recorder(events)(Record("storage", GONE, "data", "images", MACHINE), Failed("plugin images (DEL): the pool\n is away"))
    ((machine, _, type_, reason, message),) = events.said
    assert machine["metadata"] == MACHINE["machine"]
    assert (type_, reason) == ("Warning", "PluginDelFailed")
    assert message == "disk 'data': plugin images (DEL): the pool | is away; virt-handler retries"


async def test_unexpected_error_of_one_record_ends_no_other_deletion(world: World, caplog: pytest.LogCaptureFixture) -> None:
    call, met = world.call, 0

    async def spoiled(kind: Kind, name: str, command: Command, document: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal met
        if name == "spoiled" and not met:
            met += 1
            raise RecursionError
        return await call(kind, name, command, document)

    world.deleter = Deleter(world.records, spoiled, world.is_there, lambda *_: None, lambda: world.now)
    world.records.write(Record("storage", GONE, "one", "spoiled", MACHINE))
    world.records.write(Record("storage", GONE, "two", "images", MACHINE))
    await world.deleter.look()
    assert [each.element for each in world.records.all()] == ["one"]
    assert GONE in caplog.text
    await world.deleter.look()
    assert [each.element for each in world.records.all()] == ["one"]
    world.now += LONGEST_RETRY_SECONDS
    await world.deleter.look()
    assert list(world.records.all()) == []


async def test_a_file_that_is_no_record_of_ours_is_nobodys_business(world: World) -> None:
    world.records.write(Record("storage", GONE, "data", "images", MACHINE))
    (world.directory / GONE / "storage-Of somebody.json").write_text("{}")
    (world.directory / "of.somebody").mkdir()
    (world.directory / "of.somebody" / "storage-data.json").write_text("{}")
    await world.deleter.look()
    assert len(world.calls) == 1
