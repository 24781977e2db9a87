from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from apiserver.apis.core.resources import LEASES, NODES
from apiserver.apis.meta import errors
from apiserver.client.informer import Informer
from controller.reconcilers.nodes.node_reports import NodeReports
from controller.reconcilers.pods import evidence, liveness
from controller.reconcilers.pods.absences import Absences, lingering_seconds
from controller.reconcilers.pods.evidence import Timed
from controller.reconcilers.pods.liveness import Absent, Decider, Over, Unknown, Verdict, Witness
from controller.reconcilers.trimming import trim_node
from tests.unit.controller.reconcilers.builders import a_vm

GRACE = 30.0
NO_CLIENT: Any = None
"""The server is not asked while a Lease counts."""


class NoLease:
    async def get(self, *_: Any) -> Any:
        raise errors.NotFound("there is no Lease")


NO_LEASE: Any = NoLease()


@dataclass
class World:
    now: float = 1000.0
    vm: dict[str, Any] = field(default_factory=a_vm)
    nodes: Informer = field(default_factory=lambda: Informer(NO_CLIENT, NODES))
    leases: Informer = field(default_factory=lambda: Informer(NO_CLIENT, LEASES))

    def __post_init__(self) -> None:
        self.absences = Absences(lambda: self.now)
        self.reports = NodeReports(NO_LEASE, self.nodes, self.leases, "kubevirt", lambda: self.now)
        self.kubelet("True")
        self.leases.remember({"metadata": {"name": "virt-handler-node1"}, "spec": {"renewTime": "a", "leaseDurationSeconds": 120}})

    def kubelet(self, ready: str) -> None:
        self.nodes.remember({"metadata": {"name": "node1"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})

    async def look(self) -> Verdict:
        pod = Absent("pod", "uid", "node1", self.absences.left(self.vm, "uid", GRACE))
        found = await evidence.gather(self.reports, ["node1", ""], [Timed(pod, self.absences, self.vm)])
        assert found.absent == (pod,)
        return liveness.verdict(pod, found)


async def test_a_pod_that_is_gone_is_over_after_its_grace_period() -> None:
    world = World()
    assert await world.look() == Unknown(Decider.TIME, lingering_seconds(GRACE))
    world.now += GRACE
    assert await world.look() == Unknown(Decider.TIME, lingering_seconds(GRACE) - GRACE)
    world.now += lingering_seconds(GRACE) - GRACE
    assert await world.look() == Over(Witness.TIME)


async def test_grace_period_restarts_when_a_silent_kubelet_reports() -> None:
    world = World()
    await world.look()
    world.kubelet("Unknown")
    world.now += 20.0
    found = await world.look()
    assert isinstance(found, Unknown)
    assert found.until is Decider.KUBELET
    world.now += 60.0
    world.kubelet("True")
    assert await world.look() == Unknown(Decider.TIME, lingering_seconds(GRACE))


async def test_grace_period_restarts_when_a_silent_node_reports() -> None:
    world = World()
    world.kubelet("Unknown")
    world.now += 121.0
    assert await world.look() == liveness.LOST
    assert not world.absences.went_first(world.vm, "uid")
    world.now += 60.0
    world.kubelet("True")
    assert await world.look() == Unknown(Decider.TIME, lingering_seconds(GRACE))
    assert world.absences.went_first(world.vm, "uid")
    world.kubelet("Unknown")
    assert await world.look() == liveness.LOST


@pytest.mark.parametrize(("boot", "fenced", "before"), [("a" * 32, {"node1"}, set()), ("b" * 32, set(), {"node1"})])
async def test_a_forgotten_fence_says_nothing_of_a_new_boot(boot: str, fenced: set[str], before: set[str]) -> None:
    world = World()
    taint = {"key": "node.kubernetes.io/out-of-service", "value": f"nodeshutdown-boot-{'a' * 32}", "effect": "NoExecute"}
    status = {"conditions": [{"type": "Ready", "status": "Unknown"}], "nodeInfo": {"bootID": boot}}
    world.nodes.remember(trim_node({"metadata": {"name": "node1"}, "spec": {"taints": [taint]}, "status": status}))
    world.now += 121.0
    found = await world.reports.unreachable(["node1"])
    assert (set(found.fenced), set(found.fenced_before)) == (fenced, before)


@pytest.mark.parametrize("node", [None, {"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}}])
async def test_a_person_calls_a_silent_node_off(node: dict[str, Any] | None) -> None:
    world = World()
    if node is None:
        world.reports = NodeReports(NO_LEASE, Informer(NO_CLIENT, NODES), world.leases, "kubevirt", lambda: world.now)
    else:
        silent = {"metadata": {"name": "node1"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        world.nodes.remember(trim_node(node | silent))
    world.now += 121.0
    assert await world.look() == Over(Witness.PERSON)
