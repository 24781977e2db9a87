from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.api import condition_of, has, in_phase
from tests.cluster.kube import Console, Kubectl, console
from tests.cluster.manifests import blank_disk, claim_disk, linux_vm, shared_claim, tiny_vm, with_disks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PROMPT = r"(?m)[#$] "


def start(kubectl: Kubectl, manifest: dict[str, Any]) -> dict[str, Any]:
    kubectl.api.apply(manifest)
    name = manifest["metadata"]["name"]
    return kubectl.api.ready("vm", name, timeout=90)


def wait_for_prompt(kubectl: Kubectl, name: str) -> None:
    with console(kubectl, name) as guest:
        guest.expect("GUEST-READY", timeout=120)


def test_a_virtual_machine_runs_and_its_console_is_a_shell(kubectl: Kubectl) -> None:
    vm = start(kubectl, linux_vm("shell"))

    assert vm["status"]["phase"] == "Running"
    assert vm["status"]["domain"]["state"] == "running"
    with console(kubectl, "shell") as guest:
        guest.expect("GUEST-READY", timeout=120)
        assert guest.run("echo $((6 * 7))").strip().endswith("42")
    table = kubectl("get", "vms", "-o", "wide")
    assert vm["status"]["nodeName"] in table
    assert "Running" in table
    assert "Started" in kubectl("describe", "vm", "shell")
    assert "virtualmachine.kubevirt.io/shell" in kubectl("get", "all")
    kubectl.api.delete("vm", "shell", timeout=60)


def test_console_shows_the_last_screenful_and_is_shared(kubectl: Kubectl) -> None:
    start(kubectl, tiny_vm("shared-console"))
    with console(kubectl, "shared-console") as first:
        first.expect("GUEST-READY", timeout=120)
        first.type("echo from-the-first\n")
        with console(kubectl, "shared-console") as second:
            second.expect("from-the-first")
            second.type("echo from-the-second\n")
            first.expect("from-the-second")


def test_the_pod_is_restricted_and_has_no_credentials(kubectl: Kubectl) -> None:
    vm = start(kubectl, tiny_vm("restricted"))

    pod = kubectl.api.get("pod", vm["status"]["podName"])

    assert pod["spec"]["automountServiceAccountToken"] is False
    assert not any("hostPath" in volume for volume in pod["spec"]["volumes"])
    namespace = kubectl.api.get("namespace", kubectl.namespace)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_deleting_asks_the_guest_to_shut_down(kubectl: Kubectl) -> None:
    vm = start(kubectl, tiny_vm("deleted", terminationGracePeriodSeconds=60))
    with console(kubectl, "deleted") as guest:
        guest.expect("GUEST-READY", timeout=120)

        kubectl("delete", "vm", "deleted", "--wait=false")

        guest.expect("Power down", timeout=60)
    kubectl.api.gone("vm", "deleted", timeout=120)
    kubectl.api.gone("pod", vm["status"]["podName"], timeout=60)


def test_machine_deleted_while_its_pod_is_created_is_gone(kubectl: Kubectl) -> None:
    kubectl.api.apply(tiny_vm("short-lived"))

    kubectl.api.delete("vm", "short-lived", timeout=60)

    left = kubectl.api.list("pods", label_selector="vm.kubevirt.io/name=short-lived")
    # The kubelet still has to clean up a finished pod.
    assert all(each["status"]["phase"] in {"Succeeded", "Failed"} and "deletionTimestamp" in each["metadata"] for each in left)
    kubectl.api.until_list(
        "pods", lambda found: not found, label_selector="vm.kubevirt.io/name=short-lived", timeout=60, what="the pod is gone"
    )


def test_a_guest_that_powers_off_has_succeeded(kubectl: Kubectl) -> None:
    start(kubectl, tiny_vm("poweroff"))
    with console(kubectl, "poweroff") as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.type("poweroff\n")
    kubectl.api.until("vm", "poweroff", in_phase("Succeeded"), timeout=90, what="phase Succeeded")


def boot_of(guest: Console) -> tuple[str, str]:
    guest.type("uptime\n")
    found = guest.expect(r"boot=(\w+) commands=(\d+)", timeout=60)
    return found[1], found[2]


def reset_while_paused(kubectl: Kubectl, name: str) -> None:
    with console(kubectl, name) as guest:
        guest.skip_replay()
        boot, _ = boot_of(guest)
        kubectl("virt", "pause", name)
        kubectl("virt", "reset", name, "--wait")
        vm = kubectl.api.get("vm", name)
        assert (vm["status"]["domain"]["state"], vm["status"]["pause"]["wanted"]) == ("paused", True)
        kubectl("virt", "unpause", name)
        guest.expect("GUEST-READY", timeout=60)
        again, commands = boot_of(guest)
        assert again != boot
        assert commands == "1"
    assert kubectl.api.events("Reset", of=name, timeout=60)


def test_stop_start_restart_pause_reset_and_unpause(kubectl: Kubectl) -> None:
    first = start(kubectl, tiny_vm("verbs"))
    wait_for_prompt(kubectl, "verbs")

    kubectl("virt", "pause", "verbs")
    kubectl.api.until("vm", "verbs", lambda found: found["status"]["domain"]["state"] == "paused", timeout=60, what="paused")
    with console(kubectl, "verbs") as guest:
        guest.expect('Warning: virtual machine "verbs" is paused on request', timeout=60)
    kubectl("virt", "unpause", "verbs")
    kubectl.api.until("vm", "verbs", lambda found: found["status"]["domain"]["state"] == "running", timeout=60, what="running")
    reset_while_paused(kubectl, "verbs")
    kubectl("virt", "stop", "verbs")
    kubectl.api.until("vm", "verbs", in_phase("Stopped"), timeout=90, what="phase Stopped")
    kubectl("virt", "start", "verbs")
    second = kubectl.api.until("vm", "verbs", in_phase("Running"), timeout=90, what="phase Running")
    assert second["status"]["podName"] != first["status"]["podName"]
    wait_for_prompt(kubectl, "verbs")
    kubectl("virt", "restart", "verbs")
    third = kubectl.api.until(
        "vm",
        "verbs",
        lambda vm: vm["status"]["podName"] != second["status"]["podName"] and vm["status"]["phase"] == "Running",
        timeout=150,
        what="a third pod that runs",
    )
    assert third["metadata"]["uid"] == first["metadata"]["uid"]


def has_disk(vm: dict[str, Any]) -> bool:
    return [each["target"] for each in vm["status"].get("devices") or () if each["kind"] == "disk"] == ["vda"]


def test_a_missing_disk_is_told_and_waited_for(kubectl: Kubectl) -> None:
    kubectl.api.apply(with_disks(tiny_vm("waits"), claim_disk("late")))

    def told(reason: str) -> None:
        vm = kubectl.api.until("vm", "waits", has("DisksReady", reason=reason), timeout=90, what=f"DisksReady is {reason}")
        condition = condition_of(vm, "DisksReady")
        assert condition["status"] == "False"
        assert "late" in condition["message"]
        assert "late" in kubectl.api.events(reason, timeout=60)[0]["message"]

    told("ClaimNotFound")
    kubectl.api.apply(shared_claim("late"))
    told("DiskImageNotFound")
    kubectl.api.apply(blank_disk("late"))
    kubectl.api.ready("vm", "waits", timeout=90)
    kubectl.api.until("vm", "waits", has_disk, timeout=30, what="a disk vda")


def test_a_wrong_manifest_gets_one_answer_that_names_every_field(kubectl: Kubectl) -> None:
    manifest = tiny_vm("wrong", runStrategy="Sometimes")
    manifest["spec"]["domain"]["memroy"] = {}
    manifest["spec"]["domain"]["cpu"] = {"cores": "many"}
    manifest["spec"]["domain"]["devices"]["disks"] = [{"type": "Floppy", "source": {"name": "x"}}]

    refused = kubectl.try_run("create", "-f", "-", stdin=json.dumps(manifest))

    assert refused.returncode != 0
    for field in ("spec.runStrategy", "spec.domain.memroy", "spec.domain.cpu.cores", "spec.domain.devices.disks[0].type"):
        assert field in refused.stderr


def test_kubectl_behaves(kubectl: Kubectl) -> None:
    kubectl.apply(tiny_vm("manners"))
    kubectl("wait", "vm", "manners", "--for=condition=Ready", "--timeout=90s", timeout=100)

    kubectl("label", "vm", "manners", "tier=gold")
    assert "manners" in kubectl("get", "vms", "-l", "tier=gold")
    assert "manners" in kubectl("get", "vms", "--field-selector", "metadata.name=manners")
    assert "cores" in kubectl("explain", "virtualmachine.spec.domain", "--recursive")
    assert kubectl("auth", "can-i", "get", "virtualmachines/console").strip() == "yes"
    assert "runStrategy: RerunOnFailure" in kubectl("get", "vm", "manners", "-o", "yaml")
    changed = tiny_vm("manners", terminationGracePeriodSeconds=10)
    assert "configured" in kubectl.apply(changed)
    assert "unchanged" in kubectl.apply(changed)
    kubectl("patch", "vm", "manners", "--type=merge", "-p", '{"metadata":{"annotations":{"a":"b"}}}')
    kubectl("annotate", "vm", "manners", "a-")
    edited = kubectl.edit("vm", "manners", "sed -i s/gold/silver/")
    assert "edited" in edited
    assert kubectl.api.get("vm", "manners")["metadata"]["labels"]["tier"] == "silver"


def test_deleting_a_namespace_takes_its_machines_with_it(kubectl: Kubectl, make_namespace: Any) -> None:
    inner = make_namespace("doomed")
    start(inner, tiny_vm("one"))
    inner.api.apply(tiny_vm("two"))

    inner.api.delete("namespace", inner.namespace, timeout=120)

    assert kubectl.api.find("namespace", inner.namespace) is None
