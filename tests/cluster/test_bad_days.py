from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.client.rest import TransportError
from tests.cluster import processes
from tests.cluster.api import has_taken_edits, in_phase, is_true
from tests.cluster.guests import counting_vm, is_above, ticks
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import tiny_vm, with_disks
from tests.damage import never_again

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PAUSE_SECONDS = 0.5


def our_pods(system: Kubectl, component: str) -> list[dict[str, Any]]:
    return system.api.list("pods", label_selector=f"kubevirt.io={component}")


def is_ready(pods: list[dict[str, Any]]) -> bool:
    return bool(pods) and all(map(is_true("Ready"), pods))


def containers(pod: dict[str, Any]) -> set[str]:
    return {each["containerID"] for each in pod["status"].get("containerStatuses", []) if each.get("containerID")}


def kill_all(system: Kubectl, component: str) -> set[str]:
    pods = our_pods(system, component)
    killed = set[str]().union(*map(containers, pods))
    assert killed, f"{component} has no running container"
    for pod in pods:
        processes.kill(pod)
    return killed


def await_recovery(system: Kubectl, component: str, killed: set[str]) -> None:
    def recovered(pods: list[dict[str, Any]]) -> bool:
        return is_ready(pods) and all(containers(pod) and not containers(pod) & killed for pod in pods)

    what = f"{component} is ready again"
    system.api.until_list("pods", recovered, timeout=120, what=what, label_selector=f"kubevirt.io={component}")


@pytest.fixture(scope="module")
def counting(kubectl: Kubectl, testguest: None) -> dict[str, Any]:
    kubectl.api.create(counting_vm("counting"))
    return kubectl.api.ready("vm", "counting", timeout=90)


def goes_on(kubectl: Kubectl, system: Kubectl, counting: dict[str, Any], component: str) -> None:
    before = ticks(kubectl, "counting")[-1]

    killed = kill_all(system, component)

    eventually(lambda: is_above(kubectl, "counting", before + 3), timeout=120, what=f"the counter after {component} was killed")
    await_recovery(system, component, killed)
    vm = eventually(lambda: _served(kubectl, "counting"), timeout=60, what="the virtual machine is served")
    assert vm["status"]["podName"] == counting["status"]["podName"]
    kubectl.api.until("vm", "counting", in_phase("Running"), timeout=60, what="phase Running")


def _served(kubectl: Kubectl, name: str) -> dict[str, Any]:
    try:
        return kubectl.api.get("vm", name)
    except errors.NotFound:  # a 404 for an object that exists
        raise
    except (errors.StatusError, TransportError):
        return {}


def loses_no_write(kubectl: Kubectl, system: Kubectl, component: str) -> None:
    stop = threading.Event()
    acknowledged: list[str] = []

    def write(worker: int) -> None:
        count = 0
        while not stop.wait(PAUSE_SECONDS):
            count += 1
            name = f"kept-{component}-{worker}-{count}"
            try:
                kubectl.api.create(tiny_vm(name, runStrategy="Halted"))
            except (errors.StatusError, TransportError):
                continue
            acknowledged.append(name)

    with ThreadPoolExecutor(2) as workers:
        running = [workers.submit(write, each) for each in range(2)]
        try:
            eventually(lambda: len(acknowledged) >= 3, timeout=60, what="writes before the kill")
            killed = kill_all(system, component)
            count = len(acknowledged)
            eventually(lambda: len(acknowledged) >= count + 3, timeout=200, what="writes after the kill")
        finally:
            stop.set()
        for each in running:
            each.result()

    await_recovery(system, component, killed)
    stored = {each["metadata"]["name"] for each in kubectl.api.list("vms")}
    with never_again("a lost write"):
        assert not set(acknowledged) - stored


@pytest.mark.parametrize("component", ["virt-handler", "etcd"])
def test_the_guest_goes_on_and_its_console_comes_back(kubectl: Kubectl, system: Kubectl, counting: dict[str, Any], component: str) -> None:
    goes_on(kubectl, system, counting, component)


def test_an_edit_without_virt_handler_is_applied_afterwards(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    disk = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "8Mi"}}
    kubectl.api.apply(with_disks(tiny_vm("edited"), disk))
    before = kubectl.api.ready("vm", "edited", timeout=90)
    assert "total_iops_sec" not in kubectl("virt", "domainxml", "edited")

    killed = kill_all(system, "virt-handler")
    kubectl.api.apply(with_disks(tiny_vm("edited"), {**disk, "ioTune": {"totalIopsSec": 10}}))
    await_recovery(system, "virt-handler", killed)

    vm = kubectl.api.until("vm", "edited", has_taken_edits, timeout=60, what="the guest takes the edit")
    assert ("changes" in vm["status"], vm["status"]["podUID"]) == (False, before["status"]["podUID"])
    assert "<total_iops_sec>10</total_iops_sec>" in kubectl("virt", "domainxml", "edited")


def test_no_acknowledged_write_is_lost(kubectl: Kubectl, system: Kubectl) -> None:
    loses_no_write(kubectl, system, "etcd")


def test_killed_launcher_ends_its_guest_and_another_attempt_runs(kubectl: Kubectl, testguest: None) -> None:
    kubectl.api.create(tiny_vm("rerun"))
    first = kubectl.api.ready("vm", "rerun", timeout=90)["status"]["podName"]
    pod = kubectl.api.get("pod", first)

    processes.kill(pod, containing="launcher")

    def runs_again(vm: dict[str, Any]) -> bool:
        return bool(vm["status"].get("podName") != first and vm["status"]["phase"] == "Running")

    second = kubectl.api.until("vm", "rerun", runs_again, timeout=120, what="another attempt runs")
    with never_again("two QEMU"):
        assert not processes.of_pod(pod)
    assert second["status"]["attempts"][0]["result"] == "Failed"
