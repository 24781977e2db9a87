from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition, dig
from apiserver.apis.virt.places import names
from tests.component.controller.test_controller import LEASES, MIGRATIONS, PODS, VMS, Cluster, a_vm, working
from tests.component.controller.test_migrations import a_migration
from tests.fakes.kubeapi import FakeAPI


def a_lease(node: str, versions: str) -> dict[str, Any]:
    metadata = {
        "name": names.handler_lease(node),
        "namespace": "kubevirt-node-lease",
        "labels": {names.COMPONENT_LABEL: names.HANDLER},
        "annotations": {"kubevirt.io/contract-versions": versions},
    }
    return {"metadata": metadata, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40}}


@pytest.fixture
async def cluster(api: FakeAPI) -> AsyncIterator[Cluster]:
    await api.put(LEASES, a_lease("node1", "1,2"))
    await api.put(LEASES, a_lease("node2", "2"))
    async with working(api, "--no-leader-elect"):
        yield Cluster(api)


def not_on(pod: dict[str, Any]) -> list[list[str]]:
    terms = dig(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms") or [{}]
    return [each["values"] for term in terms for each in term.get("matchFields") or () if each["operator"] == "NotIn"]


async def test_nodes_with_an_unsupported_handler_get_no_guests(api: FakeAPI, cluster: Cluster) -> None:
    assert not_on(await cluster.running()) == [["node2"]]
    await api.put(MIGRATIONS, a_migration("m"))
    target = await cluster.until(lambda: next((each for each in api.all(PODS) if not_on(each) == [["node1"], ["node2"]]), None), "target")
    assert dig(target, "metadata", "labels", names.MIGRATION_LABEL)


async def test_unschedulable_pod_names_excluded_nodes_and_reasons(api: FakeAPI, cluster: Cluster) -> None:
    await api.put(VMS, a_vm())
    pod = await cluster.pod()
    lacking = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
    await api.edit(PODS, "ns", pod["metadata"]["name"], lambda obj: obj.update(status={"phase": "Pending", "conditions": [lacking]}))
    ready = await cluster.until(
        lambda: (found := condition(cluster.vm()["status"]["conditions"], "Ready") or {}).get("reason") == "Unschedulable" and found,
        "Unschedulable",
    )
    assert ready["message"].endswith(
        "; node node2 cannot run guests: its virt-handler uses version 2 of the node protocol, but virt-controller "
        "uses 1; upgrade both to the same version"
    )


async def test_machine_naming_an_unsupported_node_waits(api: FakeAPI, cluster: Cluster) -> None:
    await api.put(VMS, a_vm(nodeName="node2"))
    await cluster.phase_is("Pending")
    ready = condition(cluster.vm()["status"]["conditions"], "Ready") or {}
    assert (ready["reason"], ready["message"].startswith("node node2 cannot run guests")) == ("HandlerNotUnderstood", True)
    assert api.all(PODS) == []
    await api.edit(LEASES, "kubevirt-node-lease", names.handler_lease("node2"), lambda obj: obj["metadata"]["annotations"].clear())
    await cluster.pod()
