"""VMs, pods and migrations with only the fields that a test sets."""

from __future__ import annotations

from typing import Any

from apiserver.apis.meta.objects import owner_reference
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.places import layout, names
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES

UID = "6b0a1c1e-0000-4000-8000-000000000001"


def a_vm(*, phase: str = "", attempts: list[dict[str, Any]] | None = None, deleting: bool = False, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": "testvm",
        "namespace": "default",
        "uid": UID,
        "resourceVersion": "1",
        "generation": 1,
        "finalizers": [names.VM_FINALIZER],
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    vm: dict[str, Any] = {
        "metadata": metadata,
        "spec": {"runStrategy": "RerunOnFailure", "domain": {"memory": {"guest": "128Mi"}, "devices": {}}, **spec},
    }
    if phase:
        vm["status"] = {"phase": phase, "attempt": len(attempts or []), "attempts": attempts or []}
        if attempts:
            vm["status"] |= {"podName": attempts[-1]["podName"], "podUID": f"uid-of-{attempts[-1]['podName']}"}
    return vm


def an_attempt(number: int = 1, **rest: Any) -> dict[str, Any]:
    return {"number": number, "podName": names.launcher_pod_name("testvm", UID, number), "startTime": "2026-01-01T00:00:00Z", **rest}


def a_pod(
    attempt: int = 1,
    *,
    phase: str = "Running",
    node: str = "node1",
    exit_code: int | None = None,
    deleting: bool = False,
    migration: str = "",
    bound_at: str = "2026-01-01T00:00:00Z",
) -> dict[str, Any]:
    name = names.target_pod_name("testvm", migration) if migration else names.launcher_pod_name("testvm", UID, attempt)
    labels = {names.COMPONENT_LABEL: names.LAUNCHER, names.VM_NAME_LABEL: "testvm", names.CREATED_BY_LABEL: UID}
    state: dict[str, Any] = (
        {"running": {"startedAt": "2026-01-01T00:00:00Z"}} if phase == "Running" else {"waiting": {"reason": "ContainerCreating"}}
    )
    if exit_code is not None:
        state = {"terminated": {"exitCode": exit_code, "message": "shutdown: the guest powered off" if not exit_code else "crashed: QEMU"}}
    pod: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "labels": labels | ({names.MIGRATION_LABEL: migration} if migration else {}),
            "annotations": {names.ATTEMPT_ANNOTATION: str(attempt)},
            "ownerReferences": [owner_reference({"metadata": {"name": "testvm", "uid": UID}}, VIRTUAL_MACHINES)],
        },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": names.CONTAINER,
                    "resources": {"limits": {}},
                    "volumeMounts": [{"name": layout.RUN_VOLUME, "mountPath": layout.RUN_DIRECTORY}],
                }
            ],
        },
        "status": {"phase": phase, "podIP": "10.0.0.1", "containerStatuses": [{"name": names.CONTAINER, "state": state}]},
    }
    if node:
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound_at}]
    if deleting:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return pod


def a_migration(*, phase: str = "", deleting: bool = False, **status: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": "move",
        "namespace": "default",
        "uid": "migration-uid",
        "resourceVersion": "1",
        "generation": 1,
        "finalizers": [names.MIGRATION_FINALIZER],
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    migration: dict[str, Any] = {"metadata": metadata, "spec": {"selector": {"name": "testvm"}}}
    if phase:
        said = {"type": "Succeeded", "status": "True" if phase == "Succeeded" else "False", "reason": phase, "message": ""}
        migration["status"] = {"phase": phase, **({"conditions": [said]} if phase in phases.MIGRATION_FINAL else {}), **status}
    return migration
