from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apiserver.apis.meta import objects
from apiserver.apis.virt.lifecycle import managed_save
from apiserver.apis.virt.places.saved_image import Image
from handler.reconcilers.guests import guest_plan, guest_status
from handler.reconcilers.guests.guest_plan import EndAttempt, Observed, ReportGuest, SendRequest
from launcher.protocol import messages
from tests.unit.handler.reconcilers.builders import NOW, a_running, a_vm, an_ended, an_operation

ID = "0b7c1a52-0000-4000-8000-000000000001"
IMAGE = Image(ID, 64 * "a", 7)
SAVED = an_ended("saved", f"the guest's memory was {IMAGE}")


def suspending(**status: Any) -> dict[str, Any]:
    vm = a_vm("Running", operations=[an_operation(ID, 1, "Suspend")], domain={"type": "qemu"}, **status)
    vm["spec"]["managedSave"] = {"claimName": "memory"}
    return vm


def ended(vm: dict[str, Any], launcher: messages.Status = SAVED) -> dict[str, Any]:
    assert launcher.ending is not None
    end = guest_status.end_of(launcher.ending)
    assert end is not None
    told = (messages.OperationStatus(ID, 1, "succeeded"),)
    return guest_status.ended(vm, end, NOW, told)


def test_a_saved_guest_leaves_a_suspended_machine_with_its_image() -> None:
    status = ended(suspending())
    assert status["phase"] == "Suspended"
    assert status["attempts"][-1]["result"] == "Suspended"
    assert (status["managedSave"]["claimName"], status["managedSave"]["id"]) == ("memory", ID)
    assert status["operations"][0]["result"] == "Succeeded"
    assert "nodeName" not in status
    said = "the guest's memory is saved in PersistentVolumeClaim memory (0 MiB); to continue it: kubectl virt resume "
    assert status["attempts"][-1]["message"].startswith(said)
    assert (objects.condition(status["conditions"], "Ready") or {})["message"].startswith(said)


def test_an_image_on_a_nodes_disk_names_the_node() -> None:
    said = managed_save.in_words({"nodeName": "node1", "sizeBytes": 3 << 20}, "web")
    where = "on the disk of node node1, where alone it can resume (3 MiB)"
    assert said == f"the guest's memory is saved {where}; to continue it: kubectl virt resume web"


def test_the_claim_is_that_of_the_pod_not_of_an_edit() -> None:
    vm = suspending(running={"generation": 1, "managedSave": {"claimName": "before"}})
    assert ended(vm)["managedSave"]["claimName"] == "before"


def test_a_save_that_nobody_requested_is_a_failure() -> None:
    """A compromised launcher must not keep a machine off that should run again."""
    status = ended(a_vm("Running"))
    assert (status["phase"], status["attempts"][-1]["result"]) == ("Failed", "Failed")
    assert "managedSave" not in status


@pytest.mark.parametrize("used", [True, False])
def test_failed_resume_keeps_the_image_unless_it_was_used(*, used: bool) -> None:
    vm = a_vm("Scheduled", managedSave={"id": ID})
    status = ended(vm, an_ended("start-failed", "no", image_used=used))
    assert ("managedSave" in status) is not used


def test_running_guest_has_used_its_image() -> None:
    vm = a_vm("Scheduled", managedSave={"id": ID})
    assert "managedSave" not in guest_status.running(vm, a_running(), (), NOW)


def test_progress_is_in_the_operation_until_it_ends() -> None:
    vm, launcher = suspending(), a_running("paused", "saving", operations=(messages.OperationStatus(ID, 1, percent=40),))
    seen = Observed(vm, launcher, connected=True, gone=False, now=0.0, operations=frozenset({"Suspend"}))
    assert guest_plan.plan(seen) == (ReportGuest(),)
    status = guest_status.running(vm, launcher, (), NOW)
    (paused,) = (each for each in status["conditions"] if each["type"] == "Paused")
    assert (paused["reason"], paused["message"]) == ("Suspending", "the guest's memory is being saved")


def test_a_guest_that_is_being_restored_is_left_alone() -> None:
    restoring = replace(a_running("paused", "migrating"), started=False)
    seen = Observed(a_vm("Scheduled"), restoring, connected=True, gone=False, now=0.0)
    assert guest_plan.plan(seen) == ()
    assert guest_plan.plan(replace(seen, launcher=replace(restoring, started=True))) == (SendRequest(messages.Resume()),)


def test_an_end_by_suspension_is_written_with_the_operations() -> None:
    seen = Observed(suspending(), SAVED, connected=True, gone=False, now=0.0)
    (action,) = guest_plan.plan(seen)
    assert isinstance(action, EndAttempt)
    assert (action.end.result, action.end.reason) == ("Suspended", "Suspended")
