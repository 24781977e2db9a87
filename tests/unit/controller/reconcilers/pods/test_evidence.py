"""Evidence of one pass, with the real memories: which nodes are silent, and since when pods are gone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from apiserver.apis.core.resources import LEASES, NODES
from apiserver.client.informer import Informer
from controller.reconcilers.nodes.node_reports import NodeReports
from controller.reconcilers.pods import evidence, liveness
from controller.reconcilers.pods.absences import KUBELET_SECONDS, Absences
from controller.reconcilers.pods.evidence import Timed
from controller.reconcilers.pods.liveness import Absent, Decider, Over, Unknown, Verdict, Witness
from tests.unit.controller.reconcilers.builders import a_vm

GRACE = 30.0
NO_CLIENT: Any = None
"""Nothing is asked of the server as long as a Lease counts."""


@dataclass
class World:
    """A machine whose pod is gone, and the reports of its node."""

    now: float = 1000.0
    vm: dict[str, Any] = field(default_factory=a_vm)
    nodes: Informer = field(default_factory=lambda: Informer(NO_CLIENT, NODES))
    leases: Informer = field(default_factory=lambda: Informer(NO_CLIENT, LEASES))

    def __post_init__(self) -> None:
        self.absences = Absences(lambda: self.now)
        self.reports = NodeReports(NO_CLIENT, self.nodes, self.leases, "kubevirt", lambda: self.now)
        self.kubelet("True")
        self.leases.remember({"metadata": {"name": "virt-handler-node1"}, "spec": {"renewTime": "a", "leaseDurationSeconds": 120}})

    def kubelet(self, ready: str) -> None:
        self.nodes.remember({"metadata": {"name": "node1"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})

    async def look(self) -> Verdict:
        """Gather the evidence of one pass, as the loops do, and judge the pod."""
        pod = Absent("pod", "uid", "node1", self.absences.left(self.vm, "uid", GRACE))
        found = await evidence.gather(self.reports, ["node1", ""], [Timed(pod, self.absences, self.vm)])
        assert found.absent == (pod,)
        return liveness.verdict(pod, found)


async def test_a_pod_that_is_gone_is_over_after_its_grace_period() -> None:
    world = World()
    assert await world.look() == Unknown(Decider.TIME, GRACE + KUBELET_SECONDS)
    world.now += GRACE
    assert await world.look() == Unknown(Decider.TIME, KUBELET_SECONDS)
    world.now += KUBELET_SECONDS
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
    assert await world.look() == Unknown(Decider.TIME, GRACE + KUBELET_SECONDS)
