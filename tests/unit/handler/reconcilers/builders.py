"""Objects and launcher states with only the fields under test."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from apiserver.apis.virt.lifecycle.domainstates import DomainState
from launcher.protocol import messages

NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)


def a_vm(phase: str = "Scheduled", *, deleting: bool = False, request: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "testvm", "namespace": "default", "uid": "vm-1", "generation": 3, "resourceVersion": "7"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-21T07:59:59Z"
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": metadata,
        "spec": {
            "runStrategy": "RerunOnFailure",
            "terminationGracePeriodSeconds": 30,
            "domain": {
                "devices": {
                    "disks": [{"name": "disk0", "type": "PersistentVolumeClaim", "source": {"name": "claim"}}],
                    "interfaces": [{"name": "default", "type": "masquerade", "model": "virtio"}],
                    "graphics": [{"type": "vnc"}],
                }
            },
        },
        "status": {
            "phase": phase,
            "attempt": 1,
            "attempts": [{"number": 1, "podName": "p", "nodeName": "n", "startTime": "2026-11-21T07:59:00Z"}],
            "nodeName": "n",
            "podName": "p",
            "podUID": "pod-1",
            **({"request": request} if request else {}),
            **{key: value for key, value in status.items() if value is not None},
        },
    }


def a_request(action: str, attempt: int = 1) -> dict[str, Any]:
    return {"action": action, "attempt": attempt, "runStrategy": "RerunOnFailure", "time": "2026-11-21T07:59:30Z"}


def a_pause(*, wanted: bool = True, attempt: int = 1) -> dict[str, Any]:
    return {"wanted": wanted, "attempt": attempt, "time": "2026-11-21T07:59:30Z"}


def an_operation(operation_id: str, number: int, action: str = "Reset", *, attempt: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": operation_id, "number": number, "action": action, "attempt": attempt, "time": "2026-11-21T07:59:30Z", **more}


EMPTY = messages.Status(1)


def a_running(state: DomainState = "running", reason: str = "booted", **more: Any) -> messages.Status:
    domain = messages.DomainStatus("default_testvm", "u", "qemu", state, reason)
    return replace(messages.Status(2, domain=domain, started=True), **more)


def an_ended(kind: messages.EndingKind, message: str = "", **more: Any) -> messages.Status:
    return messages.Status(9, started=True, ending=messages.Ending(kind, message, **more))


def a_migrating(state: messages.MigrationState, direction: messages.MigrationDirection = "outgoing", uid: str = "mig-1") -> messages.Status:
    return a_running(migrations=(messages.MigrationStatus(uid, direction, state),))


def a_migration(phase: str, *, deleting: bool = False, **status: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "m", "namespace": "default", "uid": "mig-1", "resourceVersion": "8"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-21T07:59:59Z"
    return {
        "metadata": metadata,
        "spec": {"selector": {"name": "testvm"}},
        "status": {
            "phase": phase,
            "sourceNode": "n",
            "sourcePod": "p",
            "targetNode": "n2",
            "targetPod": "p2",
            "targetPodUID": "pod-2",
            **status,
        },
    }
