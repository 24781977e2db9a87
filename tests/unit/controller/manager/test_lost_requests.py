from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.apis.core.resources import NODES
from apiserver.client.informer import Informer
from controller.manager.lost_requests import SILENT_SECONDS, LostRequests

NO_CLIENT: Any = None


def node(ready: str) -> dict[str, Any]:
    return {"metadata": {"name": "node1"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


@pytest.mark.parametrize(
    ("states", "times"), [(["Unknown"], 2), (["True", "Unknown"], 2), (["Unknown", "Unknown"], 2), (["True"], 0), (["True", "False"], 0)]
)
async def test_requests_are_given_up_twice_after_a_loss(states: list[str], times: int) -> None:
    nodes, given_up = Informer(NO_CLIENT, NODES), list[tuple[str, float]]()
    lost = LostRequests(lambda path, seconds: given_up.append((path, seconds)), nodes, (0.0, 0.0))
    for each in states:
        nodes.remember(node(each))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(lost.run())
        for _ in range(10):
            await asyncio.sleep(0)
        running.cancel()
    assert given_up == [("/apis/kubevirt.io/", SILENT_SECONDS)] * times
