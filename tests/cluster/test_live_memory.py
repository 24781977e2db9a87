from __future__ import annotations

from typing import Any, Final

import pytest

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import dig
from tests.cluster.api import condition_of, has_taken_edits, is_true
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import linux_vm, migration, tiny_vm
from tests.cluster.test_disks_and_cards import words
from tests.cluster.test_migrations import final_phase, other_node
from tests.guest_kernel import KERNEL_ARGS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

VM: Final = "large"
PATH: Final = "spec.domain.memory.guest"
SMALL: Final = 256
RELEASES_MEMORY: Final = f"{KERNEL_ARGS} memhp_default_state=online_movable"


def edit(kubectl: Kubectl, mebibytes: int) -> None:
    kubectl.api.patch("vm", VM, {"spec": {"domain": {"memory": {"guest": f"{mebibytes}Mi"}}}})


def taken(kubectl: Kubectl) -> dict[str, Any]:
    vm = kubectl.api.until(
        "vm", VM, lambda vm: has_taken_edits(vm) and "changes" not in vm["status"], timeout=120, what="the guest has the memory"
    )
    assert not condition_of(vm, "RestartRequired")
    return vm


def seen(kubectl: Kubectl, wanted: int = 0) -> int:
    """Return the guest's MemTotal in MiB; wait at most ten seconds for ``wanted``, because Linux uses new memory late."""
    read = "m=$(($(grep MemTotal /proc/meminfo | tr -cd 0-9) / 1024))"
    with console(kubectl, VM) as guest:
        guest.type("\n")
        return int(words(guest, f"for i in $(seq 100); do {read}; [ $m = {wanted or '$m'} ] && break; usleep 100000; done; echo $m", 1)[0])


def limit_of(pod: dict[str, Any]) -> int:
    (status,) = (each for each in pod["status"]["containerStatuses"] if each["name"] == "compute")
    return quantity.parse(dig(status, "resources", "limits", "memory")).bytes >> 20


def pod_has(kubectl: Kubectl, vm: dict[str, Any], low: int, high: int) -> dict[str, Any]:
    name = vm["status"]["podName"]
    return kubectl.api.until("pod", name, lambda pod: low <= limit_of(pod) <= high, timeout=60, what=f"a limit from {low} to {high} MiB")


@pytest.fixture(scope="module")
def large(kubectl: Kubectl, testguest: None) -> None:
    manifest = linux_vm(VM)
    domain = manifest["spec"]["domain"]
    domain["memory"] = {"guest": f"{SMALL}Mi", "maxGuest": "1Gi"}
    domain["firmware"]["kernelBoot"]["kernelArgs"] = RELEASES_MEMORY
    kubectl.apply(manifest)
    kubectl.api.ready("vm", VM, timeout=120)
    with console(kubectl, VM) as guest:
        guest.expect("GUEST-READY", timeout=180)


def test_running_guest_gets_memory_and_returns_it(kubectl: Kubectl, large: None) -> None:
    vm = kubectl.api.get("vm", VM)
    before, pod = seen(kubectl), kubectl.api.get("pod", vm["status"]["podName"])
    size = limit_of(pod)

    edit(kubectl, 384)
    assert taken(kubectl)["status"]["podUID"] == vm["status"]["podUID"]
    assert seen(kubectl, before + 128) == before + 128
    grown = pod_has(kubectl, vm, size + 128, size + 130)
    assert [each["restartCount"] for each in grown["status"]["containerStatuses"]] == [0]

    edit(kubectl, 512)
    vm = taken(kubectl)
    assert seen(kubectl, before + 256) == before + 256

    made = kubectl.api.create(migration(VM, node=other_node(kubectl, vm["status"]["nodeName"])))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    vm = kubectl.api.get("vm", VM)
    pod_has(kubectl, vm, size + 256, size + 258)
    assert seen(kubectl, before + 256) == before + 256

    edit(kubectl, SMALL)
    taken(kubectl)
    assert seen(kubectl, before) == before
    pod_has(kubectl, vm, size, size + 1)


def test_pod_that_cannot_grow_keeps_the_edit_pending(kubectl: Kubectl, large: None) -> None:
    kubectl("create", "quota", "full", "--hard=limits.memory=1Mi")
    kubectl("wait", "resourcequota/full", "--for=jsonpath={.status.used}", "--timeout=30s")
    before = seen(kubectl)
    edit(kubectl, 512)

    def says_why(vm: dict[str, Any]) -> bool:
        return any(each["path"] == PATH and "exceeded quota: full" in each.get("message", "") for each in vm["status"].get("changes", ()))

    kubectl.api.until("vm", VM, says_why, timeout=60, what="the edit waits for the quota")
    assert seen(kubectl, before) == before
    kubectl("delete", "quota", "full")
    taken(kubectl)
    assert seen(kubectl, before + 256) == before + 256


def test_less_memory_than_at_the_boot_needs_a_restart(kubectl: Kubectl, testguest: None) -> None:
    manifest = tiny_vm("tiny")
    manifest["spec"]["domain"]["memory"] = {"guest": "128Mi", "maxGuest": "256Mi"}
    kubectl.apply(manifest)
    kubectl.api.ready("vm", "tiny", timeout=120)
    kubectl.api.patch("vm", "tiny", {"spec": {"domain": {"memory": {"guest": "64Mi"}}}})
    vm = kubectl.api.until("vm", "tiny", is_true("RestartRequired"), timeout=60, what="less memory needs a restart")
    assert PATH in condition_of(vm, "RestartRequired")["message"]
    assert "started with 128 MiB" in vm["status"]["changes"][0]["message"]
