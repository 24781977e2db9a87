from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.clients import argocd_health

CHECKS = Path(__file__).parents[3] / "examples/argocd"
CHECK = CHECKS / "virtual-machine.lua"
OF_SETS = CHECKS / "virtual-machine-replica-set.lua"


def health(phase: str, *conditions: tuple[str, str, str], **status: Any) -> str:
    found = [{"type": kind, "status": state, "reason": reason, "message": "why"} for kind, state, reason in conditions]
    vm = {
        "metadata": {"name": "vm", "generation": 2, **status.pop("metadata", {})},
        "status": {"observedGeneration": 2, "phase": phase, "conditions": found, **status},
    }
    return argocd_health.health(CHECK.read_text(), vm)


@pytest.mark.parametrize(
    ("phase", "conditions", "status", "expected"),
    [
        ("Running", [("Ready", "True", "GuestRunning")], {}, "Healthy"),
        ("Stopped", [], {}, "Healthy"),
        ("Succeeded", [("DisksReady", "True", "DisksFound")], {}, "Healthy"),
        ("Failed", [("Ready", "False", "Crashed"), ("Stalled", "True", "RerunLimitReached")], {}, "Degraded"),
        ("Failed", [("Ready", "False", "CrashLoopBackOff")], {}, "Progressing"),
        ("Stopped", [("Ready", "False", "ShutDown")], {"request": {"action": "Stop"}}, "Suspended"),
        ("Running", [("Ready", "False", "Paused"), ("Paused", "True", "PausedByUser")], {}, "Suspended"),
        ("Scheduling", [("Ready", "False", "PodNotRunning")], {}, "Progressing"),
        ("Suspended", [("Ready", "False", "Suspended")], {}, "Suspended"),
        ("Pending", [], {}, "Progressing"),
        ("Running", [("Ready", "True", "GuestRunning")], {"observedGeneration": 1}, "Progressing"),
        ("Running", [("Ready", "True", "GuestRunning")], {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "Progressing"),
    ],
)
def test_argo_cd_is_told_whether_a_machine_is_as_its_spec_says(
    phase: str, conditions: list[tuple[str, str, str]], status: dict[str, Any], expected: str
) -> None:
    assert health(phase, *conditions, **status) == expected


@pytest.mark.parametrize(
    ("conditions", "status", "expected"),
    [
        ([], {}, "Healthy"),
        ([], {"observedGeneration": 0}, "Progressing"),
        (["Reconciling"], {}, "Progressing"),
        (["Reconciling", "ReplicaPaused"], {}, "Suspended"),
        (["ReplicaPaused"], {}, "Healthy"),
        (["Reconciling", "ReplicaFailure"], {}, "Degraded"),
    ],
)
def test_argo_cd_is_told_whether_a_set_has_its_replicas(conditions: list[str], status: dict[str, Any], expected: str) -> None:
    found = [{"type": kind, "status": "True", "reason": "Why", "message": "why"} for kind in conditions]
    replica_set = {"metadata": {"name": "web", "generation": 2}, "status": {"observedGeneration": 2, "conditions": found, **status}}
    assert argocd_health.health(OF_SETS.read_text(), replica_set) == expected
    going = {**replica_set, "metadata": {"name": "web", "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert argocd_health.health(OF_SETS.read_text(), going) == "Progressing"
    assert argocd_health.health(OF_SETS.read_text(), {"metadata": {"generation": 1}}) == "Progressing"
