"""Relays by migration: what one meets stays with it."""

from __future__ import annotations

import asyncio

import pytest

from handler.relays.outgoing import Destination, Outgoing
from handler.relays.running import Relays
from tests.unit.controller.virtualtime import run


class Faulty(Outgoing):
    """Relays whose sockets are there, and which then meet something."""

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
def test_what_the_relays_of_one_migration_meet_ends_no_others(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    async def scene() -> None:
        relays = Relays(lambda uid, *_: Faulty(uid, fault if uid == "one" else None), changed=told.append)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(relays.run())
            for uid in ("one", "other"):
                await relays.open(uid, "pod", Destination("n", "127.0.0.1:1"))
            await asyncio.sleep(10)
            assert told == ["one"]
            await relays.open("one", "pod", Destination("n", "127.0.0.1:1"))  # anew
            running.cancel()

    run(scene())
    assert "migration one" in caplog.text
    assert "migration other" not in caplog.text
