from __future__ import annotations

import copy
import http.client
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import layout, names
from tests.cluster import patching, processes
from tests.cluster.api import Check
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import GUEST_IMAGE, tiny_vm
from tests.damage import never_again
from tests.testbed import release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

Pod = dict[str, Any]
WATCHED_SECONDS = 20
"""Without protection, a second pod came within a second, and a second QEMU within a minute."""


class Tenant:
    def __init__(self, kubectl: Kubectl) -> None:
        self.admin = kubectl
        self._as = f"--as=system:serviceaccount:{kubectl.namespace}:tenant"
        kubectl.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}})
        kubectl.api.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "tenant"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
                "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": kubectl.namespace}],
            }
        )

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        return self.admin(self._as, *arguments, stdin=stdin, timeout=timeout)

    def create(self, manifest: Pod) -> Pod:
        created: Pod = json.loads(self("create", "-o", "json", "-f", "-", stdin=json.dumps(manifest)))
        return created


@pytest.fixture(scope="module")
def tenant(kubectl: Kubectl, testguest: None) -> Tenant:
    return Tenant(kubectl)


def vm_of(kubectl: Kubectl, name: str) -> dict[str, Any]:
    return kubectl.api.get("vm", name)


def started(kubectl: Kubectl, name: str, **spec: Any) -> tuple[dict[str, Any], Pod]:
    kubectl.api.apply(tiny_vm(name, **spec))
    vm = kubectl.api.ready("vm", name, timeout=90)
    return vm, kubectl.api.get("pod", vm["status"]["podName"])


def foreign_pod(name: str, vm: dict[str, Any], *, owned: bool) -> Pod:
    owner = {
        "apiVersion": vm["apiVersion"],
        "kind": vm["kind"],
        "name": vm["metadata"]["name"],
        "uid": vm["metadata"]["uid"],
        "controller": True,
    }
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {
            names.COMPONENT_LABEL: names.LAUNCHER,
            names.VM_NAME_LABEL: vm["metadata"]["name"],
            names.CREATED_BY_LABEL: vm["metadata"]["uid"],
        },
        "annotations": {names.ATTEMPT_ANNOTATION: str(vm.get("status", {}).get("attempt", 0) + 1)},
    }
    container = {
        "name": names.CONTAINER,
        "image": GUEST_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1; done"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": layout.RUN_VOLUME, "mountPath": layout.RUN_DIRECTORY}],
    }
    restricted = {"runAsNonRoot": True, "runAsUser": 107, "runAsGroup": 107, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "securityContext": restricted,
        "containers": [container],
        "volumes": [{"name": layout.RUN_VOLUME, "emptyDir": {}}],
    }
    return {
        "apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {**metadata, "ownerReferences": [owner]} if owned else metadata,
    }  # fmt: skip


def pods_made_for(kubectl: Kubectl, name: str) -> set[str]:
    return {each["metadata"]["uid"] for each in kubectl.api.list("pods") if each["metadata"]["name"].startswith(f"virt-launcher-{name}-")}


def stay_alone(kubectl: Kubectl, pods: Mapping[str, Pod]) -> None:
    deadline = time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < deadline:
        for name, pod in pods.items():
            with never_again("two QEMU"):
                assert pods_made_for(kubectl, name) == {pod["metadata"]["uid"]}
            status = vm_of(kubectl, name)["status"]
            assert (status["phase"], status["podUID"], len(status["attempts"])) == ("Running", pod["metadata"]["uid"], 1), name
        time.sleep(0.5)


def test_foreign_pod_with_our_label_is_ignored(kubectl: Kubectl, make_namespace: Callable[[str], Kubectl]) -> None:
    elsewhere = make_namespace("elsewhere")
    other = Tenant(elsewhere)
    kubectl.api.apply(tiny_vm("adopting", runStrategy="Halted"))
    vm = vm_of(kubectl, "adopting")
    made = other.create(foreign_pod(names.launcher_pod_name("adopting", vm["metadata"]["uid"], 1), vm, owned=False))
    elsewhere.api.ready("pod", made["metadata"]["name"], timeout=120)

    kubectl.api.verb("adopting", "start")
    kubectl.api.ready("vm", "adopting", timeout=90)

    own = kubectl.api.get("pod", vm_of(kubectl, "adopting")["status"]["podName"])
    assert vm_of(kubectl, "adopting")["status"]["podUID"] == own["metadata"]["uid"] != made["metadata"]["uid"]
    kubectl.api.delete("vm", "adopting", timeout=90)
    assert "deletionTimestamp" not in elsewhere.api.get("pod", made["metadata"]["name"])["metadata"]


def has_left(pod: Pod) -> Check:
    return lambda vm: vm["status"]["podUID"] != pod["metadata"]["uid"]


def test_marks_taken_off_the_own_pod_lead_to_no_second_one(kubectl: Kubectl, tenant: Tenant) -> None:
    marks = {"no-labels": ("labels",), "no-owner": ("ownerReferences",), "neither": ("labels", "ownerReferences")}
    kubectl.api.apply(*map(tiny_vm, marks))
    pods = {name: started(kubectl, name)[1] for name in marks}

    for name, pod in pods.items():
        patch = {"metadata": dict.fromkeys(marks[name])}
        tenant("patch", "pod", pod["metadata"]["name"], "--type=merge", "-p", json.dumps(patch))

    stay_alone(kubectl, pods)
    for name in marks:
        with console(kubectl, name) as guest:
            guest.type("echo still-here\n")
            guest.expect("still-here", timeout=60)
        assert "PodNotMarked" in kubectl("describe", "vm", name)
        kubectl.api.verb(name, "restart")
    for name, pod in pods.items():
        kubectl.api.until("vm", name, has_left(pod), timeout=90, what="another attempt")
        assert processes.of_pod(pod) == {}
        kubectl.api.delete("vm", name, timeout=90)


def test_a_pod_remade_under_the_same_name_gets_no_guest(kubectl: Kubectl, tenant: Tenant) -> None:
    vm, pod = started(kubectl, "remade")
    tenant("delete", "pod", pod["metadata"]["name"], "--timeout=90s", timeout=100)

    forged = tenant.create(foreign_pod(pod["metadata"]["name"], vm, owned=True))

    running = kubectl.api.until(
        "vm",
        "remade",
        lambda vm: vm["status"]["phase"] == "Running" and len(vm["status"]["attempts"]) == 2,
        timeout=120,
        what="a second attempt that runs",
    )
    assert running["status"]["podUID"] not in (pod["metadata"]["uid"], forged["metadata"]["uid"])
    own = kubectl.api.get("pod", running["status"]["podName"])
    assert own["spec"]["containers"][0]["image"].split("/")[-1].startswith("virt-launcher")
    kubectl.api.delete("vm", "remade", timeout=90)


def test_forged_pod_named_like_the_next_attempt_is_replaced(kubectl: Kubectl, tenant: Tenant) -> None:
    kubectl.api.apply(tiny_vm("squatted", runStrategy="Halted"))
    vm = vm_of(kubectl, "squatted")
    forged = tenant.create(foreign_pod(names.launcher_pod_name("squatted", vm["metadata"]["uid"], 1), vm, owned=True))
    # A halted VM deletes well-formed pods that claim to be its own, so the start must meet one.
    kubectl.api.verb("squatted", "start")
    kubectl.api.ready("vm", "squatted", timeout=120)

    assert vm_of(kubectl, "squatted")["status"]["podUID"] != forged["metadata"]["uid"]
    own = kubectl.api.get("pod", vm_of(kubectl, "squatted")["status"]["podName"])
    assert own["spec"]["containers"][0]["image"] != GUEST_IMAGE
    kubectl.api.delete("vm", "squatted", timeout=90)


def test_non_launcher_pod_blocks_nothing(kubectl: Kubectl, tenant: Tenant) -> None:
    kubectl.api.apply(tiny_vm("free", runStrategy="Halted"))
    vm = vm_of(kubectl, "free")
    shapeless = foreign_pod("virt-launcher-free-squat", vm, owned=True)
    del shapeless["spec"]["containers"][0]["volumeMounts"]
    made = tenant.create(shapeless)
    kubectl.api.verb("free", "start")
    kubectl.api.ready("vm", "free", timeout=90)
    assert "deletionTimestamp" not in kubectl.api.get("pod", made["metadata"]["name"])["metadata"]

    kubectl.api.delete("vm", "free", timeout=90)


def test_a_pod_deleted_by_force_is_never_two_qemu(kubectl: Kubectl, tenant: Tenant) -> None:
    _, pod = started(kubectl, "forced", terminationGracePeriodSeconds=30)

    tenant("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force", timeout=100)

    def is_second(vm: dict[str, Any]) -> bool:
        if vm["status"]["podUID"] == pod["metadata"]["uid"]:
            return False
        assert [command for command in processes.of_pod(pod).values() if "qemu" in command] == []
        return bool(vm["status"]["phase"] == "Running")

    kubectl.api.until("vm", "forced", is_second, timeout=180, what="a second attempt that runs")
    kubectl.api.delete("vm", "forced", timeout=90)


def test_virt_controller_creates_and_deletes_launcher_pods_only(kubectl: Kubectl) -> None:
    account = f"--as=system:serviceaccount:{release.NAMESPACE}:virt-controller"
    vm = tiny_vm("nobody") | {"metadata": {"name": "nobody", "uid": "6b0a1c1e-0000-4000-8000-000000000009"}}
    pod = foreign_pod("virt-launcher-nobody-aaaaa", vm, owned=True)
    pod["spec"] |= {"automountServiceAccountToken": True}

    refused = kubectl.try_run(account, "create", "-f", "-", stdin=json.dumps(pod))

    assert refused.returncode != 0
    assert "virt-controller-pods.kubevirt.io" in refused.stderr
    kubectl.api.create(foreign_pod("bystander", vm, owned=False))
    kept = kubectl.try_run(account, "delete", "pod", "bystander", "--wait=false")
    assert kept.returncode != 0
    assert "may delete only launcher pods" in kept.stderr
    kubectl.api.delete("pod", "bystander")


def stealing(pod: Pod, namespace: str, secret: str) -> Pod:
    spec = {key: value for key, value in copy.deepcopy(pod["spec"]).items() if key not in ("nodeName", "priority", "preemptionPolicy")}
    spec["volumes"].append({"name": "stolen", "projected": {"sources": [{"secret": {"name": secret}}]}})
    mount = {"name": "stolen", "mountPath": f"{layout.SOURCES_DIRECTORY}/stolen", "readOnly": True}
    spec["containers"][0]["volumeMounts"].append(mount)
    metadata = {key: pod["metadata"][key] for key in ("labels", "ownerReferences")}
    name = f"{pod['metadata']['name'].rpartition('-')[0]}-aaaaa"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": name, "namespace": namespace}, "spec": spec}


def test_virt_controller_hands_no_machine_to_a_pod_with_secrets(
    kubectl: Kubectl, system: Kubectl, testguest: None, make_namespace: Callable[[str], Kubectl], tmp_path: Path
) -> None:
    account = f"--as=system:serviceaccount:{release.NAMESPACE}:virt-controller"
    thief = patching.as_account(kubectl, system.api.token("virt-controller"), tmp_path / "thief.kubeconfig")
    bank = make_namespace("bank")
    for each in (bank, kubectl):
        each.api.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}, "stringData": {"a": "b"}})
    vm, own = started(kubectl, "robber")
    for each in (bank, kubectl):
        pod = stealing(own, each.namespace, "password")
        made = json.loads(each(account, "create", "-o", "json", "-f", "-", stdin=json.dumps(pod)))
        status = {"podName": made["metadata"]["name"], "podUID": made["metadata"]["uid"]}
        path = f"/apis/kubevirt.io/v1alpha1/namespaces/{kubectl.namespace}/virtualmachines/robber/status"
        code, message = patching.patch(thief, path, {"status": status})
        assert (code, "status.podUID" in message) == (http.client.FORBIDDEN, True), message
        each.try_run("delete", "pod", made["metadata"]["name"], "--wait=false")
    assert vm_of(kubectl, "robber")["status"]["podUID"] == vm["status"]["podUID"] == own["metadata"]["uid"]
    kubectl.api.delete("vm", "robber", timeout=90)
