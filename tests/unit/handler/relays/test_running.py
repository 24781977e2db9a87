from __future__ import annotations

import asyncio

import pytest

from handler.relays.outgoing import Destination, Outgoing
from handler.relays.running import READY_SECONDS, Relays
from tests.unit.controller.virtualtime import run


class Faulty(Outgoing):
    def __init__(self, migration_uid: str, fault: Exception | None) -> None:
        self.migration_uid = migration_uid
        self.ready = asyncio.Event()
        self._fault = fault

    async def run(self) -> None:
        self.ready.set()
        await asyncio.sleep(1)
        if self._fault is not None:
            raise self._fault
        await asyncio.Event().wait()


@pytest.mark.parametrize("fault", [OSError("no such pod"), ValueError("no uid"), OverflowError("nobody's word")])
def test_fault_of_one_migrations_relays_ends_no_others(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    async def scene() -> None:
        relays = Relays(lambda uid, *_: Faulty(uid, fault if uid == "one" else None), changed=told.append)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(relays.run())
            for uid in ("one", "other"):
                await relays.open(uid, "pod", Destination("n", "127.0.0.1:1"))
            await asyncio.sleep(10)
            assert told == ["one"]
            await relays.open("one", "pod", Destination("n", "127.0.0.1:1"))
            await asyncio.sleep(10)
            assert told == ["one", "one"]
            running.cancel()

    run(scene())
    assert "migration one" in caplog.text
    assert "migration other" not in caplog.text


def test_open_relays_are_not_reopened_until_closed() -> None:
    made: list[str] = []

    def make(uid: str, *_: object) -> Faulty:
        made.append(uid)
        return Faulty(uid, None)

    async def scene() -> None:
        relays = Relays(make, changed=lambda _uid: None)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(relays.run())
            for _ in range(2):
                await relays.open("one", "pod", Destination("n", "127.0.0.1:1"))
            assert made == ["one"]
            relays.close("one")
            await asyncio.sleep(0)
            await relays.open("one", "pod", Destination("n", "127.0.0.1:1"))
            assert made == ["one", "one"]
            running.cancel()

    run(scene())


class Unready(Faulty):
    async def run(self) -> None:
        await asyncio.Event().wait()


def test_relays_that_do_not_open_are_awaited_for_a_bounded_time() -> None:
    async def scene() -> None:
        relays = Relays(lambda uid, *_: Unready(uid, None), changed=lambda _uid: None)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(relays.run())
            with pytest.raises(TimeoutError):
                await relays.open("one", "pod", Destination("n", "127.0.0.1:1"))
            assert asyncio.get_running_loop().time() == pytest.approx(READY_SECONDS, abs=1)
            running.cancel()

    run(scene())
