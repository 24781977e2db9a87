"""What virt-controller keeps of objects that others may make as long as they like."""

from __future__ import annotations

import json

import pytest

from apiserver.apis.virt import names
from controller.reconcilers import attempts, ownership, pod_state
from controller.reconcilers.virtual_machines import node_of_pod, trim_object, trim_pod
from tests.unit.controller.reconcilers.builders import a_pod, a_vm

LONG = {f"a{number}": "" for number in range(10_000)}


def test_a_trimmed_pod_is_judged_as_the_whole_one() -> None:
    pod, vm = a_pod(phase="Running"), a_vm()
    pod["spec"]["containers"][0]["resources"] = {"limits": {names.KVM_RESOURCE: "1", "memory": "1Gi"}}
    kept = trim_pod(pod)
    for judge in (
        ownership.owners_of,
        ownership.is_launcher,
        ownership.is_labelled,
        pod_state.is_running,
        pod_state.is_over,
        pod_state.obstacle,
        pod_state.bound_at,
        node_of_pod,
    ):
        assert judge(kept) == judge(pod)
    assert ownership.owners_of(kept) != []
    assert ownership.is_controlled_by(kept, vm)
    assert attempts.is_open(vm) == attempts.is_open(trim_object(vm))
    assert kept["spec"]["containers"][0]["resources"] == {"limits": {names.KVM_RESOURCE: "1"}}


@pytest.mark.parametrize("place", ["labels", "annotations", "ownerReferences", "finalizers", "env", "containers", "nodeSelector"])
def test_a_pod_takes_no_more_memory_than_others_whatever_is_in_it(place: str) -> None:
    pod = a_pod(phase="Running")
    match place:
        case "labels" | "annotations":
            pod["metadata"][place] = {**(pod["metadata"].get(place) or {}), **LONG}
        case "ownerReferences":
            pod["metadata"][place] += [{"kind": "ConfigMap", "apiVersion": "v1", "name": each, "uid": each} for each in LONG]
        case "finalizers":
            pod["metadata"][place] = [f"example.com/{each}" for each in LONG]
        case "env":
            pod["spec"]["containers"][0]["env"] = [{"name": each, "value": ""} for each in LONG]
        case "containers":
            pod["spec"]["containers"] += [{"name": each} for each in LONG]
        case _:
            pod["spec"][place] = LONG
    assert len(json.dumps(trim_pod(pod))) < 4096


def test_of_a_machine_nothing_is_kept_that_nobody_reads() -> None:
    vm = a_vm()
    vm["metadata"] |= {"annotations": LONG, "managedFields": [{}], "labels": {"app": "db"}}
    assert trim_object(vm)["metadata"].keys() == a_vm()["metadata"].keys() | {"labels"}
