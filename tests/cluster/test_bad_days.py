"""Any one of our processes, or etcd, is killed at any time: no acknowledged write is lost, the guest goes on, the console comes back."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cluster import processes
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

COUNTER = "i=0; while :; do i=$((i+1)); echo tick $i; sleep 1; done\n"
PROCESSES = ("virt-api", "virt-controller", "virt-handler", "etcd")


def our_pods(system: Kubectl, component: str) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = system.json("get", "pods", "-l", f"kubevirt.io={component}")["items"]
    return pods


def is_ready(pods: list[dict[str, Any]]) -> bool:
    return bool(pods) and all(
        any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", [])) for pod in pods
    )


def containers(pod: dict[str, Any]) -> set[str]:
    """Return the ids of the pod's containers, which a kubelet gives anew with every start."""
    return {each["containerID"] for each in pod["status"].get("containerStatuses", []) if each.get("containerID")}


def kill_all(system: Kubectl, component: str) -> set[str]:
    """Kill every process of a component; return the ids of the containers that they ran in."""
    pods = our_pods(system, component)
    killed = set[str]().union(*map(containers, pods))
    assert killed, f"{component} has no running container"
    for pod in pods:
        processes.kill(pod)
    return killed


def await_recovery(system: Kubectl, component: str, killed: set[str]) -> None:
    """Wait until every pod is ready in a container that was started since.

    Of a pod alone that says Ready, its kubelet may not have seen the end of the old container yet.
    """

    def recovered() -> bool:
        pods = our_pods(system, component)
        return is_ready(pods) and all(containers(pod) and not containers(pod) & killed for pod in pods)

    eventually(recovered, timeout=120, what=f"{component} is ready again", interval=1)


def tick_above(kubectl: Kubectl, vm: str, last: int) -> int:
    """Dial the console, whose replay shows old ticks first, and return a tick after ``last``; 0 when none comes within some seconds."""
    with console(kubectl, vm) as guest:
        try:
            while (tick := int(guest.expect(r"tick (\d+)\r?\n", timeout=8).group(1))) <= last:
                pass
        except AssertionError:
            return 0
        return tick


def newest_tick(kubectl: Kubectl, vm: str) -> int:
    """Return the newest tick: the first that comes a second after the one before."""
    with console(kubectl, vm) as guest:
        while True:
            began = time.monotonic()
            tick = int(guest.expect(r"tick (\d+)\r?\n", timeout=60).group(1))
            if time.monotonic() - began > 0.5:
                return tick


@pytest.fixture(scope="module")
def counting(kubectl: Kubectl) -> dict[str, Any]:
    """A guest that counts seconds on its console, for all tests of the module."""
    kubectl.apply(linux_vm("counting"))
    kubectl("wait", "vm", "counting", "--for=condition=Ready", "--timeout=90s", timeout=100)
    with console(kubectl, "counting") as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.type(COUNTER)
        guest.expect(r"tick 2\r?\n")
    vm: dict[str, Any] = kubectl.json("get", "vm", "counting")
    return vm


@pytest.mark.parametrize("component", PROCESSES)
def test_the_guest_goes_on_and_its_console_comes_back(kubectl: Kubectl, system: Kubectl, counting: dict[str, Any], component: str) -> None:
    before = newest_tick(kubectl, "counting")

    killed = kill_all(system, component)

    eventually(lambda: tick_above(kubectl, "counting", before + 3), timeout=120, what=f"the counter after {component} was killed")
    await_recovery(system, component, killed)
    vm = eventually(lambda: _get(kubectl, "counting"), timeout=60, what="the virtual machine is served")
    assert vm["status"]["podName"] == counting["status"]["podName"]
    eventually(lambda: _get(kubectl, "counting").get("status", {}).get("phase") == "Running", timeout=60, what="phase Running")


def _get(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """Return a machine that exists; nothing while nobody answers."""
    answer = kubectl.try_run("get", "vm", name, "-o", "json")
    if answer.returncode:
        assert "NotFound" not in answer.stderr, "a 404 for an object that exists"
        return {}
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.mark.parametrize("component", ["etcd", "virt-api"])
def test_no_acknowledged_write_is_lost(kubectl: Kubectl, system: Kubectl, component: str) -> None:
    stop = threading.Event()
    acknowledged: list[str] = []

    def write(worker: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            name = f"kept-{component}-{worker}-{count}"
            try:
                done = kubectl.try_run("create", "-f", "-", stdin=_halted(name), timeout=30)
            except subprocess.TimeoutExpired:
                continue
            if done.returncode == 0:
                acknowledged.append(name)

    with ThreadPoolExecutor(2) as workers:
        running = [workers.submit(write, each) for each in range(2)]
        try:
            eventually(lambda: len(acknowledged) >= 3, timeout=60, what="writes before the kill")
            killed = kill_all(system, component)
            count = len(acknowledged)
            # A write that nobody answered takes 30 s, and kube-apiserver may hold virt-api's discovery to be stale for a minute after it.
            eventually(lambda: len(acknowledged) >= count + 3, timeout=200, what="writes after the kill")
        finally:
            stop.set()  # or the workers would write for ever, and the test would wait for them
        for each in running:
            each.result()

    await_recovery(system, component, killed)
    stored = set(re.findall(r"virtualmachine\.kubevirt\.io/(\S+)", kubectl("get", "vms", "-o", "name")))
    assert not set(acknowledged) - stored
    kubectl("delete", "vms", *acknowledged, "--timeout=100s", timeout=120)


def _halted(name: str) -> str:
    return json.dumps(linux_vm(name, runStrategy="Halted"))


def test_a_guest_survives_the_death_of_its_libvirtd(kubectl: Kubectl, counting: dict[str, Any]) -> None:
    pod = kubectl.json("get", "pod", counting["status"]["podName"])
    before = newest_tick(kubectl, "counting")

    processes.kill(pod, containing="libvirtd")

    eventually(lambda: any("libvirtd" in each for each in processes.of_pod(pod).values()), timeout=90, what="another libvirtd")
    eventually(lambda: tick_above(kubectl, "counting", before + 3), timeout=60, what="the counter")


def test_a_launcher_that_is_killed_takes_its_guest_along_and_another_attempt_follows(kubectl: Kubectl) -> None:
    """PID 1 of the container is the launcher: the kernel ends QEMU with it, so the next attempt can never meet a second QEMU."""
    kubectl.apply(linux_vm("rerun"))
    kubectl("wait", "vm", "rerun", "--for=condition=Ready", "--timeout=90s", timeout=100)
    first = kubectl.json("get", "vm", "rerun")
    pod = kubectl.json("get", "pod", first["status"]["podName"])

    processes.kill(pod, containing="launcher")

    second = eventually(
        lambda: (
            (vm := kubectl.json("get", "vm", "rerun"))["status"].get("podName") != first["status"]["podName"]
            and vm["status"]["phase"] == "Running"
            and vm
        ),
        timeout=120,
        what="another attempt runs",
    )
    assert not processes.of_pod(pod)
    assert second["status"]["attempts"][0]["result"] == "Failed"
