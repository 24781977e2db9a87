from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.places import names
from tests.cluster import patching, resources
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm
from tests.testbed import release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

Json = dict[str, Any]
LEASES = names.node_lease_namespace(release.NAMESPACE)
ACCOUNT = f"system:serviceaccount:{release.NAMESPACE}:virt-handler"
Stolen = Callable[[str | None], Kubectl]


@pytest.fixture(scope="module")
def stolen(kubectl: Kubectl, system: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Stolen:
    directory = tmp_path_factory.mktemp("stolen")

    def make(node: str | None) -> Kubectl:
        bound: tuple[str, ...] = ()
        if node is not None:
            pod = handlers(system)[node]
            bound = (
                "--bound-object-kind=Pod",
                f"--bound-object-name={pod['metadata']['name']}",
                f"--bound-object-uid={pod['metadata']['uid']}",
            )
        token = system("create", "token", "virt-handler", *bound).strip()
        return patching.as_account(kubectl, token, directory / f"{node or 'unbound'}.kubeconfig")

    return make


def handlers(system: Kubectl) -> dict[str, Json]:
    pods = system.api.list("pods", label_selector=f"{names.COMPONENT_LABEL}={names.HANDLER}")
    return {
        each["spec"]["nodeName"]: each
        for each in pods
        if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
    }


@pytest.fixture(scope="module")
def victim(kubectl: Kubectl, testguest: None) -> Json:
    kubectl.api.create(tiny_vm("victim"))
    return kubectl.api.ready("vm", "victim", timeout=90)


def other(system: Kubectl, node: str) -> str:
    return next(each for each in sorted(handlers(system)) if each != node)


def refusal(thief: Kubectl, owner: Kubectl, kind: str, name: str, changes: Json, **headers: str) -> str:
    path = resources.named(kind).path(owner.namespace, name, "status")
    while True:
        obj = owner.api.get(kind, name)
        kept = {key: obj["metadata"][key] for key in KEPT}
        body = {**obj, "metadata": kept, "status": {**(obj.get("status") or {}), **changes}}
        try:
            thief.api.request("PUT", path, body=body, headers=headers)
        except errors.Conflict:  # virt-handler writes, too
            continue
        except errors.StatusError as error:
            return str(error)
        return ""


KEPT = ("name", "namespace", "uid", "resourceVersion")
"""Metadata that a status update keeps."""
FORGERY: Json = {"phase": "Succeeded"}


def is_refused_to_another_node(kubectl: Kubectl, system: Kubectl, stolen: Stolen, victim: Json, changes: Json) -> None:
    node = other(system, victim["status"]["nodeName"])
    said = refusal(stolen(node), kubectl, "vm", "victim", changes)
    assert "is forbidden" in said
    assert f'virt-handler of node "{node}" may not write this status' in said
    assert "status.nodeName" in said


def is_refused_to_its_own_node(kubectl: Kubectl, stolen: Stolen, victim: Json, changes: Json) -> None:
    node = victim["status"]["nodeName"]
    said = refusal(stolen(node), kubectl, "vm", "victim", changes)
    assert f'virt-handler of node "{node}" may not write this status' in said
    assert f"status.{next(iter(changes))}" in said or "status.attempts" in said
    assert not refusal(stolen(node), kubectl, "vm", "victim", {})


def test_node_token_cannot_write_another_nodes_status(kubectl: Kubectl, system: Kubectl, stolen: Stolen, victim: Json) -> None:
    is_refused_to_another_node(kubectl, system, stolen, victim, FORGERY)


def test_own_nodes_token_forges_no_foreign_field(kubectl: Kubectl, stolen: Stolen, victim: Json) -> None:
    is_refused_to_its_own_node(kubectl, stolen, victim, FORGERY)


def test_a_token_that_is_bound_to_no_pod_writes_nothing(kubectl: Kubectl, stolen: Stolen, victim: Json) -> None:
    assert "names no node" in refusal(stolen(None), kubectl, "vm", victim["metadata"]["name"], {})


def test_account_without_its_claim_writes_nothing(kubectl: Kubectl, victim: Json) -> None:
    """An administrator who impersonates the account has no node."""
    assert "names no node" in refusal(kubectl, kubectl, "vm", victim["metadata"]["name"], {}, **{"Impersonate-User": ACCOUNT})


def test_the_guests_memory_is_sent_nowhere_but_to_the_target(kubectl: Kubectl, system: Kubectl, stolen: Stolen, victim: Json) -> None:
    source = victim["status"]["nodeName"]
    target = other(system, source)
    made = {
        "apiVersion": "kubevirt.io/v1alpha1", "kind": "Migration", "metadata": {"name": "forged"},
        "spec": {"selector": {"name": "victim"}, "nodeSelector": {"kubernetes.io/hostname": "nowhere"}},
    }  # fmt: skip
    kubectl.api.create(made)
    try:
        kubectl.api.until("migrations", "forged", lambda each: dig(each, "status", "targetPod"), timeout=300, what="the target pod")
        for node in (source, target):
            said = refusal(stolen(node), kubectl, "migration", "forged", {"phase": "TargetReady", "targetAddress": "192.0.2.66:8445"})
            assert "is forbidden" in said, said
        assert "names no node" in refusal(stolen(None), kubectl, "migration", "forged", {})
    finally:
        kubectl.api.delete("migrations", "forged", timeout=60)


def lease_refusal(thief: Kubectl, verb: str, namespace: str, name: str, holder: str) -> str:
    within = thief.api.within(namespace)
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 40}
    try:
        if verb == "create":
            within.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec})
        else:
            within.patch("lease", name, {"spec": spec})
    except errors.StatusError as error:
        return str(error)
    return ""


def test_a_node_renews_its_own_lease_and_no_other(system: Kubectl, stolen: Stolen) -> None:
    first, second = sorted(handlers(system))[:2]
    thief = stolen(first)
    system.api.within(LEASES).until_list("leases", bool, timeout=60, what="Leases of virt-handlers")
    assert f"may write only Lease {LEASES}/virt-handler-{first}" in lease_refusal(thief, "create", LEASES, f"virt-handler-{second}x", first)
    assert "spec.holderIdentity must be" in lease_refusal(thief, "create", LEASES, f"virt-handler-{first}", second)
    assert "already exists" in lease_refusal(thief, "create", LEASES, f"virt-handler-{first}", first)
    assert "names no node" in lease_refusal(stolen(None), "create", LEASES, "virt-handler-x", "x")
    for verb in ("create", "patch"):
        assert "forbidden" in lease_refusal(thief, verb, release.NAMESPACE, "virt-controller", first).lower()
    assert lease_refusal(thief, "patch", LEASES, f"virt-handler-{second}", first)
