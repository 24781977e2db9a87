from __future__ import annotations

import ast
import copy
import inspect
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.lifecycle import evictions
from apiserver.apis.virt.places import names, node_states
from controller.reconcilers import trimming
from controller.reconcilers.indexes import node_of_pod
from controller.reconcilers.migrations import migration_retries
from controller.reconcilers.pods import ownership, pod_state, readiness
from controller.reconcilers.trimming import MAX_NAME, MAX_TEXT, trim_claim, trim_migration, trim_node, trim_object, trim_pod
from controller.reconcilers.virtual_machines import attempts, outdated
from tests.unit.controller.reconcilers.builders import a_migration, a_pod, a_vm

FROM_THE_SERVER: Final = ("fence_agent.py", "trimming.py")
LONG = {f"a{number}": "" for number in range(10_000)}


def test_a_trimmed_pod_is_judged_as_the_whole_one() -> None:
    pod, vm = a_pod(phase="Running"), a_vm()
    pod["spec"]["readinessGates"] = [{"conditionType": "of-others"}, {"conditionType": names.GUEST_RUNNING_GATE}]
    pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 60}
    pod["spec"]["containers"][0]["image"] = "launcher:v1"
    pod["spec"]["containers"][0]["resources"] = {"limits": {names.KVM_RESOURCE: "1", "memory": "1Gi", "cpu": "2"}}
    pod["status"]["containerStatuses"][0]["resources"] = {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}
    kept = trim_pod(pod)
    for judge in (
        ownership.owners_of,
        ownership.is_launcher,
        ownership.is_labelled,
        pod_state.is_running,
        pod_state.is_over,
        pod_state.is_ready,
        pod_state.addresses_of,
        pod_state.obstacle,
        pod_state.bound_at,
        pod_state.has_run,
        pod_state.running_since,
        pod_state.memory_limit,
        pod_state.actual_memory_limit,
        node_of_pod,
        readiness.has_gate,
        outdated.image_of,
        migration_retries.is_to_delete,
    ):
        assert judge(kept) == judge(pod)
    assert readiness.has_gate(kept)
    assert migration_retries.is_to_delete(kept)
    assert outdated.image_of(kept) == "launcher:v1"
    assert not readiness.has_gate(trim_pod(a_pod()))
    assert ownership.owners_of(kept) != []
    assert ownership.is_controlled_by(kept, vm)
    assert attempts.is_open(vm) == attempts.is_open(trim_object(vm))
    assert kept["spec"]["containers"][0]["resources"] == {"limits": {names.KVM_RESOURCE: "1", "memory": "1Gi"}}


def whole(name: str) -> dict[str, Any]:
    match name:
        case "pod":
            pod = a_pod(deleting=True)
            pod["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 60}
            pod["spec"] |= {"readinessGates": [{"conditionType": names.GUEST_RUNNING_GATE}], "terminationGracePeriodSeconds": 60}
            pod["status"] |= {"message": "m", "reason": "r", "podIPs": [{"ip": "10.0.0.1"}]}
            return pod
        case "node":
            allocatable = {"allocatable": {names.KVM_RESOURCE: "1"}}
            return {"metadata": {"name": "node1"}, "status": {"conditions": [{"type": "Ready"}], **allocatable}}
        case _:
            status = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
            return {"metadata": {"name": "c"}, "spec": {"volumeMode": "Block", "accessModes": ["ReadWriteMany"]}, "status": status}


def fields_read(objects: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return the paths that reconcilers ``dig``."""
    found = set()
    for path in Path(inspect.getfile(trimming)).parent.rglob("*.py"):
        if path.name in FROM_THE_SERVER:
            continue
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(each, ast.Call) and ast.unparse(each.func) == "dig" and ast.unparse(each.args[0]) in objects:
                steps = itertools.takewhile(lambda step: isinstance(step, ast.Constant), each.args[1:])
                found.add(tuple(ast.literal_eval(step) for step in steps))
    return found


@pytest.mark.parametrize(
    ("name", "objects", "trim"),
    [("pod", ("pod", "source", "target"), trim_pod), ("node", ("node",), trim_node), ("claim", ("claim", "claims.get(name)"), trim_claim)],
)
def test_informers_keep_the_fields_that_reconcilers_read(name: str, objects: tuple[str, ...], trim: Callable[[Object], Object]) -> None:
    read, obj = fields_read(objects), whole(name)
    assert len(read) > 1
    assert [path for path in read if dig(obj, *path) is None] == [], "add them to whole()"
    assert [path for path in read if dig(trim(obj), *path) is None] == [], "trimming drops them"


@pytest.mark.parametrize("place", ["labels", "annotations", "ownerReferences", "finalizers", "env", "containers", "nodeSelector"])
def test_trimmed_pod_has_bounded_size(place: str) -> None:
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


def test_trimmed_machine_drops_unread_metadata() -> None:
    vm = a_vm()
    vm["metadata"] |= {"annotations": LONG, "managedFields": [{}], "labels": {"app": "db"}}
    assert trim_object(vm)["metadata"].keys() == a_vm()["metadata"].keys() | {"labels"}


@pytest.mark.parametrize(
    ("field", "kept"),
    [("metadata.annotations['a.b/c']", {"a.b/c": "1"}), ("metadata.annotations", {"a.b/c": "1", "d": "2"}), ("metadata.labels", None)],
)
def test_annotations_are_kept_for_a_disk_that_has_them(field: str, kept: object) -> None:
    item = {"path": "x", "fieldRef": {"fieldPath": field}}
    vm = a_vm(domain={"devices": {"disks": [{"type": "DownwardAPI", "source": {"items": [item]}}]}})
    given = {"a.b/c": "1", "d": "2", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    for found in (given, "text", None):
        vm["metadata"]["annotations"] = found
        assert trim_object(copy.deepcopy(vm))["metadata"].get("annotations") == (kept if found is given else None)
    vm["metadata"]["annotations"], vm["spec"]["domain"]["memory"] = given, "spoiled"
    assert "annotations" not in trim_object(vm)["metadata"]


TEXT = "x" * 1_000_000


@pytest.mark.parametrize("field", ["name", "uid", "kind", "apiVersion"])
def test_trimmed_owner_is_bounded_and_keeps_its_identity(field: str) -> None:
    pod = a_pod()
    pod["metadata"]["ownerReferences"][0][field] += TEXT
    kept = trim_pod(pod)
    assert len(json.dumps(kept)) < 4096
    assert ownership.owners_of(kept) == [ownership.Owner(each.namespace, each.uid[:MAX_NAME]) for each in ownership.owners_of(pod)]
    assert ownership.is_controlled_by(kept, a_vm()) == ownership.is_controlled_by(pod, a_vm())


def test_a_mount_takes_no_more_memory_than_others() -> None:
    pod = a_pod()
    pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = TEXT
    kept = trim_pod(pod)
    assert len(json.dumps(kept)) < 4096
    assert ownership.is_launcher(kept)


def test_trimmed_kubelet_status_is_bounded_and_keeps_its_meaning() -> None:
    """A node may write its pods' status, and may create mirror pods in any namespace."""
    pod = a_pod(phase="Failed", exit_code=1)
    pod["status"] |= {"reason": TEXT, "message": TEXT, "podIPs": [{"ip": TEXT}]}
    pod["status"]["conditions"] = [
        *pod["status"].get("conditions", []),
        *({"type": f"x{number}", "message": TEXT} for number in range(1000)),
    ]
    terminated = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    terminated |= {"message": "migrated: " + TEXT, "containerID": TEXT}
    more = [{"name": f"c{number}", "state": {"waiting": {"reason": TEXT}}} for number in range(1000)]
    pod["status"]["containerStatuses"] += [*more, {"name": "other", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
    kept = trim_pod(pod)
    assert len(json.dumps(kept)) < 100_000
    assert pod_state.is_over(kept) is pod_state.is_over(pod) is False
    assert pod_state.end_of(kept) == pod_state.end_of(pod)
    assert pod_state.bound_at(kept) == pod_state.bound_at(pod)


def test_of_a_claim_the_access_modes_are_kept_once() -> None:
    claim = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"volumeMode": "Block", "accessModes": ["ReadWriteMany"] * 10_000}}
    assert trim_claim(claim)["spec"] == {"volumeMode": "Block", "accessModes": ["ReadWriteMany"]}


def test_of_a_migration_the_node_that_an_eviction_named_is_kept() -> None:
    made = a_migration(phase="Pending")
    made["metadata"] |= {"annotations": {evictions.NODE_ANNOTATION: "node1", "long": "x" * 1000}, "managedFields": [{}]}
    trimmed = trim_migration(made)
    assert evictions.node_left_by(trimmed) == "node1"
    assert trimmed["metadata"]["annotations"].keys() == {evictions.NODE_ANNOTATION}
    assert "managedFields" not in trimmed["metadata"]
    made["metadata"]["annotations"] = {evictions.NODE_ANNOTATION: "x" * 1000}
    assert len(evictions.node_left_by(trim_migration(made))) == MAX_NAME


@pytest.mark.parametrize("wrong", [None, 5, "x", [], {}, {evictions.NODE_ANNOTATION: 5}, {evictions.NODE_ANNOTATION: ["x"]}])
def test_malformed_migration_annotations_are_dropped(wrong: Any) -> None:
    made = a_migration()
    made["metadata"]["annotations"] = wrong
    assert "annotations" not in trim_migration(made)["metadata"]


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({"podCIDR": "10.0.0.0/24"}, {}),
        ({"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]}, {"unschedulable": True}),
        (
            {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule", "value": "x", "timeAdded": "y"}]},
            {"taints": [{"key": "karpenter.sh/disrupted", "value": "x", "effect": "NoSchedule"}]},
        ),
        ({"taints": [{"key": "karpenter.sh/disrupted", "effect": "PreferNoSchedule"}]}, {}),
    ],
)
def test_trimmed_node_keeps_its_cordon(spec: dict[str, Any], kept: dict[str, Any]) -> None:
    trimmed = trim_node({"metadata": {"name": "node1"}, "spec": spec})
    assert trimmed["spec"] == kept
    assert node_states.is_being_emptied(trimmed) is node_states.is_being_emptied({"spec": spec}) is bool(kept)


def test_trimmed_node_keeps_its_mark_as_non_operational() -> None:
    taint, told = {"key": "kubevirt.io/non-operational", "effect": "NoSchedule"}, {"type": "KubevirtNonOperational", "status": "True"}
    other = {"type": "MemoryPressure", "status": "True", "message": TEXT}
    status = {"conditions": [other, {**told, "message": TEXT, "x": TEXT}, {"type": "Ready", "status": "True"}]}
    trimmed = trim_node({"metadata": {"name": "node1", "creationTimestamp": "t"}, "spec": {"taints": [taint]}, "status": status})
    assert trimmed["spec"] == {"taints": [taint]}
    assert trimmed["status"]["conditions"] == [{"type": "Ready", "status": "True"}, {**told, "message": TEXT[:MAX_TEXT]}]
    assert trimmed["metadata"]["creationTimestamp"] == "t"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"phase": "Pending"}, {"phase": "Pending"}),
        ({"phase": "Bound", "capacity": {"storage": "2Gi", "x": TEXT}}, {"phase": "Bound", "capacity": {"storage": "2Gi"}}),
        ({"conditions": [TEXT]}, {}),
        ({"phase": "Bound", "capacity": None}, {"phase": "Bound"}),
        (None, {}),
    ],
)
def test_of_a_claim_phase_and_capacity_are_kept_and_nothing_else(given: object, kept: object) -> None:
    assert trim_claim({"metadata": {"name": "c"}, "spec": {}, "status": given})["status"] == kept
