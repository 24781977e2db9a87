from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.client.rest import Client
from apiserver.kubectl import access, commands, outdated
from apiserver.kubectl.access import Access, Selection
from tests.fakes.aggregating import AggregatingAPI

VM = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "spec": {"domain": {"memory": {"guest": "64Mi"}}}}
OUTDATED = {
    "type": "LauncherOutdated",
    "status": "True",
    "reason": "WillMigrate",
    "message": "virt-launcher has image launcher:v1",
}
TIME = {"lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with AggregatingAPI().aggregating(tmp_path) as ours, Client(ours, user_agent="test") as client:
        yield client


@pytest.fixture
async def found(tmp_path: Path, client: Client) -> Access:
    del client
    return await access.load(Selection(kubeconfig=str(tmp_path / "kubeconfig"), namespace="ns"))


async def put(client: Client, namespace: str, name: str, *conditions: dict[str, Any]) -> None:
    made = await client.create(VIRTUAL_MACHINES, {**VM, "metadata": {"name": name}}, namespace)
    status = {
        "phase": "Running",
        "attempt": 1,
        "nodeName": "node1",
        "podName": "p",
        "conditions": [{**each, **TIME} for each in conditions],
    }
    await client.update(VIRTUAL_MACHINES, {**made, "status": status}, subresource="status")


async def test_outdated_machines_are_listed_with_their_way(client: Client, found: Access) -> None:
    assert await outdated.show(found, all_namespaces=False, page=1) == "No virtual machine in namespace ns has an outdated virt-launcher."
    await put(client, "ns", "current", {**OUTDATED, "status": "False"})
    await put(client, "ns", "old", OUTDATED)
    await put(client, "ns", "plain")
    await put(client, "other", "elsewhere", OUTDATED)
    assert (await outdated.show(found, all_namespaces=False, page=1)).splitlines() == [
        "NAME   NODE    UPDATE        MESSAGE",
        "old    node1   WillMigrate   virt-launcher has image launcher:v1",
    ]
    assert [each.split()[:2] for each in (await outdated.show(found, all_namespaces=True, page=1)).splitlines()] == [
        ["NAMESPACE", "NAME"],
        ["ns", "old"],
        ["other", "elsewhere"],
    ]


def test_a_cluster_that_does_not_answer_is_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config"
    config.write_text("{apiVersion: v1, kind: Config, clusters: [], contexts: [], users: []}")
    assert commands.run(["outdated", "-A", "--kubeconfig", str(config), "--server", "http://127.0.0.1:1"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
