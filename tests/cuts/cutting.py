"""The cuts, made on the test cluster: processes by SIGKILL from the machine's process table, links where the nodes' cables end."""

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
"""For a program of a pod that has just begun: on a busy machine virt-launcher has its libvirtd seconds after its start."""
_PROGRAMS: Final = {"libvirtd": "libvirtd", "launcher": "virt-launcher", "qemu": "qemu-system"}


@dataclass(frozen=True)
class Place:
    """Place of a guest, and where it goes."""

    source: str
    target: str
    source_pod: str
    """uid of the source's pod."""
    target_pod: str = ""
    """uid of the target's pod; empty: there is none yet, or the cut does not ask."""
    target_pod_name: str = ""


def nothing_more() -> None:
    """Do nothing after a cut that mends itself."""


class Cuts:
    """Makes the cuts, and knows which containers they ended."""

    def __init__(self, kubectl: Kubectl, reader: Reader, system: str) -> None:
        self._kubectl = kubectl
        self._reader = reader
        self._system = system
        self._killed: set[str] = set()

    def make(self, cut: str, place: Place) -> Callable[[], None]:
        """Cut; return what ends the cut: it waits as long as the cut lasts, and mends it."""
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
                self._kubectl("delete", "pod", place.target_pod_name, "--wait=false")
            case "libvirtd" | "launcher" | "qemu":
                _kill_once_there(_pod(place, side), _PROGRAMS[what])
            case "relay":
                processes.kill(self.handler(_node(place, side)), containing="carrier.py")
            case _:
                self._kill(until(lambda: self._running(what, place, side), seconds=BEGIN_SECONDS, what=f"a process of {cut}"))
        return nothing_more

    def _running(self, what: str, place: Place, side: str) -> list[dict[str, Any]]:
        """Return the pods of a part in which processes run: while it is replaced, one may have none yet, or none any more."""
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
        """Return the pods of a part of ours."""
        return self._reader.pods(self._system, f"kubevirt.io={component}")

    def handler(self, node: str) -> dict[str, Any]:
        """Return the virt-handler of a node.

        Raises:
            LookupError: there is none.
        """
        found = [each for each in self.part("virt-handler") if each["spec"].get("nodeName") == node]
        if not found:
            raise LookupError(f"{node} has no virt-handler")
        return next((each for each in found if "deletionTimestamp" not in each["metadata"]), found[0])

    def sent(self, node: str) -> int:
        """Return the bytes that one connection of a node's virt-handler has sent to another one's port for relays (ss(8)), the most."""
        pids = processes.of_pod(self.handler(node))
        if not pids:
            return 0
        enter = ["nsenter", f"--net=/proc/{min(pids)}/ns/net", "--"]
        done = subprocess.run([*enter, "ss", "-tinOH", f"( dport = :{RELAY_PORT} )"], capture_output=True, text=True, check=False)
        return max(map(int, re.findall(r"bytes_sent:(\d+)", done.stdout)), default=0)

    def recovered(self) -> bool:
        """Return whether all parts are ready, in containers that no cut has ended."""
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
        """Stop the processes of a program in pods (SIGSTOP) while the block lasts."""
        pids = [pid for pod in pods for pid, command in processes.of_pod(pod).items() if f"/{program}" in command]
        assert pids, f"{program} does not run in {[pod['metadata']['name'] for pod in pods]}"
        try:
            for pid in pids:
                with suppress(ProcessLookupError):  # one may end meanwhile
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
    """Let stopped processes go on; those that have ended are let be."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue


def heal() -> None:
    """Undo what a run that was ended may have left: links that are cut, and kubelets that are away."""
    for node in layout.NODES:
        progress.run(["bridge", "link", "set", "dev", node.link, "isolated", "off", "state", "forwarding"])
        if "syncFrequency" not in (node.directory / "kubelet.json").read_text():
            _end_kubelet(node.name)  # it has run since before the test bed told kubelets to hurry
        _start_kubelet(node)


def _start_kubelet(node: layout.Node) -> None:
    """Start a kubelet with the priority of a service, and not with that of the run, which may be a patient one (nice(1))."""
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
    """Change a setting of the bridge's ports of these cables (bridge(8)) until the cut ends."""

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
    """Kill a program of a pod, which may be about to start it."""
    until(lambda: any(program in command for command in processes.of_pod(pod).values()), seconds=BEGIN_SECONDS, what=f"{program} of a pod")
    processes.kill(pod, containing=program)
