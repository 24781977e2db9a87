"""The life of a virtual machine, as someone with kubectl sees it, on real parts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import blank_disk, claim_disk, linux_vm, shared_claim, with_disks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PROMPT = r"(?m)[#$] "


def phase(kubectl: Kubectl, name: str) -> str:
    return str(kubectl.json("get", "vm", name).get("status", {}).get("phase", ""))


def start(kubectl: Kubectl, manifest: dict[str, Any]) -> dict[str, Any]:
    kubectl.apply(manifest)
    name = manifest["metadata"]["name"]
    kubectl("wait", "vm", name, "--for=condition=Ready", "--timeout=90s", timeout=100)
    running: dict[str, Any] = kubectl.json("get", "vm", name)
    return running


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


def test_a_late_comer_sees_the_last_screenful_and_two_people_share_a_console(kubectl: Kubectl) -> None:
    start(kubectl, linux_vm("shared-console"))
    with console(kubectl, "shared-console") as first:
        first.expect("GUEST-READY", timeout=120)
        first.run("echo from-the-first")
        with console(kubectl, "shared-console") as second:
            second.expect("from-the-first")
            second.run("echo from-the-second")
            first.expect("from-the-second")


def test_the_pod_is_restricted_and_has_no_credentials(kubectl: Kubectl) -> None:
    vm = start(kubectl, linux_vm("restricted"))

    pod = kubectl.json("get", "pod", vm["status"]["podName"])

    assert pod["spec"]["automountServiceAccountToken"] is False
    assert not any("hostPath" in volume for volume in pod["spec"]["volumes"])
    namespace = kubectl.json("get", "namespace", kubectl.namespace)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_deleting_asks_the_guest_to_shut_down(kubectl: Kubectl) -> None:
    vm = start(kubectl, linux_vm("deleted", terminationGracePeriodSeconds=60))
    with console(kubectl, "deleted") as guest:
        guest.expect("GUEST-READY", timeout=120)

        kubectl("delete", "vm", "deleted", "--wait=false")

        guest.expect("Power down", timeout=60)
    kubectl("wait", "vm", "deleted", "--for=delete", "--timeout=120s", timeout=130)
    eventually(lambda: kubectl.try_run("get", "pod", vm["status"]["podName"]).returncode, timeout=60, what="the pod is gone")


def test_a_machine_deleted_while_its_pod_is_being_created_is_gone(kubectl: Kubectl) -> None:
    kubectl.apply(linux_vm("short-lived"))

    kubectl("delete", "vm", "short-lived", "--timeout=60s", timeout=70)

    def left() -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = kubectl.json("get", "pods", "-l", "vm.kubevirt.io/name=short-lived")["items"]
        return pods

    # The machine goes once no guest of it can run; the kubelet then still clears away after a pod that is over.
    assert all(each["status"]["phase"] in {"Succeeded", "Failed"} and "deletionTimestamp" in each["metadata"] for each in left())
    eventually(lambda: left() == [], timeout=60, what="the pod is gone")


def test_a_guest_that_powers_off_has_succeeded(kubectl: Kubectl) -> None:
    start(kubectl, linux_vm("poweroff"))
    with console(kubectl, "poweroff") as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.type("poweroff -f\n")
    eventually(lambda: phase(kubectl, "poweroff") == "Succeeded", timeout=90, what="phase Succeeded")


def test_stop_start_restart_pause_and_unpause(kubectl: Kubectl) -> None:
    first = start(kubectl, linux_vm("verbs"))
    wait_for_prompt(kubectl, "verbs")

    kubectl("virt", "pause", "verbs")
    eventually(lambda: kubectl.json("get", "vm", "verbs")["status"]["domain"]["state"] == "paused", timeout=60, what="paused")
    with console(kubectl, "verbs") as guest:
        guest.expect('Warning: virtual machine "verbs" is paused on request', timeout=60)
    kubectl("virt", "unpause", "verbs")
    eventually(lambda: kubectl.json("get", "vm", "verbs")["status"]["domain"]["state"] == "running", timeout=60, what="running")
    kubectl("virt", "stop", "verbs")
    eventually(lambda: phase(kubectl, "verbs") == "Stopped", timeout=90, what="phase Stopped")
    kubectl("virt", "start", "verbs")
    eventually(lambda: phase(kubectl, "verbs") == "Running", timeout=90, what="phase Running")
    second = kubectl.json("get", "vm", "verbs")
    assert second["status"]["podName"] != first["status"]["podName"]
    wait_for_prompt(kubectl, "verbs")
    kubectl("virt", "restart", "verbs")
    third = eventually(
        lambda: (
            (vm := kubectl.json("get", "vm", "verbs"))["status"]["podName"] != second["status"]["podName"]
            and vm["status"]["phase"] == "Running"
            and vm
        ),
        timeout=150,
        what="a third pod that runs",
    )
    assert third["metadata"]["uid"] == first["metadata"]["uid"]


def test_a_missing_disk_is_told_and_waited_for(kubectl: Kubectl) -> None:
    kubectl.apply(with_disks(linux_vm("waits"), claim_disk("late")))

    def disks_ready(reason: str) -> dict[str, Any] | None:
        conditions = kubectl.json("get", "vm", "waits").get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "DisksReady" and each["reason"] == reason), None)

    def told(reason: str) -> None:
        condition = eventually(lambda: disks_ready(reason), timeout=90, what=f"condition DisksReady with reason {reason}")
        assert condition["status"] == "False"
        assert "late" in condition["message"]
        events = eventually(
            lambda: [each for each in kubectl.json("get", "events")["items"] if each["reason"] == reason],
            timeout=60,
            what=f"event {reason}",
        )
        assert "late" in events[0]["message"]

    told("ClaimNotFound")
    kubectl.apply(shared_claim("late"))
    told("DiskImageNotFound")
    kubectl.apply(blank_disk("late"))
    kubectl("wait", "vm", "waits", "--for=condition=Ready", "--timeout=90s", timeout=100)
    with console(kubectl, "waits") as guest:
        guest.expect("GUEST-READY", timeout=120)
        assert "vda" in guest.run("cat /proc/partitions")


def test_a_wrong_manifest_gets_one_answer_that_names_every_field(kubectl: Kubectl) -> None:
    manifest = linux_vm("wrong", runStrategy="Sometimes")
    manifest["spec"]["domain"]["memroy"] = {}
    manifest["spec"]["domain"]["cpu"] = {"cores": "many"}
    manifest["spec"]["domain"]["devices"]["disks"] = [{"type": "Floppy", "source": {"name": "x"}}]

    refused = kubectl.try_run("create", "-f", "-", stdin=json.dumps(manifest))

    assert refused.returncode != 0
    for field in ("spec.runStrategy", "spec.domain.memroy", "spec.domain.cpu.cores", "spec.domain.devices.disks[0].type"):
        assert field in refused.stderr


def test_kubectl_behaves(kubectl: Kubectl) -> None:
    start(kubectl, linux_vm("manners"))

    kubectl("label", "vm", "manners", "tier=gold")
    assert "manners" in kubectl("get", "vms", "-l", "tier=gold")
    assert "manners" in kubectl("get", "vms", "--field-selector", "metadata.name=manners")
    assert "cores" in kubectl("explain", "virtualmachine.spec.domain", "--recursive")
    assert kubectl("auth", "can-i", "get", "virtualmachines/console").strip() == "yes"
    assert "runStrategy: RerunOnFailure" in kubectl("get", "vm", "manners", "-o", "yaml")
    changed = linux_vm("manners", terminationGracePeriodSeconds=10)
    assert "configured" in kubectl.apply(changed)
    assert "unchanged" in kubectl.apply(changed)
    kubectl("patch", "vm", "manners", "--type=merge", "-p", '{"metadata":{"annotations":{"a":"b"}}}')
    kubectl("annotate", "vm", "manners", "a-")
    edited = kubectl.edit("vm", "manners", "sed -i s/gold/silver/")
    assert "edited" in edited
    assert kubectl.json("get", "vm", "manners")["metadata"]["labels"]["tier"] == "silver"


def test_deleting_a_namespace_takes_its_machines_with_it(kubectl: Kubectl, make_namespace: Any) -> None:
    inner = make_namespace("doomed")
    start(inner, linux_vm("one"))
    inner.apply(linux_vm("two"))

    inner("delete", "namespace", inner.namespace, "--timeout=120s", timeout=130)

    assert kubectl.try_run("get", "namespace", inner.namespace).returncode != 0
