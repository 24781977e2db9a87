"""Each rule of a start finds its obstacle; a VM reports the first in the table's order."""

from __future__ import annotations

import dataclasses
import inspect
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from apiserver.apis.virt.lifecycle import conditions, power, summary
from controller.reconcilers.actions import CreatePod, DeletePod, Emit, Requeue, WriteStatus
from controller.reconcilers.disk_claims import InUse
from controller.reconcilers.nodes.node_reports import Unreachable
from controller.reconcilers.pods.liveness import Evidence
from controller.reconcilers.pods.networks import Found
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines import start_rules
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.start_rules import RULES, Rule, first_obstacle
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from tests.unit.controller.reconcilers.builders import a_pod, a_vm, an_attempt
from tests.unit.controller.reconcilers.virtual_machines.test_node_loss import lost

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
GHOST = Evidence(Unreachable(whole=frozenset({"ghost"}), missing=frozenset({"ghost"})))
SHORT = [an_attempt(number, result="Failed", endTime="2026-01-01T00:00:59Z") for number in (1, 2)]


def a_claim(mode: str = "Filesystem", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "claim", **metadata}, "spec": {"volumeMode": mode, "accessModes": ["ReadWriteMany"]}}


def a_machine(*, attempts: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    return a_vm(phase="Failed" if attempts else "", attempts=attempts or [], **spec)


def of_disk(**disk: Any) -> dict[str, Any]:
    source = {"type": "PersistentVolumeClaim", "source": {"name": "claim"}}
    return {"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "disk0", "device": "disk", **source, **disk}]}}


def seen(vm: dict[str, Any], **rest: Any) -> Observed:
    return Observed(vm=vm, **{"pods": (), "claims": {"claim": a_claim()}, "now": NOW, "settings": Settings("launcher"), **rest})


def a_saved_machine(**spec: Any) -> dict[str, Any]:
    vm = a_machine(managedSave={"claimName": "claim"}, **spec)
    vm["status"] = {"managedSave": {"id": "i", "type": "kvm", "nodeName": "node1"}}
    return vm


FIRMWARE = {**of_disk(), "firmware": {"bootloader": "efi", "persistentState": {"claimName": "claim"}}}
FILESYSTEM = {
    "memory": {"guest": "64Mi"},
    "devices": {"filesystems": [{"name": "files", "type": "PersistentVolumeClaim", "source": {"name": "claim"}}]},
}
CASES: dict[Rule, tuple[Observed, str, str]] = {
    start_rules.claim_not_found: (seen(a_machine(domain=of_disk()), claims={"claim": None}), "DisksReady", "ClaimNotFound"),
    start_rules.claim_being_deleted: (
        seen(a_machine(domain=of_disk()), claims={"claim": a_claim(deletionTimestamp="2026-01-01T00:00:00Z")}),
        "DisksReady",
        "ClaimBeingDeleted",
    ),
    start_rules.claim_of_firmware_is_block: (
        seen(a_machine(domain=FIRMWARE), claims={"claim": a_claim("Block")}),
        "DisksReady",
        "ClaimIsBlock",
    ),
    start_rules.claim_of_filesystem_is_block: (
        seen(a_machine(domain=FILESYSTEM), claims={"claim": a_claim("Block")}),
        "DisksReady",
        "ClaimIsBlock",
    ),
    start_rules.claim_of_images_is_block: (
        seen(a_machine(managedSave={"claimName": "claim"}), claims={"claim": a_claim("Block")}),
        "DisksReady",
        "ClaimIsBlock",
    ),
    start_rules.claim_of_lun_is_filesystem: (seen(a_machine(domain=of_disk(device="lun"))), "DisksReady", "ClaimIsFilesystem"),
    start_rules.storage_in_use: (seen(a_machine(), claims_in_use=(InUse("claim", "other"),)), "DisksReady", "DiskInUse"),
    start_rules.network_not_usable: (seen(a_machine(), networks=Found(missing=("default/blue",))), "NetworkReady", "NetworkNotFound"),
    start_rules.handler_not_understood: (
        seen(a_machine(nodeName="old"), incompatible={"old": "another protocol"}),
        "Ready",
        "HandlerNotUnderstood",
    ),
    start_rules.node_not_found: (seen(a_machine(nodeName="ghost"), evidence=GHOST), "Ready", "NodeNotFound"),
    start_rules.node_fenced: (seen(a_machine(nodeName="node1"), fenced=frozenset({"node1"})), "Ready", "NodeFenced"),
    start_rules.saved_on_another_node: (seen(a_saved_machine(nodeName="node2")), "Ready", "SavedOnAnotherNode"),
    start_rules.back_off: (seen(a_machine(attempts=SHORT), rested=1.0), "Ready", summary.BACK_OFF),
    start_rules.turn_to_restart: (seen(lost(ago=1.0), rested=600.0), "Ready", "RestartQueued"),
}


def test_every_rule_is_in_the_table_and_has_a_case() -> None:
    functions = [each for each in vars(start_rules).values() if inspect.isfunction(each) and each.__module__ == start_rules.__name__]
    rules = {each for each in functions if inspect.signature(each).return_annotation == "Obstacle | None"} - {first_obstacle}
    assert rules == set(RULES) == set(CASES)
    assert len(RULES) == len(set(RULES))


@pytest.mark.parametrize("rule", CASES, ids=lambda rule: rule.__name__)
def test_start_rule_reports_its_obstacle_once(rule: Rule) -> None:
    observed, kind, reason = CASES[rule]
    decision = power.decide(observed.vm)
    assert decision.on

    found = [each for each in RULES if each(observed, decision) is not None]
    assert found == [rule]
    actions = plan(observed)

    (write,) = (each for each in actions if isinstance(each, WriteStatus))
    (event,) = (each for each in actions if isinstance(each, Emit))
    told = condition(write.status["conditions"], kind)
    ready = condition(write.status["conditions"], "Ready")
    assert told is not None
    assert ready is not None
    assert (told["status"], told["reason"], told["message"]) == ("False", reason, event.message)
    assert (ready["status"], ready["message"]) == ("False", event.message)
    assert ready["reason"] == ("DisksNotReady" if kind == "DisksReady" else reason)
    assert (event.type, event.reason) == ("Warning", reason)
    assert not [each for each in actions if isinstance(each, CreatePod)]
    again = plan(dataclasses.replace(observed, vm={**observed.vm, "status": write.status}))
    assert not [each for each in again if isinstance(each, WriteStatus | Emit)]


def test_first_obstacle_of_the_table_is_reported() -> None:
    vm = a_machine(attempts=SHORT, nodeName="ghost", domain=of_disk(device="lun"))
    everything: dict[str, Any] = {
        "claims": {"claim": None},
        "claims_in_use": (InUse("claim", "other"),),
        "networks": Found(missing=("default/blue",)),
        "incompatible": {"ghost": "another protocol"},
        "evidence": GHOST,
        "rested": 1.0,
    }
    removed: list[dict[str, Any]] = [
        {},
        {"claims": {"claim": a_claim(deletionTimestamp="2026-01-01T00:00:00Z")}},
        {"claims": {"claim": a_claim()}},
        {"claims": {"claim": a_claim("Block")}},
        {"claims_in_use": ()},
        {"networks": Found()},
        {"incompatible": {}},
        {"evidence": Evidence()},
        {"rested": 3600.0},
    ]
    reasons = []
    for change in removed:
        everything |= change
        obstacle = first_obstacle(seen(vm, **everything), power.decide(vm))
        reasons.append(None if obstacle is None else obstacle.reason)
    assert reasons == [
        conditions.CLAIM_NOT_FOUND,
        conditions.CLAIM_BEING_DELETED,
        conditions.CLAIM_WITHOUT_DEVICE,
        conditions.DISK_IN_USE,
        conditions.NETWORK_NOT_FOUND,
        conditions.HANDLER_NOT_UNDERSTOOD,
        "NodeNotFound",
        summary.BACK_OFF,
        None,
    ]


def test_back_off_keeps_the_phase_and_deletes_ended_pods() -> None:
    observed, _, _ = CASES[start_rules.back_off]
    old = a_pod(1, phase="Failed", exit_code=1)
    actions = plan(dataclasses.replace(observed, pods=(old,)))
    assert [each.name for each in actions if isinstance(each, DeletePod)] == [old["metadata"]["name"]]
    assert [each.status["phase"] for each in actions if isinstance(each, WriteStatus)] == ["Failed"]
    assert [type(each) for each in actions if isinstance(each, Requeue)] == [Requeue]
    waiting, _, _ = CASES[start_rules.claim_not_found]
    assert not [each for each in plan(dataclasses.replace(waiting, pods=(old,))) if isinstance(each, DeletePod)]
