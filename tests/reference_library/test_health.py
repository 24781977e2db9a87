"""Health of virtual machines for Helm 4, Flux and Argo CD, by their own code."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.meta.objects import condition
from apiserver.apis.virt.lifecycle import phases
from tests.clients import argocd_health, kstatus, programs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(660)]

OURS: Final = Path(__file__).parents[2] / "examples/argocd/virtual-machine.lua"
KSTATUS_OF: Final = {"Healthy": "Current", "Progressing": "InProgress", "Suspended": "InProgress", "Degraded": "Failed"}
READY: Final = {"Ready": "True"}
NOT_READY: Final = {"Ready": "False"}
STALLED: Final = {"Ready": "False", "Stalled": "True"}
STOP: Final = {"action": "Stop"}


def machine(phase: str, conditions: dict[str, str], strategy: str = "RerunOnFailure", observed: int = 2, **status: Any) -> dict[str, Any]:
    found = [{"type": kind, "status": value, "reason": "Why", "message": "why"} for kind, value in conditions.items()]
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "default", "generation": 2},
        "spec": {"runStrategy": strategy},
        "status": {"observedGeneration": observed, "phase": phase, "conditions": found, **status},
    }


MACHINES: Final = [
    # (machine, our check's answer, the answer of the check that Argo CD has built in)
    (machine("", {}, observed=0), "Progressing", "Progressing"),
    (machine("", {}, strategy="Halted", observed=0), "Progressing", "Healthy"),
    (machine("Pending", NOT_READY), "Progressing", "Suspended"),
    (machine("Scheduling", NOT_READY), "Progressing", "Suspended"),
    (machine("Scheduled", NOT_READY), "Progressing", "Suspended"),
    (machine("Running", READY), "Healthy", "Healthy"),
    (machine("Running", READY, observed=1), "Progressing", "Healthy"),
    (machine("Running", {"Ready": "False", "Paused": "True"}), "Suspended", "Suspended"),
    (machine("Stopping", NOT_READY), "Progressing", "Suspended"),
    (machine("Stopping", NOT_READY, strategy="Halted"), "Progressing", "Healthy"),
    (machine("Stopped", {}, strategy="Halted"), "Healthy", "Healthy"),
    (machine("Stopped", {}, strategy="Manual"), "Healthy", "Progressing"),
    (machine("Stopped", NOT_READY, request=STOP), "Suspended", "Suspended"),
    (machine("Succeeded", {}), "Healthy", "Progressing"),
    (machine("Failed", NOT_READY), "Progressing", "Suspended"),
    (machine("Failed", STALLED), "Degraded", "Suspended"),
    (machine("Suspended", NOT_READY), "Suspended", "Suspended"),
    (machine("Unknown", {"Ready": "Unknown"}), "Progressing", "Suspended"),
]


def test_our_check_for_argo_cd_agrees_with_kstatus_in_each_phase() -> None:
    machines = [each for each, _, _ in MACHINES]
    assert {each["status"]["phase"] for each in machines} == {"", *phases.VM_PHASES}
    answers = [argocd_health.health(OURS.read_text(), each) for each in machines]
    assert answers == [ours for _, ours, _ in MACHINES]
    assert programs.kstatus(machines) == [KSTATUS_OF[each] for each in answers]


def test_argo_cds_own_check_is_wrong_about_our_phases() -> None:
    """Its answers come from KubeVirt's ``status.created`` and a Ready that machines that are off have: docs/decisions/life-cycle.md."""
    check = programs.bundled_check("kubevirt.io/VirtualMachine")
    assert [argocd_health.health(check, each) for each, _, _ in MACHINES] == [bundled for _, _, bundled in MACHINES]
    created = [argocd_health.health(check, {**each, "status": {**each["status"], "created": True}}) for each, _, _ in MACHINES]
    wrong = [
        each["status"]["phase"]
        for (each, ours, bundled), with_created in zip(MACHINES, created, strict=True)
        if ours not in (bundled, with_created)
    ]
    assert wrong == ["Running", "Stopped", "Succeeded", "Failed"]  # no status.created makes these right


def combinations() -> list[dict[str, Any]]:
    values = ("", "True", "False", "Unknown")
    chosen = [dict(zip(("Ready", "Stalled", "Reconciling"), each, strict=True)) for each in itertools.product(values, repeat=3)]
    sets = [{kind: value for kind, value in each.items() if value} for each in chosen]
    both = [*sets, *(dict(reversed(each.items())) for each in sets)]
    return [machine("Stopped", each, observed=observed) for each in both for observed in (0, 1, 2, 3)]


def test_python_rules_of_kstatus_are_gos() -> None:
    machines = combinations()
    machines.append({**machines[0], "metadata": {**machines[0]["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    machines.append({key: value for key, value in machines[0].items() if key != "status"})
    assert [kstatus.result(each) for each in machines] == programs.kstatus(machines)


def test_no_machine_with_ready_false_is_current() -> None:
    """So ``kubectl wait --for=condition=Ready=false`` cannot end for a machine that Helm 4 must take for finished."""
    machines = [each for each in combinations() if (condition(each["status"]["conditions"], "Ready") or {}).get("status") == "False"]
    assert len(machines) == 128
    assert "Current" not in programs.kstatus(machines)
