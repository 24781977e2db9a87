from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.client.config import Config
from apiserver.client.rest import Client
from apiserver.kubectl import messages, top
from apiserver.kubectl.access import Access
from apiserver.kubectl.top import Wanted
from tests.fakes.aggregating import AggregatingAPI

VM = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "spec": {"domain": {"memory": {"guest": "64Mi"}}}}


class Cluster:
    def __init__(self, api: AggregatingAPI, served: Config, client: Client) -> None:
        self._api, self._client = api, client
        self.access = Access(server=served.server, namespace="ns")

    async def machine(self, name: str, cpu: str, namespace: str = "ns", phase: str = "Running", **labels: str) -> None:
        made = await self._client.create(VIRTUAL_MACHINES, {**VM, "metadata": {"name": name, "labels": labels}}, namespace)
        status = {"phase": phase, "attempt": 1, "nodeName": "node1", "podName": f"pod-of-{name}"}
        await self._client.update(VIRTUAL_MACHINES, {**made, "status": status}, subresource="status")
        await self.metrics(f"pod-of-{name}", cpu, namespace, {names.VM_NAME_LABEL: name})

    async def metrics(self, pod: str, cpu: str, namespace: str, labels: dict[str, str]) -> None:
        containers = [{"name": "compute", "usage": {"cpu": cpu, "memory": "100Mi"}}]
        await self._api.put(top.POD_METRICS.path(), a_metric(pod, namespace, labels, containers))

    async def lines(self, page: int = 100, **wanted: Any) -> list[list[str]]:
        return [each.split() for each in (await top.show(self.access, Wanted(**wanted), page)).splitlines()]


def a_metric(pod: str, namespace: str, labels: dict[str, str], containers: list[dict[str, Any]]) -> dict[str, Any]:
    return {"metadata": {"name": pod, "namespace": namespace, "labels": labels}, "containers": containers}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    api = AggregatingAPI()
    async with api.aggregating(tmp_path) as ours, api.serving() as served, Client(ours, user_agent="test") as client:
        yield Cluster(api, served, client)


async def test_running_machines_are_listed_with_their_use(cluster: Cluster) -> None:
    assert await top.show(cluster.access, Wanted()) == "No virtual machine in namespace ns has a guest."
    await cluster.machine("web", "1500m", app="web")
    await cluster.machine("db", "20m")
    await cluster.machine("off", "7m", phase="Stopped")
    await cluster.machine("far", "30m", namespace="other")
    await cluster.metrics("another-pod", "9", "ns", {})
    titles = ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert await cluster.lines(page=1) == [titles, ["db", "20m", "100Mi"], ["web", "1500m", "100Mi"]]
    assert await cluster.lines(sort_by="cpu", headers=False) == [["web", "1500m", "100Mi"], ["db", "20m", "100Mi"]]
    assert await cluster.lines(selector="app=web", headers=False) == [["web", "1500m", "100Mi"]]
    assert await cluster.lines(name="db", headers=False) == [["db", "20m", "100Mi"]]
    assert [row[:2] for row in await cluster.lines(all_namespaces=True, headers=False)] == [["ns", "db"], ["ns", "web"], ["other", "far"]]


async def test_a_machine_that_does_not_exist_is_named(cluster: Cluster) -> None:
    with pytest.raises(messages.Failure, match="absent"):
        await top.show(cluster.access, Wanted(name="absent"))
    with pytest.raises(messages.Failure, match=r"omit -A, or the name$"):
        await top.show(cluster.access, Wanted(name="absent", all_namespaces=True))
    await cluster.machine("off", "7m", phase="Stopped")
    with pytest.raises(messages.Failure, match=r"^error: virtual machine ns/off does not run, so it uses nothing$"):
        await top.show(cluster.access, Wanted(name="off"))


async def test_a_cluster_without_a_metrics_api_is_told_what_to_install(tmp_path: Path) -> None:
    async with AggregatingAPI().aggregating(tmp_path) as ours:
        access = Access(server=ours.server, namespace="ns", tls=ours.ssl_context())
        with pytest.raises(messages.Failure, match=r"^error: Metrics API not available .* install metrics-server$"):
            await top.show(access, Wanted())
