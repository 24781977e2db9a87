"""Sets and machines with only the fields that a test sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, owner_reference
from apiserver.apis.virt.places.resources import REPLICA_SETS

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
WEB = {"app": "web"}


def ago(seconds: float) -> str:
    return times.to_rfc3339(NOW - timedelta(seconds=seconds))


def a_template(labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {"metadata": {"labels": labels or WEB}, "spec": {"domain": {"memory": {"guest": "64Mi"}}, **spec}}


def a_set(*, replicas: int = 3, deleting: bool = False, name: str = "web", status: Object | None = None, **spec: Any) -> Object:
    metadata: Object = {"name": name, "namespace": "ns", "uid": f"uid-of-{name}", "resourceVersion": "1", "generation": 2}
    if deleting:
        metadata["deletionTimestamp"] = ago(1)
    wanted = {"replicas": replicas, "selector": {"matchLabels": WEB}, "template": a_template(), **spec}
    return {"metadata": metadata, "spec": wanted, **({"status": status} if status is not None else {})}


def a_machine(
    name: str = "web-1",
    *,
    owner: str | None = "web",
    labels: dict[str, str] | None = None,
    deleting: bool = False,
    phase: str = "Running",
    node: str = "node1",
    ready: float | None = 60,
    created: float = 120,
    cost: str | None = None,
    **more: Any,
) -> Object:
    """Return a machine of the set ``owner``, created and ready so many seconds ago; ``ready`` None: not ready."""
    metadata: Object = {"name": name, "namespace": "ns", "uid": f"uid-of-{name}", "resourceVersion": "1", "creationTimestamp": ago(created)}
    metadata["labels"] = WEB if labels is None else labels
    if owner is not None:
        metadata["ownerReferences"] = [owner_reference({"metadata": {"name": owner, "uid": f"uid-of-{owner}"}}, REPLICA_SETS)]
    if deleting:
        metadata["deletionTimestamp"] = ago(1)
    if cost is not None:
        metadata["annotations"] = {"kubevirt.io/deletion-cost": cost}
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ago(ready)}] if ready is not None else []
    status = {"phase": phase, "conditions": conditions, **({"nodeName": node} if node else {}), **more}
    return {"metadata": metadata, "spec": {"runStrategy": "RerunOnFailure", "domain": {}}, "status": status}


def a_finished_machine(name: str, ended: float, result: str = "Succeeded", owner: str | None = "web") -> Object:
    attempt = {"number": 1, "result": result, "startTime": ago(ended + 60), "runningTime": ago(ended + 50), "endTime": ago(ended)}
    phase = "Succeeded" if result == "Succeeded" else "Failed"
    machine = a_machine(name, owner=owner, phase=phase, node="", ready=None, attempt=1, attempts=[attempt])
    if result != "Succeeded":
        machine["spec"]["runStrategy"] = "Once"
    return machine
