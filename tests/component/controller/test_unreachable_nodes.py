from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition, is_true, name_of, uid_of
from apiserver.apis.virt import guards
from apiserver.apis.virt.places import names
from handler import heartbeat
from handler.devices.acceleration import Verdict
from tests.component.controller.test_controller import LEASES, NODES, PODS, VMS, Cluster, a_vm, working
from tests.fakes.kubeapi import FakeAPI

LEASE_NAMESPACE = names.node_lease_namespace("kubevirt")
HOLDS = 0.5
"""Seconds that a sign of life is valid; 40 in a cluster. Looks are not closer than ``MIN_REQUEUE_SECONDS``."""


class Node(Cluster):
    """Acts as node1's kubelet and as virt-handler, which reverts Unknown at once."""

    def __init__(self, api: FakeAPI) -> None:
        super().__init__(api)
        self._beats = itertools.count()
        self.took_back = 0
        self.now = 0.0

    def elapsed(self) -> float:
        return self.now

    async def beat(self, holds: float = HOLDS) -> None:
        now = f"1990-01-01T00:00:00.{next(self._beats):06}Z"
        lease = heartbeat.lease("node1", LEASE_NAMESPACE, Verdict(accelerated=False, reason="test"), now)
        lease["spec"]["leaseDurationSeconds"] = holds
        await self.api.put(LEASES, lease)

    @asynccontextmanager
    async def handler_living(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(self._handle())
            yield
            work.cancel()

    async def _handle(self) -> None:
        while True:
            await self.beat()
            if self.phase() == "Unknown":
                await self.report_running()
                self.took_back += 1
            self.now += HOLDS / 4
            await asyncio.sleep(0.05)

    async def falls_silent(self) -> None:
        """Advance time, without renewing the Lease, until the phase is Unknown. Repeats, because a late Lease event restarts the wait."""
        async with asyncio.timeout(30):
            while self.phase() != "Unknown":
                self.now += HOLDS
                await asyncio.sleep(0.1)

    async def kubelet(self, ready: str) -> None:
        await self.api.edit(NODES, "", "node1", lambda obj: obj["status"]["conditions"][0].update(status=ready))

    def status_writes(self) -> list[Any]:
        return [body for _, path, body in self.api.writes if path.endswith("/virtualmachines/testvm/status")]


@pytest.fixture
async def node(api: FakeAPI) -> AsyncIterator[Node]:
    node = Node(api)
    async with working(api, "--no-leader-elect", elapsed=node.elapsed):
        yield node


async def test_nothing_is_written_while_only_the_kubelet_is_silent(api: FakeAPI, node: Node) -> None:
    await node.beat()
    async with node.handler_living():
        await node.running()
        before = len(node.status_writes())
        await node.kubelet("Unknown")
        await asyncio.sleep(HOLDS * 2.2)  # two looks
        assert node.phase() == "Running"
        assert len(node.status_writes()) == before
        assert "NodeUnreachable" not in node.events()


async def test_machine_for_a_missing_node_waits_for_it(api: FakeAPI, node: Node) -> None:
    machine = a_vm()
    machine["spec"]["nodeName"] = "node9"
    await api.put(VMS, machine)
    await node.until(lambda: "NodeNotFound" in node.events(), "an event")
    ready = condition(node.vm()["status"]["conditions"], "Ready") or {}
    assert ready["message"].startswith('node "node9" not found; change spec.nodeName')
    assert api.all(PODS) == []
    await api.put(NODES, {"metadata": {"name": "node9"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    await node.pod()
    assert "NodeUnreachable" not in node.events()


async def test_silent_node_is_reported_once_and_recovers(api: FakeAPI, node: Node) -> None:
    await node.beat()
    async with node.handler_living():
        pod = await node.running()
        await node.kubelet("Unknown")
        await asyncio.sleep(0.1)
    before = len(node.status_writes())
    assert node.phase() == "Running"
    await node.falls_silent()
    ready = condition(node.vm()["status"]["conditions"], "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeUnreachable")
    assert "kubectl virt fence" in ready["message"]
    assert f"kubectl delete pod {name_of(pod)} --force" in ready["message"]
    await asyncio.sleep(HOLDS * 1.2)
    assert len(node.status_writes()) == before + 1
    assert node.events().count("NodeUnreachable") == 1
    async with node.handler_living():
        await node.phase_is("Running")
        await asyncio.sleep(HOLDS * 1.2)
    assert (node.phase(), node.took_back) == ("Running", 1)
    assert len(node.status_writes()) == before + 1


async def test_a_pod_whose_deletion_went_unseen_is_not_reported(api: FakeAPI, node: Node) -> None:
    """The deletion came while the node reported, so it says nothing about the node."""
    await node.beat()
    pod = await node.running()
    await node.kubelet("Unknown")
    await asyncio.sleep(0.1)
    api.drop_events(on=True)
    await api.remove(PODS, "ns", name_of(pod))
    await node.falls_silent()
    ready = condition(node.vm()["status"]["conditions"], "Ready") or {}
    assert (ready["status"], ready["reason"]) == ("Unknown", "PodMayRun")


async def test_handler_writing_before_its_lease_renewal_is_believed(api: FakeAPI, node: Node) -> None:
    await node.beat()
    await node.running()
    await node.kubelet("Unknown")
    await node.falls_silent()
    before = len(node.status_writes())
    await node.report_running()
    await asyncio.sleep(0.3)
    assert (node.phase(), len(node.status_writes())) == ("Running", before)
    await node.falls_silent()


async def test_a_renewal_that_the_watch_did_not_bring_is_asked_for(api: FakeAPI, node: Node) -> None:
    await node.beat()
    await node.running()
    before = len(node.status_writes())
    await node.kubelet("Unknown")
    await asyncio.sleep(0.1)
    api.drop_events(on=True)
    await node.beat()
    node.now += HOLDS
    asked = f"{LEASES.removesuffix('/leases')}/namespaces/{LEASE_NAMESPACE}/leases/virt-handler-node1"
    await node.until(lambda: asked in [path for method, path, _ in api.requests if method == "GET"], "a look at the Lease")
    await asyncio.sleep(0.1)
    api.drop_events(on=False)
    assert (node.phase(), len(node.status_writes())) == ("Running", before)


async def test_a_deleted_lease_is_a_silent_handler_at_once(api: FakeAPI, node: Node) -> None:
    await node.beat(holds=3600)
    await node.running()
    await node.kubelet("Unknown")
    await asyncio.sleep(0.1)
    assert node.phase() == "Running"
    await api.remove(LEASES, LEASE_NAMESPACE, names.handler_lease("node1"))
    await node.phase_is("Unknown")
    assert api.all(PODS)
    assert api.all(VMS)


async def test_a_sealed_promise_starts_the_machine_elsewhere(api: FakeAPI, node: Node) -> None:
    """No other event comes: the pod of the unreachable node stays as it is."""
    await node.beat()
    pod = await node.running()
    promised = guards.lease("node1", LEASE_NAMESPACE, guards.Promise(pods=(uid_of(pod),)), "1990-01-01T00:00:00Z", None)
    await api.put(LEASES, promised)
    await node.kubelet("Unknown")
    await node.falls_silent()
    await asyncio.sleep(0.1)
    assert node.phase() == "Unknown"
    await api.put(LEASES, guards.sealed(promised, "1990-01-01T00:01:00Z"))
    await node.pod(2)


@pytest.mark.parametrize("policy", ["Restart", "Wait"])
async def test_a_machine_of_a_node_that_is_off_restarts_or_waits(api: FakeAPI, node: Node, policy: str) -> None:
    """virt-controller reads the PriorityClasses with its own rights. The pod goes as for the taint."""
    await node.beat()
    pod = await node.running()
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["spec"].update(onNodeLoss=policy))
    await node.kubelet("Unknown")
    await node.falls_silent()
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    await api.edit(NODES, "", "node1", lambda obj: obj.setdefault("spec", {}).update(taints=[taint]))
    await api.remove(PODS, "ns", name_of(pod))
    await node.until(lambda: condition(node.vm()["status"]["conditions"], "NodeLost") is not None, "that its loss is recorded")
    if policy == "Restart":
        await node.pod(2)
        await node.until(lambda: not is_true(node.vm()["status"]["conditions"], "NodeLost"), "that its restart is recorded")
    else:
        await node.until(lambda: condition(node.vm()["status"]["conditions"], "Stalled") is not None, "that it waits")
        await asyncio.sleep(HOLDS * 1.2)
        assert api.all(PODS) == []
