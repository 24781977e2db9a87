"""``make bench-start``: seconds from create to Running of N tiny virtual machines, by stage, and their memory.

Machines start one after the other. Times are a client's: its POST's response, its watches' events, ``GUEST-READY`` on the console.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.client import watching
from apiserver.client.config import Config
from apiserver.client.rest import Client
from tests.cluster import processes
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import tiny_vm

START_SECONDS = 120
STAGES = ("api", "controller", "scheduling", "pod_start", "libvirt", "guest")


@dataclass
class Timeline:
    """Monotonic times of one start, in seconds; 0: not yet."""

    sent: float
    answered: float = 0.0
    pod_created: float = 0.0
    pod_scheduled: float = 0.0
    pod_running: float = 0.0
    running: float = 0.0
    prompt: float = 0.0
    versions: set[str] = field(default_factory=set)

    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage, of ``create_to_running``, and ``own``: of virt-api and virt-controller."""
        moments = [self.sent, self.answered, self.pod_created, self.pod_scheduled, self.pod_running, self.running, self.prompt]
        stages = {name: end - begin for name, begin, end in zip(STAGES, moments, moments[1:], strict=False)}
        return {**stages, "create_to_running": self.running - self.sent, "own": stages["api"] + stages["controller"]}


@dataclass(frozen=True)
class Spread:
    """Seconds: median, 95th percentile, extremes."""

    p50: float
    p95: float
    min: float
    max: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Return median, 95th percentile, minimum and maximum of at least one value."""
        ordered = sorted(values)
        p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
        return cls(round(statistics.median(ordered), 3), round(p95, 3), round(ordered[0], 3), round(ordered[-1], 3))


async def follow(client: Client, resource: Resource, namespace: str, observe: Callable[[dict[str, Any], float], None], since: str) -> None:
    async for event in client.watch(resource, namespace, resource_version=since):
        if event.type != watching.BOOKMARK:
            observe(event.object, time.monotonic())


class Stopwatch:
    """Records the times of events by machine."""

    def __init__(self) -> None:
        self.timelines: dict[str, Timeline] = {}

    def machine(self, vm: dict[str, Any], now: float) -> None:
        """Count a VirtualMachine's version until it is Running; record ``now`` as the time of that."""
        timeline = self.timelines.get(vm["metadata"]["name"])
        if timeline is None or timeline.running:
            return
        timeline.versions.add(vm["metadata"]["resourceVersion"])
        if vm.get("status", {}).get("phase") == "Running":
            timeline.running = now

    def pod(self, pod: dict[str, Any], now: float) -> None:
        """Record ``now`` if a launcher pod is created, scheduled or Running for the first time."""
        timeline = self.timelines.get(pod["metadata"].get("labels", {}).get("vm.kubevirt.io/name", ""))
        if timeline is None:
            return
        timeline.pod_created = timeline.pod_created or now
        if pod["spec"].get("nodeName"):
            timeline.pod_scheduled = timeline.pod_scheduled or now
        if pod.get("status", {}).get("phase") == "Running":
            timeline.pod_running = timeline.pod_running or now


async def start_one(client: Client, kubectl: Kubectl, stopwatch: Stopwatch, name: str) -> Timeline:
    timeline = stopwatch.timelines[name] = Timeline(sent=time.monotonic())
    await client.create(VIRTUAL_MACHINES, tiny_vm(name), kubectl.namespace)
    timeline.answered = time.monotonic()
    async with asyncio.timeout(START_SECONDS):
        while not (timeline.running and timeline.pod_running):
            await asyncio.sleep(0.005)
        await asyncio.to_thread(_await_prompt, kubectl, name)
    timeline.prompt = time.monotonic()
    return timeline


def _await_prompt(kubectl: Kubectl, name: str) -> None:
    with console(kubectl, name) as guest:
        guest.expect("GUEST-READY", timeout=START_SECONDS)


async def measure(client: Client, kubectl: Kubectl, count: int) -> tuple[list[Timeline], dict[str, dict[str, list[float]]]]:
    stopwatch = Stopwatch()
    timelines = []
    versions = [(await client.list(each, kubectl.namespace))["metadata"]["resourceVersion"] for each in (VIRTUAL_MACHINES, PODS)]
    async with asyncio.TaskGroup() as group:
        watches = [
            group.create_task(follow(client, VIRTUAL_MACHINES, kubectl.namespace, stopwatch.machine, versions[0])),
            group.create_task(follow(client, PODS, kubectl.namespace, stopwatch.pod, versions[1])),
        ]
        for number in range(count):
            timelines.append(await start_one(client, kubectl, stopwatch, f"bench-{number}"))
            print(f"  {number + 1}/{count}: {timelines[-1].stages()['create_to_running']:.2f} s to Running", file=sys.stderr)
        for watch in watches:
            watch.cancel()
    return timelines, memory(kubectl)


def memory(kubectl: Kubectl) -> dict[str, dict[str, list[float]]]:
    system = kubectl.within("kubevirt")
    found: dict[str, dict[str, list[float]]] = {}
    for component in ("virt-api", "virt-controller", "virt-handler"):
        pods = system.json("get", "pods", "-l", f"kubevirt.io={component}")["items"]
        found[component] = _mib([list(processes.of_pod(pod)) for pod in pods])
    launchers = [processes.of_pod(pod) for pod in kubectl.json("get", "pods", "-l", "kubevirt.io=virt-launcher")["items"]]
    for name in ("virt-launcher", "libvirtd"):
        found[name] = _mib(
            [[pid for pid, command in each.items() if f"/{name}" in command and "qemu-system" not in command] for each in launchers]
        )
    found["launcher and libvirtd"] = {
        kind: [round(sum(both), 1) for both in zip(found["virt-launcher"][kind], found["libvirtd"][kind], strict=True)]
        for kind in found["libvirtd"]
    }
    return found


def _mib(pods: list[list[int]]) -> dict[str, list[float]]:
    ways = {"resident": processes.resident_kib, "proportional": processes.proportional_kib}
    return {kind: [round(sum(map(kib, pids)) / 1024, 1) for pids in pods] for kind, kib in ways.items()}


def report(timelines: list[Timeline], memory_mib: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    stages = [each.stages() for each in timelines]
    names = ("create_to_running", "own", *STAGES)
    return {
        "machines": len(timelines),
        "seconds": {name: asdict(Spread.of([each[name] for each in stages])) for name in names},
        "writes_per_machine": {"max": max(len(each.versions) for each in timelines)},
        "memory_mib": memory_mib,
        "samples": stages,
    }


def show(result: dict[str, Any]) -> None:
    print(f"{result['machines']} machines, one after the other; seconds")
    print(f"{'stage':20}{'p50':>8}{'p95':>8}{'min':>8}{'max':>8}")
    for name, spread in result["seconds"].items():
        print(f"{name:20}{spread['p50']:8.2f}{spread['p95']:8.2f}{spread['min']:8.2f}{spread['max']:8.2f}")
    print(f"writes to a machine from create to Running, create included: at most {result['writes_per_machine']['max']}")
    print(f"{'MiB, median':24}{'resident':>12}{'proportional':>14}")
    for name, found in result["memory_mib"].items():
        print(f"{name:24}{statistics.median(found['resident']):12.1f}{statistics.median(found['proportional']):14.1f}")


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    kubectl = Kubectl(Path(arguments.kubeconfig), arguments.namespace)
    kubectl("create", "namespace", kubectl.namespace)
    kubectl("label", "namespace", kubectl.namespace, "pod-security.kubernetes.io/enforce=restricted")
    try:
        async with Client(Config.from_kubeconfig(arguments.kubeconfig), user_agent="bench-start") as client:
            return report(*await measure(client, kubectl, arguments.count))
    finally:
        await asyncio.to_thread(kubectl, "delete", "namespace", kubectl.namespace, "--timeout=300s", timeout=310)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the start of tiny virtual machines on the test cluster.")
    parser.add_argument("--kubeconfig", required=True, help="kubeconfig of the test cluster, with the chart installed")
    parser.add_argument("--count", type=int, default=10, help="how many machines (default 10)")
    parser.add_argument("--namespace", default="bench-start", help="namespace to make and remove (default bench-start)")
    parser.add_argument("--output", type=Path, default=Path("build/bench/start.json"), help="where the JSON goes")
    arguments = parser.parse_args()
    result = asyncio.run(run(arguments))
    show(result)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
