"""The parts of objects that informers keep, with limits on their size. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object, annotations_of, condition, controller_of, dig, without_managed_fields
from apiserver.apis.virt import guards, structure
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import evictions, failed_starts
from apiserver.apis.virt.lifecycle.ordinals import SET_LABEL
from apiserver.apis.virt.places import layout, names, node_states, shape
from controller.reconcilers.launcher_pods import downward_api
from controller.reconcilers.nodes import baseline_cpu
from controller.reconcilers.pods import readiness

_OF_POD_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_OF_POD_SPEC: Final = ("automountServiceAccountToken", "nodeName", "restartPolicy", "terminationGracePeriodSeconds")
_OF_POD_STATUS: Final = ("message", "phase", "podIP", "reason")
_OF_CONDITION: Final = ("type", "status", "reason", "message", "lastTransitionTime")
_OF_LIMITS: Final = ("memory", names.KVM_RESOURCE)
_OF_OWNER: Final = ("apiVersion", "kind", "name", "uid", "controller")
_OF_TAINTS: Final = (node_states.OFF_TAINT, node_states.NON_OPERATIONAL_TAINT)
_OF_CONDITION_TYPES: Final = (names.GUEST_RUNNING_GATE, "Ready")
MAX_CONDITIONS: Final = 16
MAX_TEXT: Final = 4096
"""Kubelets truncate termination messages there."""
MAX_NAME: Final = 254
"""One more than allowed, so longer ones stay invalid."""


def trim_guardian(lease: Object) -> Object:
    """Return the fields of a guardian's Lease that virt-controller reads."""
    kept = {key: value for key, value in annotations_of(lease).items() if key in (guards.PROMISE_ANNOTATION, guards.SEALED_ANNOTATION)}
    metadata = {key: lease["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion") if key in lease["metadata"]}
    return {"metadata": {**metadata, "annotations": kept}}


def trim_claim(claim: Object) -> Object:
    """Return the fields of a claim that virt-controller reads."""
    kept = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
    creator = dig(claim, "metadata", "labels", SET_LABEL)
    spec = claim.get("spec") or {}
    phase, capacity = dig(claim, "status", "phase"), dig(claim, "status", "capacity", "storage")
    return {
        "metadata": {
            **{key: value for key, value in (claim.get("metadata") or {}).items() if key in kept},
            **({"labels": {SET_LABEL: creator}} if creator else {}),
        },
        "spec": {
            **{key: spec[key] for key in ("volumeMode",) if key in spec},
            "accessModes": list(dict.fromkeys(spec.get("accessModes") or ())),  # Kubernetes allows duplicates
        },
        "status": {
            **({"phase": phase} if phase else {}),
            **({"capacity": {"storage": capacity}} if capacity else {}),
        },
    }


def trim_replica_set(replica_set: Object) -> Object:
    """Return a set without managed fields and its revisions' templates, which only virt-api reads; may change it in place."""
    trimmed = without_managed_fields(replica_set)
    found = dig(trimmed, "status", "revisions")
    if isinstance(found, list):
        trimmed["status"]["revisions"] = [{**each, "template": {}} for each in found if isinstance(each, dict)]
    return trimmed


def trim_object(obj: Object) -> Object:
    """Remove unread fields, which its author may have made large, from a machine or Migration, in place, and return it.

    Of its annotations, those that disks of type DownwardAPI read are kept.
    """
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        is_readable = isinstance(metadata.get("annotations"), dict) and structure.has_sound_domain(obj)
        asked = downward_api.annotations_read(obj) if is_readable else {}
        metadata.pop("annotations", None)
        if asked:
            metadata["annotations"] = asked
    return obj


def trim_migration(migration: Object) -> Object:
    """Trim a Migration in place and return it; of its annotations only an eviction's node is kept."""
    given = dig_migration(migration, "metadata", "annotations")
    node = annotations_of(migration).get(evictions.NODE_ANNOTATION) if isinstance(given, dict) else None
    trimmed = trim_object(migration)
    if node and isinstance(node, str):
        trimmed["metadata"]["annotations"] = {evictions.NODE_ANNOTATION: node[:MAX_NAME]}
    return trimmed


def trim_pod(pod: Object) -> Object:
    """Return the fields of a pod that are read."""
    spec = pod.get("spec") or {}
    return {
        "metadata": _trim_pod_metadata(pod.get("metadata") or {}),
        "spec": {
            **{key: spec[key] for key in _OF_POD_SPEC if key in spec},
            **({"readinessGates": [{"conditionType": names.GUEST_RUNNING_GATE}]} if readiness.has_gate(pod) else {}),
            "containers": [_trim_container(each) for each in spec.get("containers") or () if each.get("name") == names.CONTAINER],
        },
        "status": _trim_pod_status(pod.get("status") or {}),
    }


def _trim_pod_metadata(metadata: Object) -> Object:
    labels, owner = metadata.get("labels") or {}, controller_of({"metadata": metadata})
    made_from = (metadata.get("annotations") or {}).get(names.SPEC_ANNOTATION)
    return {
        **{key: metadata[key] for key in _OF_POD_METADATA if key in metadata},
        "labels": {key: labels[key] for key in names.POD_LABELS if key in labels},
        **({"annotations": {names.SPEC_ANNOTATION: made_from[:MAX_NAME]}} if isinstance(made_from, str) else {}),
        "ownerReferences": [_cut(owner, _OF_OWNER, MAX_NAME)] if owner is not None else [],
    }


def _trim_pod_status(status: Object) -> Object:
    conditions = sorted(status.get("conditions") or (), key=lambda each: each.get("type") not in _OF_CONDITION_TYPES)
    statuses = status.get("containerStatuses") or []
    ours = [each for each in statuses if each.get("name") == names.CONTAINER][:1]
    others = [each for each in statuses if each.get("name") != names.CONTAINER and dig(each, "state", "running") is not None][:1]
    return {
        **_cut(status, _OF_POD_STATUS, MAX_TEXT),
        **({"podIPs": [_cut(each, ("ip",), MAX_NAME) for each in status["podIPs"]]} if status.get("podIPs") else {}),
        "conditions": [_cut(each, _OF_CONDITION, MAX_TEXT) for each in conditions[:MAX_CONDITIONS]],
        "containerStatuses": [_trim_container_status(each) for each in (*ours, *others)],
    }


def _trim_container_status(status: Object) -> Object:
    state = {
        key: _cut(value or {}, tuple(value or {}), MAX_TEXT) for key, value in (status.get("state") or {}).items() if value is not None
    }
    limit = dig(status, "resources", "limits", "memory")
    actual = {"resources": {"limits": {"memory": str(limit)[:MAX_NAME]}}} if limit else {}
    return {**_cut(status, ("name",), MAX_NAME), "state": state, **actual}


def _cut(obj: Mapping[str, Any], fields: Iterable[str], limit: int) -> Object:
    return {key: value[:limit] if isinstance(value := obj[key], str) else value for key in fields if key in obj}


def _trim_container(container: Object) -> Object:
    image = container.get("image")
    return {
        "name": names.CONTAINER,
        **({"image": image[:MAX_TEXT]} if isinstance(image, str) else {}),
        "resources": {"limits": _cut(dig(container, "resources", "limits") or {}, _OF_LIMITS, MAX_NAME)},
        "volumeMounts": [{"mountPath": layout.RUN_DIRECTORY}] if shape.has_run_directory(container) else [],
    }


def _trim_node_annotations(node: Object) -> Object:
    repaired = annotations_of(node).get(failed_starts.REPAIRED_ANNOTATION)
    return {"annotations": {failed_starts.REPAIRED_ANNOTATION: str(repaired)[:MAX_NAME]}} if repaired else {}


def _trim_node_spec(node: Object) -> Object:
    cordoned: Object = {"unschedulable": True} if dig(node, "spec", "unschedulable") else {}
    taints = [each for each in node_states.taints_of(node) if each.get("key") in _OF_TAINTS or node_states.is_emptying(each)]
    return {**cordoned, **({"taints": [_cut(each, ("key", "value", "effect"), MAX_NAME) for each in taints]} if taints else {})}


def trim_node(node: Object) -> Object:
    """Return a Node with what virt-controller uses, long texts cut. Computed fields replace its CPU labels."""
    kept = ("name", "uid", "resourceVersion", "creationTimestamp")
    found = dig(node, "status", "conditions")
    ready, avoided = condition(found, "Ready") or {}, condition(found, node_states.NON_OPERATIONAL_CONDITION)
    boot = node_states.boot_of(node)[:MAX_NAME]
    return {
        "metadata": {
            **{key: value for key, value in (node.get("metadata") or {}).items() if key in kept},
            **baseline_cpu.trim_labels(node),
            **_trim_node_annotations(node),
        },
        "spec": _trim_node_spec(node),
        "status": {
            "conditions": [
                {"type": "Ready", "status": ready.get("status", "Unknown")},
                *([] if avoided is None else [_cut(avoided, _OF_CONDITION, MAX_TEXT)]),
            ],
            **({"nodeInfo": {"bootID": boot}} if boot else {}),
            **{each: {names.KVM_RESOURCE: dig(node, "status", each, names.KVM_RESOURCE) or "0"} for each in ("allocatable", "capacity")},
        },
    }
