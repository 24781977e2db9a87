from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.apis.meta.objects import uid_of
from apiserver.apis.virt.places import names
from controller.reconcilers.pods import ownership
from controller.reconcilers.pods.ownership import Owner, Reference
from tests.unit.controller.reconcilers.builders import UID, a_migration, a_pod, a_vm, an_attempt

OWN = an_attempt()["podName"]


def owner(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "name": "testvm", "uid": UID, "controller": True, **changes}


@pytest.mark.parametrize(
    ("references", "controls"),
    [
        ([owner()], True),
        ([owner(apiVersion="kubevirt.io/v1")], True),
        ([owner(uid="another"), owner(uid=UID, controller=False)], False),
        ([owner(controller=False)], False),
        ([owner(kind="Migration")], False),
        ([owner(apiVersion="apps/v1")], False),
        ([owner(apiVersion="kubevirt.io")], False),
        ([owner(apiVersion="evilkubevirt.io/v1alpha1")], False),
        ([], False),
        (None, False),
    ],
)
def test_controller_reference_decides_the_pods_machine(references: Any, controls: bool) -> None:
    pod = a_pod()
    pod["metadata"]["ownerReferences"] = references
    assert ownership.is_controlled_by(pod, a_vm()) is controls
    assert ownership.owners_of(pod) == ([Owner("default", UID)] if controls else ownership.owners_of(pod))


@pytest.mark.parametrize("lost", [(), ("labels",), ("ownerReferences",), ("labels", "ownerReferences")])
def test_repair_message_names_what_the_pod_lacks(lost: tuple[str, ...]) -> None:
    pod = a_pod()
    if "labels" in lost:
        pod["metadata"]["labels"] = {names.VM_NAME_LABEL: "testvm", names.CREATED_BY_LABEL: "another", "a": "b"}
    pod["metadata"] |= {each: [] for each in lost if each != "labels"}
    labels = f"kubectl label pod {OWN} -n default --overwrite kubevirt.io=virt-launcher kubevirt.io/created-by={UID}"
    owner = "restart the virtual machine, so that it gets a pod with the right owner"
    assert ownership.to_restore(pod, a_vm()) == "; ".join(
        ([labels] if "labels" in lost else []) + ([owner] if "ownerReferences" in lost else [])
    )


def test_a_pod_of_another_namespace_is_nobodys() -> None:
    pod = a_pod()
    pod["metadata"]["namespace"] = "elsewhere"
    assert not ownership.is_controlled_by(pod, a_vm())
    assert ownership.owners_of(pod) == [Owner("elsewhere", UID)]


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod["metadata"].update(name="mine"),
        lambda pod: pod["spec"].update(restartPolicy="Always"),
        lambda pod: pod["spec"].pop("automountServiceAccountToken"),
        lambda pod: pod["spec"]["containers"][0].update(name="mine"),
        lambda pod: pod["spec"]["containers"][0].pop("volumeMounts"),
    ],
)
def test_pod_that_we_cannot_have_made_has_no_machine(change: Any) -> None:
    """virt-controller may not delete such a pod, so counting it would mean waiting forever."""
    pod = a_pod()
    change(pod)
    assert not ownership.is_controlled_by(pod, a_vm())
    assert ownership.owners_of(pod) == []


def test_labels_say_nothing() -> None:
    pod = a_pod()
    del pod["metadata"]["ownerReferences"]
    assert ownership.owners_of(pod) == []
    bare = a_pod()
    del bare["metadata"]["labels"]
    assert ownership.is_controlled_by(bare, a_vm())
    assert not ownership.is_labelled(bare)


def test_an_owner_that_was_taken_off_is_still_told() -> None:
    old, new = a_pod(), a_pod()
    new["metadata"]["ownerReferences"] = [owner(name="othervm", uid="other")]
    assert ownership.owner_names(old, new) == {("default", "testvm"), ("default", "othervm")}
    assert ownership.owner_names(old, None) == {("default", "testvm")}


def test_reference_with_uid_means_exactly_one_pod() -> None:
    bare = a_pod()
    del bare["metadata"]["ownerReferences"]
    assert ownership.is_meant(bare, Reference(OWN, uid_of(bare)), a_vm())
    assert ownership.is_meant(bare, Reference(OWN, uid_of(bare)), None)
    namesake = copy.deepcopy(a_pod())
    namesake["metadata"]["uid"] = "later"
    assert not ownership.is_meant(namesake, Reference(OWN, uid_of(bare)), a_vm())


def test_reference_without_uid_means_pods_the_machine_controls() -> None:
    assert ownership.is_meant(a_pod(), Reference(OWN, ""), a_vm())
    assert not ownership.is_meant(a_pod(), Reference(OWN, ""), None)
    assert not ownership.is_meant(a_pod(), Reference("other", ""), a_vm())
    bare = a_pod()
    del bare["metadata"]["ownerReferences"]
    assert not ownership.is_meant(bare, Reference(OWN, ""), a_vm())


def test_machine_refers_to_its_pod_and_open_migrations_pods() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    own = Reference(OWN, f"uid-of-{OWN}")
    target = names.target_pod_name("testvm", "migration-uid")
    assert ownership.references(a_vm(), ()) == ()
    assert ownership.references(vm, [a_migration()]) == (own, Reference(target, ""))

    moving = a_migration(phase="Running", sourcePod="left", sourcePodUID="u1", targetPodUID="u2")
    assert ownership.references(vm, [moving]) == (own, Reference("left", "u1"), Reference(target, "u2"))
    over = a_migration(phase="Failed", sourcePod="left", sourcePodUID="u1", targetPodUID="u2")
    assert Reference(target, "u2") in ownership.references(vm, [over])
    over["metadata"]["finalizers"] = []
    assert ownership.references(vm, [over]) == (own,)


def test_source_without_uid_matches_only_by_the_pods_name() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    assert ownership.source_of(a_migration(phase="Running", sourcePod=OWN), vm) == Reference(OWN, f"uid-of-{OWN}")
    assert ownership.source_of(a_migration(phase="Running", sourcePod="earlier"), vm) == Reference("earlier", "")
    assert ownership.source_of(a_migration(), None) is None
