"""The simulated nodes, each with the pod of its virt-handler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from apiserver.apis.core.resources import LEASES, NODES, PODS
from apiserver.apis.meta.objects import Object, dig, is_true
from apiserver.apis.virt.places import names
from apiserver.client.rest import Client
from benchmarks.scale import chart
from benchmarks.scale.chart import NAMESPACE
from benchmarks.scale.cluster import Cluster
from benchmarks.scale.handlers import Node
from tests.unit.controller.reconcilers.processors import MILAN, labels_of_processor

GROUP: Final = "bench.kubevirt.io/group"
"""Label of a Node: the process that simulates it."""
RACK: Final = "rack"
RACK_NODES: Final = 40
HALL_GUESTS: Final = 1_500
"""One process's guests: they have some 15,000 open files."""
AT_ONCE: Final = 16
REPORT_SECONDS: Final = 1_800
_ALLOCATABLE: Final = {
    "cpu": "64",
    "memory": "256Gi",
    "ephemeral-storage": "1Ti",
    "pods": "250",
    names.TUN_RESOURCE: "1000",
    names.KVM_RESOURCE: "1000",
}
_PROCESSOR: Final = labels_of_processor(*MILAN)
_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Groups:
    """The nodes' names, by the process that simulates them."""

    members: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, count: int, guests: int) -> Groups:
        """Divide ``count`` nodes with ``guests`` machines each into halls of some ``HALL_GUESTS`` guests and the rack.

        The rack is a tenth of the nodes, at least one, at most ``RACK_NODES`` or as many as a hall.
        """
        every = tuple(f"node-{number:05}" for number in range(count))
        hall = max(2, HALL_GUESTS // guests)
        split = count - max(1, min(RACK_NODES, hall, count // 10))
        halls = {f"hall-{number}": every[at : min(at + hall, split)] for number, at in enumerate(range(0, split, hall))}
        return cls({**halls, RACK: every[split:]})

    @property
    def rack(self) -> tuple[str, ...]:
        """The nodes that fail."""
        return self.members[RACK]

    @property
    def drained(self) -> tuple[str, ...]:
        """The nodes among which guests move in a drain."""
        return self.members["hall-0"]

    @property
    def count(self) -> int:
        """The number of all nodes."""
        return sum(map(len, self.members.values()))


def node(name: str, group: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {names.HOSTNAME_LABEL: name, "kubernetes.io/os": "linux", GROUP: group, **_PROCESSOR}},
        "status": {"allocatable": _ALLOCATABLE, "capacity": _ALLOCATABLE},
    }


def handler_pod(name: str) -> Object:
    template = chart.template("DaemonSet", "virt-handler")
    metadata = {"name": f"virt-handler-{name}", "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], "nodeName": name}}


async def start(cluster: Cluster, client: Client, groups: Groups, tell: Callable[[str], None]) -> None:
    """Create the nodes, and start their kubelets and virt-handlers; return when all report. ``tell`` shows progress."""
    for group, members in groups.members.items():
        await in_parallel(members, lambda name, group=group: client.create(NODES, node(name, group)))  # type: ignore[misc]  # a default binds the name
    cluster.start_kubelets(RACK, f"{GROUP}={RACK}", "10.128.0.1/9")
    cluster.start_kubelets("others", f"{GROUP}!={RACK}", "10.0.0.1/9")
    await until(lambda: _all_ready(client, groups.count), "all nodes are ready")
    for group, members in groups.members.items():
        pods = await in_parallel(members, lambda name: _running(client, name))
        cluster.start_handlers(group, [_described(cluster, each) for each in pods])
        tell(f"virt-handlers of {group}")
    await until(lambda: all_report(client, groups.count), "every virt-handler reports", REPORT_SECONDS)


async def _running(client: Client, name: str) -> Object:
    made = await client.create(PODS, handler_pod(name))
    while not dig(made, "status", "podIP"):
        await asyncio.sleep(0.2)
        made = await client.get(PODS, made["metadata"]["name"], NAMESPACE)
    return made


def _described(cluster: Cluster, pod: dict[str, Any]) -> Node:
    return Node(pod["spec"]["nodeName"], pod["status"]["podIP"], cluster.token("virt-handler", pod))


async def _all_ready(client: Client, count: int) -> bool:
    listed = (await client.list(NODES))["items"]
    return sum(is_true(dig(each, "status", "conditions"), "Ready") for each in listed) == count


async def all_report(client: Client, count: int) -> bool:
    """Return whether ``count`` virt-handlers have a Lease."""
    return len((await client.list(LEASES, chart.LEASES))["items"]) == count


async def until(holds: Callable[[], Awaitable[bool]], what: str, seconds: float = 600, pause: float = 0.5) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await holds():
                await asyncio.sleep(pause)
    except TimeoutError:
        raise TimeoutError(f"waited {seconds:.0f} s until {what}") from None


async def in_parallel(items: Collection[_K], work: Callable[[_K], Awaitable[_T]], at_once: int = AT_ONCE) -> list[_T]:
    """Call ``work`` for each item, some at a time; return the results in order."""
    found: dict[_K, _T] = {}
    left = iter(items)

    async def worker() -> None:
        for each in left:
            found[each] = await work(each)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(worker())
    return [found[each] for each in items]
