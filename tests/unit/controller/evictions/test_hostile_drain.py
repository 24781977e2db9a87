from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta.objects import labels_of, name_of, namespace_of, uid_of
from apiserver.apis.virt.lifecycle import evictions
from controller.evictions.eviction_plan import Limits, Observed, plan
from controller.evictions.outcomes import Outcomes
from controller.evictions.places import CLUSTER
from controller.evictions.waiting import Waiting
from tests.unit.controller.evictions.test_eviction_plan import NOW, a_cordoned_node, a_running_vm
from tests.unit.controller.reconcilers.builders import a_pod

DRAIN_SECONDS = 5.0
"""Between two requests of ``kubectl drain`` for one pod."""
MOVE_SECONDS = 10.0
TICK_SECONDS = 0.25


def a_guest(namespace: str, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    vm, pod, uid = a_running_vm(), a_pod(), f"{namespace}-{number}"
    vm["metadata"] |= {"name": f"vm{number}", "namespace": namespace, "uid": uid}
    pod["metadata"] |= {"name": f"virt-launcher-vm{number}-aaaaa", "namespace": namespace, "uid": f"pod-{uid}"}
    pod["metadata"]["ownerReferences"][0] |= {"name": f"vm{number}", "uid": uid}
    vm["status"] |= {"podName": name_of(pod), "podUID": uid_of(pod)}
    return vm, pod


@dataclass
class Cluster:
    """One virt-controller with a simulated clock."""

    ends_after: float
    """Seconds until an evacuation of a tenant's guest ends."""
    end: str
    """Its phase then; ``deleted``: it is removed."""
    at: float = 0.0
    moved: set[str] = field(default_factory=set)
    migrations: dict[str, tuple[dict[str, Any], float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.outcomes, self.waiting = Outcomes(self), Waiting()

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.at)

    def evict(self, vm: dict[str, Any], pod: dict[str, Any]) -> None:
        node = str(pod["spec"]["nodeName"])
        seen = Observed(
            pod=pod,
            vm=vm,
            node=a_cordoned_node(),
            migrations=tuple(each for each, _ in self.migrations.values()),
            claims={},
            now=self.now(),
            limits=Limits(),
            history=self.outcomes.of(vm),
            waiting=self.waiting.at((node, CLUSTER), self.now()),
        )
        told = plan(seen)
        if told.waits_at is not None:
            self.waiting.note(told.waits_at, namespace_of(vm), self.now())
        if told.migration is not None:
            name = f"{name_of(vm)}-{self.at}"
            made = {**told.migration, "metadata": {**told.migration["metadata"], "name": name, "uid": name}}
            self.migrations[f"{namespace_of(vm)}/{name}"] = (made, self.at)
            self.outcomes.note(None, made)

    def tick(self) -> None:
        self.at += TICK_SECONDS
        for key, (old, began) in list(self.migrations.items()):
            is_tenants = namespace_of(old).startswith("tenant")
            if self.at - began < (self.ends_after if is_tenants else MOVE_SECONDS):
                continue
            phase = self.end if is_tenants else "Succeeded"
            del self.migrations[key]
            self.outcomes.note(old, None if phase == "deleted" else {**old, "status": {"phase": phase}})
            if phase == "Succeeded" and not is_tenants:
                self.moved.add(labels_of(old)[evictions.POD_LABEL])


@pytest.mark.parametrize("first", ["drain", "tenant"])
@pytest.mark.parametrize(("ends_after", "end"), [(58.0, "deleted"), (58.0, "Cancelled"), (60.0, "Failed"), (10.0, "Succeeded")], ids=str)
@pytest.mark.parametrize("machines", [2, 12])
def test_tenant_does_not_delay_its_nodes_drain_for_long(first: str, ends_after: float, end: str, machines: int) -> None:
    cluster, chance = Cluster(ends_after, end), random.Random(7)
    tenants = [a_guest("tenant", number) for number in range(machines)]
    others = [(chance.random() * DRAIN_SECONDS, a_guest("others", number)) for number in range(5)]
    ticks = 0
    while len(cluster.moved) < len(others):
        asked = [
            guest
            for start, guest in others
            if uid_of(guest[1]) not in cluster.moved and (cluster.at - start) % DRAIN_SECONDS < TICK_SECONDS
        ]
        for guest in [*asked, *tenants] if first == "drain" else [*tenants, *asked]:
            cluster.evict(*guest)
        cluster.tick()
        ticks += 1
        assert ticks * TICK_SECONDS < 150, f"{len(cluster.moved)} of {len(others)} moved"
