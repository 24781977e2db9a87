from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from controller.runtime.flowcontrol import TokenBucket
from controller.runtime.reconciling import Request
from handler.pods.launcher import Connection
from handler.pods.limits import DEFAULT
from handler.pods.links import Holder, Link, Links
from launcher.protocol import messages
from tests.unit.controller.virtualtime import run

ME = Holder("vm", Request("ns", "a/b"))
OnStatus = Callable[[messages.Status], None]


class Pod:
    """A launcher that reports through ``on_status``; the next connections raise ``faults``."""

    def __init__(self) -> None:
        self.faults: list[Exception] = []
        self.connected = 0
        self.on_status: OnStatus = lambda _: None

    @asynccontextmanager
    async def connect(self, pod_uid: str, on_status: OnStatus, budget: TokenBucket) -> AsyncIterator[Connection]:
        self.connected += 1
        if self.faults:
            raise self.faults.pop(0)
        self.on_status = on_status
        yield cast(Connection, self)

    async def run(self) -> None:
        await asyncio.Event().wait()


class Node:
    def __init__(self, *uids: str) -> None:
        self.pods = {uid: Pod() for uid in uids}
        self.told: list[tuple[float, str, int]] = []
        self.links = Links(lambda uid, *more: self.pods[uid].connect(uid, *more), changed=self._changed)

    def _changed(self, link: Link) -> None:
        self.told.append((asyncio.get_running_loop().time(), link.pod_uid, link.status.revision if link.status else 0))

    def play(self, scenario: Callable[[Node], Any]) -> Node:
        async def scene() -> None:
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(self.links.run())
                await scenario(self)
                assert not running.done()
                running.cancel()

        run(scene())
        return self


def test_changes_are_sent_in_bursts_then_slowly_newest_always() -> None:
    async def flood(node: Node) -> None:
        node.links.acquire("pod-1", ME)
        await asyncio.sleep(1)
        for revision in range(1, 10_001):
            node.pods["pod-1"].on_status(messages.Status(revision))
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)

    node = Node("pod-1").play(flood)
    assert DEFAULT.changes_burst + 38 <= len(node.told) <= DEFAULT.changes_burst + 46
    assert node.told[-1][2] == 10_000


def test_a_change_that_comes_alone_is_told_at_once() -> None:
    async def speak(node: Node) -> None:
        node.links.acquire("pod-1", ME)
        await asyncio.sleep(1)
        for revision in range(1, 601):
            node.pods["pod-1"].on_status(messages.Status(revision))
            assert node.told[-1][2] == revision
            await asyncio.sleep(0.5)

    Node("pod-1").play(speak)


@pytest.mark.parametrize("fault", [ValueError("no uid"), RuntimeError("a defect"), KeyError("x"), UnicodeError("bytes")], ids=repr)
def test_fault_of_one_link_is_contained_and_retried(fault: Exception) -> None:
    async def meet(node: Node) -> None:
        node.pods["pod-1"].faults = [fault]
        node.links.acquire("pod-1", ME)
        node.links.acquire("pod-2", ME)
        await asyncio.sleep(1)
        assert node.links.acquire("pod-2", ME).connection is not None
        await asyncio.sleep(DEFAULT.fault_seconds + 1)
        assert node.links.acquire("pod-1", ME).connection is not None

    assert Node("pod-1", "pod-2").play(meet).pods["pod-1"].connected == 2


@pytest.mark.parametrize("uid", ["../../x", "", "a/b", "\x00", "x" * 64, None, ["x"], 7], ids=ascii)
def test_invalid_uid_gets_no_link(uid: Any) -> None:
    async def want(node: Node) -> None:
        with pytest.raises(ValueError, match="not a pod uid"):
            node.links.acquire(uid, ME)
        assert len(node.links) == 0

    Node().play(want)


def test_a_dropped_link_tells_nothing_more() -> None:
    async def drop(node: Node) -> None:
        node.links.acquire("pod-1", ME)
        await asyncio.sleep(1)
        for revision in range(1, 200):
            node.pods["pod-1"].on_status(messages.Status(revision))
        told = len(node.told)
        node.links.release(ME)
        await asyncio.sleep(10)
        assert len(node.told) == told

    Node("pod-1").play(drop)
