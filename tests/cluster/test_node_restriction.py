"""What the credentials of one node open: a token of its virt-handler's pod, as whoever took over the node has it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from apiserver.apis.virt import names
from tests.cluster import patching
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import linux_vm
from tests.testbed import release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

Json = dict[str, Any]
LEASES = names.node_lease_namespace(release.NAMESPACE)
ACCOUNT = f"system:serviceaccount:{release.NAMESPACE}:virt-handler"
Stolen = Callable[[str | None], Kubectl]


@pytest.fixture(scope="module")
def stolen(kubectl: Kubectl, system: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Stolen:
    """Return kubectl with a token of the virt-handler of a node; None: with one of the account that is bound to no pod."""
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
    """Return the pods of virt-handler that run, by node."""
    pods = system.json("get", "pods", "-l", f"{names.COMPONENT_LABEL}={names.HANDLER}")["items"]
    return {
        each["spec"]["nodeName"]: each
        for each in pods
        if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
    }


@pytest.fixture(scope="module")
def victim(kubectl: Kubectl) -> Json:
    """A machine that runs on some node."""
    kubectl.apply(linux_vm("victim"))
    kubectl("wait", "vm", "victim", "--for=condition=Ready", "--timeout=90s", timeout=100)
    found: Json = kubectl.json("get", "vm", "victim")
    return found


def other(system: Kubectl, node: str) -> str:
    return next(each for each in sorted(handlers(system)) if each != node)


def refusal(thief: Kubectl, owner: Kubectl, kind: str, name: str, changes: Json) -> str:
    """Replace a status, as it is now but for ``changes``; return what kubectl is told."""
    while True:
        obj = copy.deepcopy(owner.json("get", kind, name))
        obj["metadata"] = {key: obj["metadata"][key] for key in KEPT}
        obj.setdefault("status", {}).update(changes)
        done = thief.try_run("replace", "--subresource=status", "-f", "-", stdin=json.dumps(obj))
        if MODIFIED not in done.stderr:  # virt-handler itself writes in between
            return done.stderr if done.returncode else ""


KEPT = ("name", "namespace", "uid", "resourceVersion")
"""Of an object's metadata, by who replaces its status: kubectl demands the revision."""
MODIFIED = "the object has been modified"
FORGERIES: tuple[Json, ...] = (
    {"phase": "Succeeded"},
    {"nodeName": "elsewhere"},
    {"podUID": "0b8f7f0e-5d0c-4a8e-9f61-0b6ad2c9a001"},
    {"podIP": "192.0.2.66"},
    {"request": {"action": "Stop", "runStrategy": "RerunOnFailure", "attempt": 1}},
    {"attempt": 9},
    {},
)


@pytest.mark.parametrize("changes", FORGERIES, ids=lambda each: ",".join(each) or "nothing")
def test_one_nodes_token_writes_no_status_of_another_nodes_machine(
    kubectl: Kubectl, system: Kubectl, stolen: Stolen, victim: Json, changes: Json
) -> None:
    node = other(system, victim["status"]["nodeName"])
    said = refusal(stolen(node), kubectl, "vm", "victim", changes)
    assert "is forbidden" in said
    assert f'virt-handler of node "{node}" may not write this status' in said
    assert "status.nodeName" in said


@pytest.mark.parametrize("changes", [each for each in FORGERIES if each], ids=",".join)
def test_even_the_own_nodes_token_forges_nothing_that_is_anothers_to_decide(
    kubectl: Kubectl, stolen: Stolen, victim: Json, changes: Json
) -> None:
    node = victim["status"]["nodeName"]
    said = refusal(stolen(node), kubectl, "vm", "victim", changes)
    assert f'virt-handler of node "{node}" may not write this status' in said
    assert f"status.{next(iter(changes))}" in said or "status.attempts" in said
    assert not refusal(stolen(node), kubectl, "vm", "victim", {})


def test_a_token_that_is_bound_to_no_pod_writes_nothing(kubectl: Kubectl, stolen: Stolen, victim: Json) -> None:
    assert "names no node" in refusal(stolen(None), kubectl, "vm", victim["metadata"]["name"], {})


def test_who_acts_as_the_account_without_its_claim_writes_nothing(kubectl: Kubectl, victim: Json) -> None:
    """An administrator who acts as the account has not its node, unless it says so."""

    def refused() -> str:
        """Return the words of the refusal; virt-handler may write the status between our read and our write."""
        obj = kubectl.json("get", "vm", victim["metadata"]["name"])
        body = json.dumps({**obj, "metadata": {key: obj["metadata"][key] for key in KEPT}})
        done = kubectl.try_run("replace", "--subresource=status", f"--as={ACCOUNT}", "-f", "-", stdin=body)
        assert done.returncode
        return "" if "(Conflict)" in done.stderr else done.stderr

    assert "names no node" in eventually(refused, timeout=90, what="an answer that is no conflict")


def test_the_guests_memory_is_sent_nowhere_but_to_the_target(kubectl: Kubectl, system: Kubectl, stolen: Stolen, victim: Json) -> None:
    """A Migration to a node that is not there stays unfinished."""
    source = victim["status"]["nodeName"]
    target = other(system, source)
    made = {
        "apiVersion": "kubevirt.io/v1alpha1", "kind": "Migration", "metadata": {"name": "forged"},
        "spec": {"selector": {"name": "victim"}, "nodeSelector": {"kubernetes.io/hostname": "nowhere"}},
    }  # fmt: skip
    kubectl.create(made)
    try:
        eventually(
            lambda: kubectl.json("get", "migration", "forged").get("status", {}).get("targetPod"), timeout=300, what="the target pod"
        )
        for node in (source, target):
            said = refusal(stolen(node), kubectl, "migration", "forged", {"phase": "TargetReady", "targetAddress": "192.0.2.66:8445"})
            assert "is forbidden" in said, said
        assert "names no node" in refusal(stolen(None), kubectl, "migration", "forged", {})
    finally:
        kubectl("delete", "migration", "forged", "--timeout=60s", timeout=70)


def lease_refusal(thief: Kubectl, verb: str, namespace: str, name: str, holder: str) -> str:
    within = thief.within(namespace)
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 40}
    if verb == "create":
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
        done = within.try_run("create", "-f", "-", stdin=json.dumps(body))
    else:
        done = within.try_run("patch", "lease", name, "--type=merge", "-p", json.dumps({"spec": spec}))
    return done.stderr if done.returncode else ""


def test_a_node_renews_its_own_lease_and_no_other(system: Kubectl, stolen: Stolen) -> None:
    first, second = sorted(handlers(system))[:2]
    thief = stolen(first)
    eventually(lambda: system.within(LEASES).json("get", "leases")["items"], timeout=60, what="Leases of virt-handlers")
    # kubectl patch reads first, which virt-handler may not: what is asked of the policy is asked by creations, and by a raw patch.
    assert f"may write Lease {LEASES}/virt-handler-{first} and no other" in lease_refusal(
        thief, "create", LEASES, f"virt-handler-{second}x", first
    )
    assert "spec.holderIdentity must be" in lease_refusal(thief, "create", LEASES, f"virt-handler-{first}", second)
    assert "already exists" in lease_refusal(thief, "create", LEASES, f"virt-handler-{first}", first)
    assert "names no node" in lease_refusal(stolen(None), "create", LEASES, "virt-handler-x", "x")
    for verb in ("create", "patch"):
        assert "forbidden" in lease_refusal(thief, verb, release.NAMESPACE, "virt-controller", first).lower()
    assert lease_refusal(thief, "patch", LEASES, f"virt-handler-{second}", first)
