from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from apiserver.apis.meta.objects import NamespacedName
from controller.evictions.looks import SECONDS, Kept, Look, Shared
from tests.unit.controller.reconcilers.builders import a_pod

POD = NamespacedName("default", "a")


class Reads:
    def __init__(self) -> None:
        self.begun = 0
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> str:
        self.begun += 1
        return await asyncio.shield(self.answer)


async def until(reads: Reads, begun: int) -> None:
    async with asyncio.timeout(10):
        while reads.begun < begun:
            await asyncio.sleep(0)


async def test_callers_of_one_key_share_a_read_and_others_do_not() -> None:
    shared: Shared[str, str] = Shared()
    reads = Reads()
    async with asyncio.TaskGroup() as tasks:
        callers = [tasks.create_task(shared.get(key, reads)) for key in ("a", "a", "b")]
        await until(reads, 2)
        reads.answer.set_result("read")
    assert [each.result() for each in callers] == ["read"] * 3
    assert reads.begun == 2
    assert await shared.get("a", reads) == "read"
    assert reads.begun == 3, "an answer is not kept"


async def test_a_result_of_none_is_shared_too() -> None:
    shared: Shared[str, None] = Shared()
    begun = 0

    async def read() -> None:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(shared.get("a", read))
    assert begun == 1


async def test_a_cancelled_reader_leaves_the_read_to_the_next() -> None:
    shared: Shared[str, str] = Shared()
    reads = Reads()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(shared.get("a", reads))
        await until(reads, 1)
        second = tasks.create_task(raises(shared.get("a", reads)))
        await asyncio.sleep(0)
        first.cancel()
        await until(reads, 2)
        reads.answer.set_exception(OSError("away"))
    assert first.cancelled()
    assert second.result() == "away"


async def raises(awaited: Awaitable[str]) -> str:
    with pytest.raises(OSError, match="away") as caught:
        await awaited
    return str(caught.value)


def a_kept(limit: int = 256) -> tuple[Kept, list[float]]:
    now = [100.0]
    return Kept(lambda: now[0], limit), now


def test_a_look_is_kept_for_some_seconds() -> None:
    kept, now = a_kept()
    look = Look(a_pod())
    kept.keep(POD, look)
    now[0] += SECONDS - 0.1
    assert kept.get(POD) == look
    assert kept.get(NamespacedName("other", "a")) is None
    now[0] += 0.1
    assert kept.get(POD) is None
    assert len(kept) == 0


def test_a_new_look_replaces_the_old_and_lasts_as_long() -> None:
    kept, now = a_kept()
    kept.keep(POD, Look(None))
    now[0] += SECONDS - 1
    kept.keep(POD, Look(a_pod()))
    now[0] += SECONDS - 1
    assert kept.get(POD) == Look(a_pod())
    assert len(kept) == 1


def test_looks_are_limited_and_lack_managed_fields() -> None:
    kept, _ = a_kept(limit=2)
    pod = a_pod()
    pod["metadata"]["managedFields"] = [{"manager": "kubelet"}]
    for name in "abc":
        kept.keep(NamespacedName("default", name), Look(pod))
    assert [kept.get(NamespacedName("default", name)) for name in "abc"] == [None, Look(a_pod()), Look(a_pod())]
    assert "managedFields" in pod["metadata"], "the caller's object is not changed"
