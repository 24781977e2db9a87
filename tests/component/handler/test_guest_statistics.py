from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controller.runtime.reconciling import Request
from handler.metrics.statistics import MISSING, GuestStatistics
from handler.pods import launcher
from handler.pods.links import Holder, Links
from handler.pods.reads import Reads
from launcher.protocol.statistics import NAME
from tests.component.handler.world import eventually
from tests.fakes.launcher import FakeLauncher

POD = "pod-1"


def a_machine(name: str, pod_uid: str, phase: str = "Running") -> dict[str, Any]:
    devices = [{"kind": "disk", "name": "root", "target": "vda"}, {"kind": "interface", "name": "default"}]
    return {"metadata": {"namespace": "ns", "name": name}, "status": {"phase": phase, "podUID": pod_uid, "devices": devices}}


class Node:
    def __init__(self, root: Path) -> None:
        self.launcher = FakeLauncher(POD)
        self.launcher.texts[NAME] = '{"cpu.time": 1000000000, "block.0.name": "vda", "block.0.rd.bytes": 7, "x": "y"}'
        self.links = Links(partial(launcher.connect, kubelet=root, identify=self.launcher.identify), changed=lambda _: None)
        self.machines = [a_machine("testvm", POD), a_machine("off", "pod-2", "Stopped")]
        self.statistics = GuestStatistics("node1", lambda: self.machines, Reads(self.links, wait_seconds=0.2, fresh_seconds=0.0))

    async def series(self) -> list[str]:
        return [each for each in (await self.statistics.page()).decode().splitlines() if not each.startswith("#")]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    async with made.launcher.serving(tmp_path), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.links.run())
        link = made.links.acquire(POD, Holder("vm", Request("ns", "testvm")))
        await eventually(lambda: link.connection is not None)
        yield made
        running.cancel()


async def test_a_page_has_the_statistics_of_guests(node: Node) -> None:
    machine = 'node="node1",namespace="ns",name="testvm"'
    assert await node.series() == [
        f"kubevirt_vmi_cpu_usage_seconds_total{{{machine}}} 1",
        f'kubevirt_vmi_storage_read_traffic_bytes_total{{{machine},drive="root"}} 7',
        f"{MISSING} 0",
    ]


@pytest.mark.parametrize("text", ["no json", "[]", None])
async def test_a_guest_without_an_answer_is_counted(node: Node, text: str | None) -> None:
    node.machines.append(a_machine("unlinked", "pod-3"))
    if text is None:
        del node.launcher.texts[NAME]
    else:
        node.launcher.texts[NAME] = text
    assert await node.series() == [f"{MISSING} 2"]
