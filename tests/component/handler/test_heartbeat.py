from __future__ import annotations

import asyncio

import pytest

from apiserver.apis.virt.places import names
from apiserver.client.rest import Client
from controller.runtime.clock import SystemClock
from handler import heartbeat
from handler.devices.acceleration import Verdict
from tests.fakes import rbac
from tests.fakes.kubeapi import FakeAPI

LEASES = "/apis/coordination.k8s.io/v1/leases"
NAMESPACE = names.node_lease_namespace("kubevirt")


async def test_the_lease_is_made_and_renewed_where_nothing_else_is() -> None:
    api = FakeAPI()
    api.authorize = rbac.authorizer("virt-handler")
    api.users["secret"] = {"extra": {names.NODE_CLAIM: ["node1"], names.NODE_UID_CLAIM: ["uid-1"]}}
    async with api.serving() as config, Client(config, user_agent="test") as client, asyncio.TaskGroup() as tasks:
        verdict = Verdict(accelerated=False, reason="test")
        beating = tasks.create_task(heartbeat.run(client, "node1", NAMESPACE, lambda: verdict, SystemClock(), renew_seconds=0.02))
        async with asyncio.timeout(10):
            while len(api.writes) < 3:
                await asyncio.sleep(0.01)
        beating.cancel()
    lease = api.get(LEASES, NAMESPACE, "virt-handler-node1")
    assert lease["spec"]["holderIdentity"] == "node1"
    assert lease["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "uid-1"}]
    assert api.forbidden == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/namespaces/kubevirt/leases"),
        ("PATCH", "/namespaces/kubevirt/leases/virt-controller"),
        ("PATCH", "/namespaces/kubevirt/leases/virt-handler-node1"),
        ("PUT", f"/namespaces/{NAMESPACE}/leases/virt-handler-node1"),
        ("DELETE", f"/namespaces/{NAMESPACE}/leases/virt-handler-node1"),
        ("GET", "/namespaces/kubevirt/leases/virt-controller"),
    ],
)
def test_virt_handler_has_no_right_to_any_lease_elsewhere(method: str, path: str) -> None:
    allowed = rbac.authorizer("virt-handler")
    assert not allowed(method, f"/apis/coordination.k8s.io/v1{path}", {})


def test_virt_controller_reads_node_leases_and_writes_its_own() -> None:
    allowed = rbac.authorizer("virt-controller")
    base = "/apis/coordination.k8s.io/v1/namespaces"
    assert allowed("GET", f"{base}/{NAMESPACE}/leases/virt-handler-node1", {})
    assert not allowed("PATCH", f"{base}/{NAMESPACE}/leases/virt-handler-node1", {})
    assert allowed("PUT", f"{base}/kubevirt/leases/virt-controller", {})
    assert not allowed("GET", f"{base}/kubevirt/leases/another", {})
