"""Cuts: SIGKILL to processes, and links at the nodes' veth pairs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from tests.cluster import processes
from tests.cluster.kube import Kubectl
from tests.cluster.test_bad_days import containers, is_ready
from tests.cuts.description import KUBELET_SECONDS, OFF_SECONDS
from tests.cuts.reading import Reader, until
from tests.testbed import layout, nodes, progress
from tests.testbed import processes as testbed_processes

RELAY_PORT: Final = 8445
PARTS: Final = ("virt-api", "virt-controller", "virt-handler", "etcd")

BEGIN_SECONDS: Final = 20
"""Under load virt-launcher starts libvirtd seconds after its own start."""
_PROGRAMS: Final = {"libvirtd": "libvirtd", "launcher": "virt-launcher", "qemu": "qemu-system"}


@dataclass(frozen=True)
class Place:
    source: str
    target: str
    source_pod: str
    target_pod: str = ""
    """Name of the migration's target pod; empty if the cut needs none."""
    target_pod_name: str = ""


def nothing_more() -> None:
    pass


class Cuts:
    def __init__(self, kubectl: Kubectl, reader: Reader, system: str) -> None:
        self._kubectl = kubectl
        self._reader = reader
        self._system = system
        self._killed: set[str] = set()

    def make(self, cut: str, place: Place) -> Callable[[], None]:
        what, _, side = cut.partition("-")
        match what:
            case "nothing":
                return nothing_more
            case "kubelet":
                return _kubelet(_node(place, side))
            case "nodes":
                return _links(layout.NODES, "isolated", on="off", off="on")
            case "source" | "target":
                cable = [each for each in layout.NODES if each.name == _node(place, what)]
                return _links(cable, "state", on="forwarding", off="disabled")
            case "pod":
                self._kubectl.api.delete("pod", place.target_pod_name)
            case "libvirtd" | "launcher" | "qemu":
                _kill_once_there(_pod(place, side), _PROGRAMS[what])
            case "relay":
                processes.kill(self.handler(_node(place, side)), containing="relays import program")
            case _:
                self._kill(until(lambda: self._running(what, place, side), seconds=BEGIN_SECONDS, what=f"a process of {cut}"))
        return nothing_more

    def _running(self, what: str, place: Place, side: str) -> list[dict[str, Any]]:
        return [pod for pod in self._parts(what, place, side) if processes.of_pod(pod)]

    def _parts(self, what: str, place: Place, side: str) -> list[dict[str, Any]]:
        match what:
            case "handler":
                return [self.handler(_node(place, side))]
            case "controller":
                return [self._leader()]
            case "api":
                return self.part("virt-api")
            case "etcd":
                return self.part("etcd")
            case _:
                raise ValueError(f"nobody knows how to cut {what}")

    def part(self, component: str) -> list[dict[str, Any]]:
        return self._reader.pods(self._system, f"kubevirt.io={component}")

    def handler(self, node: str) -> dict[str, Any]:
        found = [each for each in self.part("virt-handler") if each["spec"].get("nodeName") == node]
        if not found:
            raise LookupError(f"{node} has no virt-handler")
        return next((each for each in found if "deletionTimestamp" not in each["metadata"]), found[0])

    def sent(self, node: str) -> int:
        """Return the most bytes that one connection of the node sent to another virt-handler's relay port (ss(8)), or 0."""
        pids = processes.of_pod(self.handler(node))
        if not pids:
            return 0
        enter = ["nsenter", f"--net=/proc/{min(pids)}/ns/net", "--"]
        done = subprocess.run([*enter, "ss", "-tinOH", f"( dport = :{RELAY_PORT} )"], capture_output=True, text=True, check=False)
        return max(map(int, re.findall(r"bytes_sent:(\d+)", done.stdout)), default=0)

    def recovered(self) -> bool:
        try:
            pods = {component: self.part(component) for component in PARTS}
        except LookupError:
            return False
        for component, found in pods.items():
            if not is_ready(found) or any(not containers(pod) or containers(pod) & self._killed for pod in found):
                return False
            if component == "virt-handler" and len(found) != len(layout.NODES):
                return False
        return True

    @contextmanager
    def stopped(self, pods: Sequence[dict[str, Any]], program: str) -> Iterator[None]:
        pids = [pid for pod in pods for pid, command in processes.of_pod(pod).items() if f"/{program}" in command]
        assert pids, f"{program} does not run in {[pod['metadata']['name'] for pod in pods]}"
        try:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            go_on(pids)

    def _kill(self, pods: Sequence[dict[str, Any]]) -> None:
        for pod in pods:
            self._killed |= containers(pod)
            processes.kill(pod)

    def _leader(self) -> dict[str, Any]:
        lease = self._reader.get(f"/apis/coordination.k8s.io/v1/namespaces/{self._system}/leases/virt-controller")
        holder = str(lease["spec"]["holderIdentity"])
        return next(pod for pod in self.part("virt-controller") if holder.startswith(pod["metadata"]["name"]))


def go_on(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue


def heal() -> None:
    """Undo the cuts of an interrupted run: connect all nodes, and start their kubelets."""
    for node in layout.NODES:
        progress.run(["bridge", "link", "set", "dev", node.link, "isolated", "off", "state", "forwarding"])
        if "syncFrequency" not in (node.directory / "kubelet.json").read_text():
            _end_kubelet(node.name)
        _start_kubelet(node)


def _start_kubelet(node: layout.Node) -> None:
    """Start a node's kubelet with nice value 0, like a service (nice(1)), instead of ours."""
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    try:
        nodes.start_kubelet(node)
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, ours)


def _end_kubelet(name: str) -> None:
    running = testbed_processes.find(f"{name}-kubelet")
    assert running, f"the kubelet of {name} does not run"
    running.send(signal.SIGKILL)  # nsenter, with which the kernel ends the kubelet (testbed/nodes.py)


def _node(place: Place, side: str) -> str:
    return place.source if side == "source" else place.target


def _pod(place: Place, side: str) -> dict[str, Any]:
    uid = place.source_pod if side == "source" else place.target_pod
    return {"metadata": {"uid": uid, "name": f"of the {side}"}}


def _kubelet(name: str) -> Callable[[], None]:
    node = next(each for each in layout.NODES if each.name == name)
    _end_kubelet(name)

    def mend() -> None:
        time.sleep(KUBELET_SECONDS)
        _start_kubelet(node)

    return mend


def _links(cables: Sequence[layout.Node], setting: str, *, on: str, off: str) -> Callable[[], None]:
    def turn(state: str) -> None:
        for each in cables:
            progress.run(["bridge", "link", "set", "dev", each.link, setting, state])

    turn(off)

    def mend() -> None:
        try:
            time.sleep(OFF_SECONDS)
        finally:
            turn(on)

    return mend


def _kill_once_there(pod: dict[str, Any], program: str) -> None:
    until(lambda: any(program in command for command in processes.of_pod(pod).values()), seconds=BEGIN_SECONDS, what=f"{program} of a pod")
    processes.kill(pod, containing=program)
