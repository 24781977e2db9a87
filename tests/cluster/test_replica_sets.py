"""Kubernetes' ReplicaSet with pods, and ours with machines, must do the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.meta.objects import Object, condition, controller_of, dig, is_deleting, name_of, uid_of
from tests.cluster.api import is_true
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import shared_claim, tiny_vm, with_disks
from tests.cluster.test_rollouts import SETS, a_pool
from tests.testbed.nodes import SANDBOX_IMAGE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(660)]

WAIT: Final = 60
HELD: Final = "example.test/held"
WEB: Final = {"app": "web"}
NO_SCALE: Final = "virtualmachines.kubevirt.io does not implement the scale subresource"


@dataclass(frozen=True)
class Kind:
    set: str
    api_version: str
    kind: str
    replica: str
    replica_kind: Object
    spec: Object
    cost: str
    runs: Object

    def manifest(self, replicas: int, name: str = "web", labels: dict[str, str] | None = None) -> Object:
        given = labels or WEB
        template = {"metadata": {"labels": given}, "spec": self.spec}
        spec = {"replicas": replicas, "selector": {"matchLabels": given}, "template": template}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": name}, "spec": spec}

    def one(self, name: str, labels: dict[str, str], **spec: Any) -> Object:
        return {**self.replica_kind, "metadata": {"name": name, "labels": labels}, "spec": {**self.spec, **spec}}


_CONFINED: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_POD: Final = {
    "terminationGracePeriodSeconds": 0,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [{"name": "pause", "image": SANDBOX_IMAGE, "imagePullPolicy": "Never", "securityContext": _CONFINED}],
}
KINDS: Final = (
    Kind(
        "replicasets",
        "apps/v1",
        "ReplicaSet",
        "pods",
        {"apiVersion": "v1", "kind": "Pod"},
        _POD,
        "controller.kubernetes.io/pod-deletion-cost",
        _POD,
    ),
    Kind(
        "virtualmachinereplicasets",
        "kubevirt.io/v1alpha1",
        "VirtualMachineReplicaSet",
        "virtualmachines",
        {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine"},
        {**tiny_vm("", runStrategy="Halted")["spec"]},
        "kubevirt.io/deletion-cost",
        tiny_vm("")["spec"],
    ),
)


class Sets:
    def __init__(self, kubectl: Kubectl, kind: Kind) -> None:
        self.kubectl, self.kind, self._api = kubectl, kind, kubectl.api

    def create(self, replicas: int, name: str = "web", labels: dict[str, str] | None = None) -> Object:
        return self._api.create(self.kind.manifest(replicas, name, labels))

    def create_one(self, name: str, labels: dict[str, str] = WEB, **spec: Any) -> Object:
        return self._api.create(self.kind.one(name, labels, **spec))

    def get(self, name: str = "web") -> Object:
        return self._api.get(self.kind.set, name)

    def until(self, claim: Callable[[list[Object]], Any], what: str) -> list[Object]:
        found = self._api.until_list(self.kind.replica, lambda all_: claim(list(filter(stays, all_))), timeout=WAIT, what=what)
        return list(filter(stays, found))

    def settled(self, count: int, name: str = "web") -> list[Object]:
        owner = uid_of(self.get(name))
        found = self.until(lambda all_: len(owned(all_, owner)) == count, f"{count} replicas")
        self._api.until(
            self.kind.set,
            name,
            lambda each: (
                (dig(each, "status", "replicas") or 0) == count
                and dig(each, "status", "observedGeneration") == dig(each, "metadata", "generation")
            ),
            timeout=WAIT,
            what=f"a status of {count}",
        )
        return owned(found, owner)

    def scale(self, replicas: int) -> None:
        self.kubectl("scale", f"{self.kind.set}/web", f"--replicas={replicas}")

    def label(self, name: str, value: str) -> None:
        self._api.patch(self.kind.replica, name, {"metadata": {"labels": {"app": value}}})

    def delete(self, propagation: str, name: str = "web") -> None:
        self._api.delete(self.kind.set, name, propagation=propagation, timeout=WAIT)

    def clean(self) -> None:
        self._api.delete_all(self.kind.set, timeout=WAIT)
        self._api.delete_all(self.kind.replica, timeout=WAIT, grace_period=None)


def stays(obj: Object) -> bool:
    return not is_deleting(obj)


def owned(objects: list[Object], owner: str) -> list[Object]:
    return [each for each in objects if (controller_of(each) or {}).get("uid") == owner]


def names(objects: list[Object]) -> set[str]:
    return set(map(name_of, objects))


def scales(sets: Sets) -> Any:
    sets.create(2)
    first = sets.settled(2)
    sets.scale(4)
    assert names(first) < names(sets.settled(4))
    sets.scale(1)
    (left,) = sets.settled(1)
    sets.kubectl.api.delete(sets.kind.replica, name_of(left))
    (other,) = sets.until(lambda all_: len(all_) == 1 and name_of(left) not in names(all_), "another replica")
    owner = controller_of(other) or {}
    return {key: value for key, value in owner.items() if key not in ("apiVersion", "kind", "uid")}


def adopts(sets: Sets) -> Any:
    """Create a set of three; return how many of two matching replicas without a controller it adopts, and how many it then has."""
    for name, labels in (("one", WEB), ("two", WEB), ("other", {"app": "db"})):
        sets.create_one(name, labels)
    sets.create(3)
    found = names(sets.settled(3))
    assert "other" not in found
    return len(found & {"one", "two"}), len(found)


def releases(sets: Sets) -> Any:
    """Relabel a replica, so the set releases and replaces it, then restore the label; return its ownerReferences in between."""
    sets.create(2)
    first, _ = sets.settled(2)
    sets.label(name_of(first), "debug")
    sets.until(lambda all_: len(all_) == 3, "a replacement")
    released = sets.kubectl.api.until(
        sets.kind.replica, name_of(first), lambda each: controller_of(each) is None, timeout=WAIT, what="its release"
    )
    sets.label(name_of(first), "web")
    sets.until(lambda all_: len(all_) == 2, "the end of one too many")
    return dig(released, "metadata", "ownerReferences")


def leaves_others_alone(sets: Sets) -> Any:
    sets.create(2)
    first = names(sets.settled(2))
    sets.create(1, "twin")
    second = names(sets.settled(1, "twin"))
    assert not first & second
    return len(sets.settled(2)), len(first), len(second)


def orphans(sets: Sets) -> Any:
    sets.create(2)
    first = names(sets.settled(2))
    sets.delete("Orphan")
    left = sets.until(lambda all_: not any(map(controller_of, all_)), "replicas without an owner")
    assert names(left) == first
    sets.create(2)
    return names(sets.settled(2)) == first


def is_held_by_us_alone(replica: Object) -> bool:
    return finalizers(replica) == [HELD]


def goes_after_its_replicas(sets: Sets) -> Any:
    sets.create(2)
    held, _ = sets.settled(2)
    sets.kubectl.api.patch(sets.kind.replica, name_of(held), {"metadata": {"finalizers": [*finalizers(held), HELD]}})
    sets.kubectl.api.delete(sets.kind.set, "web", propagation="Foreground")
    sets.kubectl.api.until_list(sets.kind.replica, lambda all_: len(all_) == 1, timeout=WAIT, what="the end of the other replica")
    waiting = dig(sets.get(), "metadata", "finalizers")
    sets.kubectl.api.until(sets.kind.replica, name_of(held), is_held_by_us_alone, timeout=WAIT, what="a replica without other finalizers")
    sets.kubectl.api.patch(sets.kind.replica, name_of(held), {"metadata": {"finalizers": None}})
    sets.kubectl.api.gone(sets.kind.set, "web", timeout=WAIT)
    return waiting, sets.kubectl.api.list(sets.kind.replica)


def goes_before_its_replicas(sets: Sets) -> Any:
    sets.create(2)
    sets.settled(2)
    sets.delete("Background")
    return sets.kubectl.api.until_list(sets.kind.replica, lambda all_: not all_, timeout=WAIT, what="the end of the replicas")


def keeps_the_expensive(sets: Sets) -> Any:
    sets.create(4)
    found = sorted(sets.settled(4), key=name_of)
    for cost, each in zip(("5", "-3", "100", "7"), found, strict=True):
        sets.kubectl.api.patch(sets.kind.replica, name_of(each), {"metadata": {"annotations": {sets.kind.cost: cost}}})
    if sets.kind.replica == "pods":
        sets.kubectl.api.until(
            sets.kind.set, "web", lambda each: dig(each, "status", "readyReplicas") == 4, timeout=WAIT, what="ready pods"
        )
    sets.scale(2)
    left = names(sets.settled(2))
    return [name_of(each) in left for each in found]


def keeps_the_ready(sets: Sets) -> Any:
    """Add a replica that no node takes to two ready ones; return whether the set deletes only that."""
    ready = sets.kind.manifest(2)
    ready["spec"]["template"]["spec"] = sets.kind.runs
    sets.kubectl.api.create(ready)
    sets.kubectl.api.until(
        sets.kind.set, "web", lambda each: dig(each, "status", "readyReplicas") == 2, timeout=WAIT, what="two ready ones"
    )
    first = names(sets.settled(2))
    sets.create_one("unready", nodeSelector={"no": "node"})
    sets.until(lambda all_: "unready" not in names(all_), "the end of the unready one")
    stayed = names(sets.settled(2)) == first
    sets.clean()
    return stayed


def takes_from_the_fuller_node(sets: Sets) -> Any:
    """Adopt two ready replicas on a node and a younger one on the other; return whether a smaller set keeps the younger one.

    Kubernetes looks at the nodes only for ReplicaSets with a controller, such as a Deployment's.
    """
    full, other = (name_of(each) for each in sets.kubectl.api.list("nodes")[:2])
    for number, node in enumerate((full, full, other)):
        name = f"replica-{number}"
        spec = {**sets.kind.runs, "nodeSelector": {"kubernetes.io/hostname": node}}
        sets.kubectl.api.create({**sets.kind.one(name, WEB), "spec": spec})
        sets.kubectl.api.until(sets.kind.replica, name, is_true("Ready"), timeout=WAIT, what="ready")
    owner = sets.kubectl.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "owner-"}})
    manifest = sets.kind.manifest(3)
    manifest["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": name_of(owner), "uid": uid_of(owner), "controller": True}
    ]
    sets.kubectl.api.create(manifest)
    sets.kubectl.api.until(
        sets.kind.set, "web", lambda each: dig(each, "status", "readyReplicas") == 3, timeout=WAIT, what="three ready ones"
    )
    sets.scale(2)
    left = names(sets.settled(2))
    sets.clean()
    return len(left), "replica-2" in left


def refuses_a_selector_of_other_labels(sets: Sets) -> Any:
    wrong = sets.kind.manifest(1)
    wrong["spec"]["template"]["metadata"]["labels"] = {"app": "db"}
    done = sets.kubectl.try_run("create", "-f", "-", stdin=json.dumps(wrong))
    sets.create(0)
    edited = json.dumps({"spec": {"selector": {"matchLabels": {"app": "db"}}}})
    changed = sets.kubectl.try_run("patch", sets.kind.set, "web", "--type=merge", "-p", edited)
    return (
        done.returncode,
        "spec.template.metadata.labels: Invalid value" in done.stderr and "`selector` does not match template `labels`" in done.stderr,
        changed.returncode,
        "spec.selector: Invalid value" in changed.stderr and "field is immutable" in changed.stderr,
    )


def is_scaled_by_an_autoscaler(sets: Sets) -> Any:
    sets.create(1)
    sets.settled(1)
    target = {"apiVersion": sets.kind.api_version, "kind": sets.kind.kind, "name": "web"}
    sets.kubectl.api.create(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web"},
            "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4},
        }
    )
    try:
        return len(sets.settled(3))
    finally:
        sets.kubectl.api.delete("horizontalpodautoscalers", "web")


def finalizers(obj: Object) -> list[str]:
    return dig(obj, "metadata", "finalizers") or []


RULES: Final = (
    scales,
    adopts,
    releases,
    leaves_others_alone,
    orphans,
    goes_after_its_replicas,
    goes_before_its_replicas,
    keeps_the_expensive,
    keeps_the_ready,
    takes_from_the_fuller_node,
    refuses_a_selector_of_other_labels,
    is_scaled_by_an_autoscaler,
)


@pytest.fixture
def both(kubectl: Kubectl, testguest: None) -> Iterator[list[Sets]]:
    del testguest
    made = [Sets(kubectl, kind) for kind in KINDS]
    yield made
    for each in made:
        each.clean()


@pytest.mark.sample(4, "rules of replica sets")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_our_set_follows_the_rule_as_kubernetes_does(both: list[Sets], rule: Callable[[Sets], Any]) -> None:
    theirs, ours = (rule(sets) for sets in both)
    assert ours == theirs


@pytest.mark.parametrize(("example", "name"), [("replica-set.yaml", "web"), ("replica-set-ordinals.yaml", "db")])
def test_the_example_of_a_set_is_accepted(kubectl: Kubectl, example: str, name: str) -> None:
    answer = kubectl("create", "--dry-run=server", "-f", str(Path(__file__).parents[2] / "examples" / example))
    assert answer.strip() == f"virtualmachinereplicaset.kubevirt.io/{name} created (server dry run)"


def test_guests_of_a_set_are_ready_and_unlike(kubectl: Kubectl, testguest: None) -> None:
    del testguest
    kind = KINDS[1]
    manifest = kind.manifest(2, "guests", {"app": "guests"})
    manifest["spec"]["template"]["spec"] = tiny_vm("")["spec"]
    kubectl.api.create(manifest)
    kubectl.api.until(kind.set, "guests", lambda each: dig(each, "status", "availableReplicas") == 2, timeout=120, what="ready guests")
    machines = kubectl.api.list("vms", label_selector="app=guests")
    macs = {dig(each, "status", "interfaces")[0]["mac"] for each in machines}
    uuids = {
        kubectl("get", "--raw", f"/apis/kubevirt.io/v1alpha1/namespaces/{kubectl.namespace}/virtualmachines/{name_of(each)}/domainxml")
        for each in machines
    }
    assert len(machines) == len(macs) == len({each.partition("<uuid>")[2].partition("</uuid>")[0] for each in uuids}) == 2
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guests"}}
    selected = {"selector": {"matchLabels": {"app": "guests"}}}
    kubectl.api.create({**budget, "spec": {**selected, "minAvailable": 2}})
    kubectl.api.until("pdb", "guests", lambda each: dig(each, "status", "currentHealthy") == 2, timeout=WAIT, what="two healthy pods")
    assert dig(kubectl.api.get("pdb", "guests"), "status", "disruptionsAllowed") == 0

    # docs/operating/migrations.md, "Draining a node"
    kubectl.api.create({**budget, "metadata": {"name": "unusable"}, "spec": {**selected, "maxUnavailable": 1}})

    def is_refused(each: Object) -> bool:
        return NO_SCALE in str(dig(condition(dig(each, "status", "conditions"), "DisruptionAllowed"), "message"))

    kubectl.api.until("pdb", "unusable", is_refused, timeout=WAIT, what="a budget that counts no pods")
    kubectl("scale", "vmrs/guests", "--replicas=0")
    kubectl.api.until_list("vms", lambda left: not left, timeout=120, what="the end of the guests", label_selector="app=guests")


def claims(kubectl: Kubectl) -> dict[str, str]:
    return {name_of(each): uid_of(each) for each in kubectl.api.list("pvc")}


def test_claims_of_a_set_stay_or_go_as_its_policy_says(kubectl: Kubectl, testguest: None) -> None:
    pool = a_pool()
    pool["spec"] |= {
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": shared_claim("")["spec"]}],
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
    }
    data = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data-$(vm.name)", "create": {"size": "8Mi"}}}
    with_disks(pool["spec"]["template"], data)
    kubectl.api.create(pool)
    kubectl.api.ready("vm", "db-1", timeout=180)
    first = claims(kubectl)
    assert set(first) == {"data-db-0", "data-db-1"}

    kubectl("scale", "vmrs/db", "--replicas=1")
    kubectl.api.gone("pvc", "data-db-1", timeout=120)
    kubectl.api.delete(SETS, "db")
    kubectl.api.gone("vm", "db-0", timeout=120)
    assert claims(kubectl) == {"data-db-0": first["data-db-0"]}

    pool["spec"]["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Delete"}
    kubectl.api.create(pool)
    kubectl.api.ready("vm", "db-1", timeout=180)
    again = claims(kubectl)
    assert (again["data-db-0"], again["data-db-1"] != first["data-db-1"]) == (first["data-db-0"], True)
    kubectl.api.delete(SETS, "db")
    kubectl.api.gone("pvc", "data-db-1", timeout=120)
    kubectl.api.gone("vm", "db-0", timeout=120)
    assert claims(kubectl) == {"data-db-0": first["data-db-0"]}
