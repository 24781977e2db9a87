from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from apiserver.apis.meta import errors
from apiserver.client.config import Config
from apiserver.client.rest import Client
from handler.cpu.publishing import Labels
from tests.component.handler.world import eventually
from tests.fakes import rbac
from tests.fakes.kubeapi import FakeAPI
from tests.unit.handler.cpu.test_capabilities import text

NODES = "/api/v1/nodes"
OTHERS = {"kubernetes.io/hostname": "n", "disk": "ssd"}


@dataclass
class Node:
    api: FakeAPI
    config: Config
    path: Path
    accelerated: bool = True

    def labels(self) -> dict[str, str]:
        (node,) = self.api.all(NODES)
        found: dict[str, str] = node["metadata"]["labels"]
        return found

    def publisher(self, client: Client) -> Labels:
        return Labels(client, "n", self.path, lambda: self.accelerated, retry_seconds=0.01)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    api = FakeAPI()
    api.authorize = rbac.authorizer("virt-handler")
    async with api.serving() as config:
        await api.put(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": dict(OTHERS)}})
        path = tmp_path / "kvm.json"
        path.write_text(text())
        yield Node(api, config, path)
        assert api.forbidden == []


async def once(node: Node) -> dict[str, str]:
    async with Client(node.config, user_agent="test") as client:
        labels = node.publisher(client)
        await labels.write(labels.wanted())
    return node.labels()


async def test_cpu_labels_are_added_to_others_and_removed_when_false(node: Node) -> None:
    found = await once(node)
    assert found.items() > OTHERS.items()
    assert found["cpu-model.node.kubevirt.io/EPYC"] == "true"
    node.path.write_text(text(custom="no"))
    found = await once(node)
    assert "cpu-model.node.kubevirt.io/EPYC" not in found
    assert found["host-model-cpu.node.kubevirt.io/EPYC-Rome"] == "true"
    node.accelerated = False
    assert await once(node) == OTHERS


async def test_unknown_capabilities_give_no_labels(node: Node) -> None:
    node.path.write_text("{")
    assert await once(node) == OTHERS
    node.path.unlink()
    assert await once(node) == OTHERS


async def test_a_failed_write_is_tried_again_and_a_verdict_is_followed(node: Node) -> None:
    node.api.refusals.append(errors.Forbidden("not yet"))
    node.accelerated = False
    async with Client(node.config, user_agent="test") as client, asyncio.TaskGroup() as tasks:
        labels = node.publisher(client)
        running = tasks.create_task(labels.run())
        await eventually(lambda: len(node.api.writes) > 0)
        node.accelerated = True
        labels.changed()
        await eventually(lambda: "cpu-model.node.kubevirt.io/EPYC" in node.labels())
        running.cancel()
