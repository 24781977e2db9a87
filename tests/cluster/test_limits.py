from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.places import layout
from apiserver.endpoints.verbs.streamlimits import StreamLimits
from handler.streams.limits import Limits
from tests.cluster.kube import Console, Kubectl, console, eventually
from tests.cluster.manifests import GUEST_IMAGE, linux_vm, tiny_vm, with_disks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

VM: Final = "bounded"
EVICTIONS: Final = timedelta(seconds=10)
"""Interval of the kubelet's eviction checks."""
FILLED_BYTES: Final = 8 << 20
REPLICAS: Final = 2


def image_disk(limit: str) -> dict[str, object]:
    return {"name": "root", "type": "Image", "source": {"reference": GUEST_IMAGE, "sizeLimit": limit}}


@pytest.fixture(scope="module")
def machine(kubectl: Kubectl, testguest: None) -> Iterator[Kubectl]:
    del testguest
    kubectl.api.apply(with_disks(linux_vm(VM), image_disk("1Gi")))
    kubectl.api.ready("vm", VM, timeout=90)
    yield kubectl
    kubectl.api.delete("vm", VM, timeout=60)


def pod_of(kubectl: Kubectl) -> str:
    return str(kubectl.api.get("vm", VM)["status"]["podName"])


def test_guest_pods_root_is_read_only_except_volumes(machine: Kubectl) -> None:
    pod = pod_of(machine)
    for path in ("/", "/etc", "/var/tmp", "/home", "/var/lib/kubevirt", "/usr/local", layout.IMAGES_DIRECTORY + "/root"):
        done = machine.try_run("exec", pod, "--", "sh", "-c", f": >{path}/x")
        assert done.returncode != 0, path
        assert "Read-only file system" in done.stderr or "Permission denied" in done.stderr, done.stderr
    mounts = machine("exec", pod, "--", "cat", "/proc/mounts").splitlines()
    for volume in layout.IN_MEMORY:
        (mount,) = [each.split() for each in mounts if each.split()[1] == volume.directory]
        assert mount[2] == "tmpfs", mount
        assert f"size={volume.size >> 10}k" in mount[3], mount


def answers(guest: Console) -> bool:
    guest.expect("press Enter for a prompt")
    guest.expect("GUEST-READY", timeout=120)
    guest.type("\n")
    return guest.run("echo $((6 * 7))").strip().endswith("42")


def test_memory_volume_is_limited_and_the_guest_runs_on(machine: Kubectl) -> None:
    pod = pod_of(machine)
    done = machine.try_run("exec", pod, "--", "sh", "-c", f"cat /dev/zero >{layout.CACHE_DIRECTORY}/filled")
    assert "No space left on device" in done.stderr
    with console(machine, VM) as guest:
        assert answers(guest)
    machine("exec", pod, "--", "rm", f"{layout.CACHE_DIRECTORY}/filled")


def measured_at(kubectl: Kubectl, least: int) -> datetime | None:
    """Return when the kubelet last measured the VM's overlay volume; None if that has fewer than ``least`` bytes, or without an answer."""
    status = kubectl.api.get("vm", VM)["status"]
    try:
        pods = kubectl.api.request("GET", f"/api/v1/nodes/{status['nodeName']}/proxy/stats/summary")["pods"]
    except errors.StatusError:  # a busy kubelet
        return None
    volumes = next((each.get("volume", ()) for each in pods if each["podRef"]["name"] == status["podName"]), ())
    found: dict[str, Any] = next((each for each in volumes if each["name"] == layout.OVERLAYS_VOLUME), {})
    return datetime.fromisoformat(found["time"]) if found.get("usedBytes", 0) >= least else None


def test_a_guest_that_fills_its_disk_is_not_evicted_for_it(machine: Kubectl) -> None:
    pod = pod_of(machine)
    with console(machine, VM) as guest:
        guest.run("dd if=/dev/zero of=/dev/vda bs=64k 2>/dev/null; sync", timeout=120)
    written = int(machine("exec", pod, "--", "du", "--summarize", "--block-size=1", layout.OVERLAYS_DIRECTORY).split()[0])
    assert written > FILLED_BYTES
    seen = eventually(lambda: measured_at(machine, written), timeout=150, interval=3, what="the kubelet has seen how much the guest wrote")
    judged = seen + 2 * EVICTIONS
    eventually(
        lambda: (measured_at(machine, written) or seen) > judged, timeout=120, interval=3, what="the kubelet has judged what it saw, twice"
    )
    found = machine.api.get("pod", pod)
    assert found["status"]["phase"] == "Running", found["status"]
    assert machine.api.get("vm", VM)["status"]["phase"] == "Running"


def test_image_larger_than_its_limit_does_not_start(kubectl: Kubectl, testguest: None) -> None:
    del testguest
    kubectl.api.apply(with_disks(tiny_vm("too-large", runStrategy="Once"), image_disk("1Mi")))
    try:
        vm = kubectl.api.until(
            "vm", "too-large", lambda vm: vm["status"]["attempts"][-1]["message"], timeout=90, what="the reason of the failed start"
        )
        message = vm["status"]["attempts"][-1]["message"]
        assert "more than source.sizeLimit, which is 1048576" in message
        assert "Set sizeLimit to" in message
    finally:
        kubectl.api.delete("vm", "too-large", timeout=60)


def test_a_pod_that_grows_beyond_its_overlays_volume_is_evicted(kubectl: Kubectl, testguest: None) -> None:
    """A compromised QEMU can do this; the guest cannot."""
    del testguest
    kubectl.api.apply(with_disks(tiny_vm("greedy", runStrategy="Once"), image_disk("256Mi")))
    try:
        pod = str(kubectl.api.ready("vm", "greedy", timeout=90)["status"]["podName"])
        kubectl.try_run("exec", pod, "--", "sh", "-c", f"head -c 600M /dev/zero >{layout.OVERLAYS_DIRECTORY}/filled", timeout=120)

        kubectl.api.until_list(
            "pods",
            lambda found: not found or found[0]["status"].get("reason") == "Evicted",
            field_selector=f"metadata.name={pod}",
            timeout=150,
            what="the eviction",
        )
    finally:
        kubectl.api.delete("vm", "greedy", timeout=60)


def test_excess_console_is_refused_and_others_stay(machine: Kubectl) -> None:
    machine.api.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "console-users"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": each} for each in ("greedy", "owner")],
        }
    )
    share = Limits().max_streams_per_machine_and_user
    assert share <= StreamLimits().max_streams_per_user_and_object * REPLICAS
    with ExitStack() as held:
        for _ in range(share):
            assert answers(held.enter_context(console(machine, VM, "--as", "greedy")))
        done = machine.try_run("virt", "console", VM, "--as", "greedy", stdin="")
        assert done.returncode == 1
        assert "too many streams" in done.stderr
        assert f"{share} is the limit" in done.stderr
        with console(machine, VM, "--as", "owner") as guest:
            assert answers(guest)

    def again() -> bool:
        with console(machine, VM, "--as", "greedy") as guest:
            return answers(guest)

    assert again()
