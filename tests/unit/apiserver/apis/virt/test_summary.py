from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import power, summary


def a_vm(phase: str = "", *, ready: str = "", disks: str = "", **status: Any) -> dict[str, Any]:
    told = [("Ready", ready), ("DisksReady", disks)]
    conditions = [{"type": kind, "status": "False", "reason": reason, "message": f"{kind} says why"} for kind, reason in told if reason]
    conditions += status.pop("conditions", [])
    return {"metadata": {"name": "a"}, "spec": {"runStrategy": "Always"}, "status": {"phase": phase, "conditions": conditions, **status}}


GOES_ON: dict[str, Any] = {"attempt": 1, "attempts": [{"number": 1}]}
TRUE_DISKS = {"type": "DisksReady", "status": "True", "reason": "Found", "message": "found a"}
UNKNOWN_READY = {"type": "Ready", "status": "Unknown", "reason": "NodeUnreachable", "message": "the node is silent"}
GONE_ON: dict[str, Any] = {
    "attempt": 2,
    "attempts": [{"number": 1, "stopTime": "2026-01-01T00:00:00Z", "result": "Stopped"}, {"number": 2}],
}
STOPPED: dict[str, Any] = {"attempt": 1, "attempts": [{"number": 1, "stopTime": "2026-01-01T00:00:00Z"}]}
ENDED: dict[str, Any] = {"attempt": 1, "attempts": [{"number": 1, "result": "Failed", "nodeName": "n"}]}
NO_PLUGIN = {"type": "NetworkReady", "status": "False", "reason": "PluginNotFound", "message": "no lan"}
IS_PAUSED = {"type": "Paused", "status": "True", "reason": "Paused", "message": "libvirt's reason: ioerror"}


@pytest.mark.parametrize(
    ("vm", "word"),
    [
        ({"metadata": {}, "spec": {}}, "Pending"),
        (a_vm("Running", conditions=[{**IS_PAUSED, "reason": "Suspending"}], **GOES_ON), "Suspending"),
        (a_vm("Suspended", attempt=1, attempts=[{"number": 1, "result": "Suspended"}]), "Suspended"),
        (a_vm("Failed", attempt=2, attempts=[{"number": 1, "result": "Suspended"}, {"number": 2, "result": "Failed"}]), "Starting"),
        (a_vm("Pending", ready="DisksNotReady", disks="ClaimNotFound"), "ErrorPvcNotFound"),
        (a_vm("Pending", ready="FailedCreate"), "FailedCreate"),
        (a_vm("Scheduling", ready="PodNotRunning", **GOES_ON), "Starting"),
        (a_vm("Scheduling", ready="Unschedulable", **GOES_ON), "ErrorUnschedulable"),
        (a_vm("Scheduling", ready="ImagePullBackOff", **GOES_ON), "ImagePullBackOff"),
        (a_vm("Scheduling", ready="ContainerCreating", **GOES_ON), "ContainerCreating"),
        (a_vm("Scheduling", ready="Unschedulable", **STOPPED), "Stopping"),
        (a_vm("Scheduling", ready="Unschedulable", **GONE_ON), "ErrorUnschedulable"),
        (a_vm("Scheduling", ready="ImagePullBackOff", conditions=[TRUE_DISKS], **GOES_ON), "ImagePullBackOff"),
        (a_vm("Scheduling", conditions=[UNKNOWN_READY], **GOES_ON), "Starting"),
        (a_vm("Scheduling", **GOES_ON), "Starting"),
        (a_vm("Pending"), "Pending"),
        (a_vm("Scheduled", ready="GuestNotStarted", **GOES_ON), "Starting"),
        (a_vm("Scheduled", ready="DisksNotReady", disks="DiskImageNotFound", **GOES_ON), "WaitingForImage"),
        (a_vm("Scheduled", ready="DisksNotReady", disks="DiskServerSilent", **GOES_ON), "WaitingForServer"),
        (a_vm("Scheduled", ready="DisksNotReady", disks="ClaimTooSmall", **GOES_ON), "ClaimTooSmall"),
        (a_vm("Scheduled", ready="GuestNotStarted", disks="DiskNotUsable", **GOES_ON), "DiskNotUsable"),
        (a_vm("Scheduled", ready="GuestNotStarted", conditions=[NO_PLUGIN], **GOES_ON), "PluginNotFound"),
        (a_vm("Scheduled", conditions=[NO_PLUGIN], **GOES_ON), "PluginNotFound"),
        (a_vm("Scheduled", ready="DisksNotReady", disks="ClaimTooSmall", conditions=[NO_PLUGIN], **GOES_ON), "ClaimTooSmall"),
        (a_vm("Running", **GOES_ON), "Running"),
        (a_vm("Running", conditions=[IS_PAUSED], **GOES_ON), "Paused"),
        (a_vm("Running", migration={"name": "m", "phase": "Running"}, conditions=[IS_PAUSED], **GOES_ON), "Migrating"),
        (a_vm("Running", migration={"name": "m", "phase": "Failed"}, **GOES_ON), "Running"),
        (a_vm("Stopping", ready="Stopping", **GOES_ON), "Stopping"),
        (a_vm("Unknown", ready="NodeUnreachable", **GOES_ON), "Unknown"),
        (a_vm("Failed", ready="CrashLoopBackOff", **ENDED), "CrashLoopBackOff"),
        (a_vm("Failed", ready="AttemptFailed", **ENDED), "Starting"),
    ],
)
def test_summary_word_names_the_problem(vm: dict[str, Any], word: str) -> None:
    assert summary.word(vm) == word
    vm["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert summary.word(vm) == "Terminating"


@pytest.mark.parametrize("phase", ["Stopped", "Succeeded", "Failed"])
def test_stopped_machine_is_summarized_by_its_phase(phase: str) -> None:
    vm = a_vm(phase, ready="CrashLoopBackOff", **ENDED)
    vm["spec"]["runStrategy"] = "Halted"
    assert summary.word(vm) == phase


def test_a_panic_is_the_word_while_nothing_follows_it() -> None:
    """``Panicked``, or ``Starting`` with another attempt to come. virt-launcher reports no such domain while it runs."""
    vm = a_vm("Failed", ready="GuestPanicked", **ENDED)
    assert summary.word(vm) == "Starting"
    for strategy in ("Once", "Manual", "Halted"):
        vm["spec"]["runStrategy"] = strategy
        assert summary.word(vm) == "Panicked"


@pytest.mark.parametrize("phase", ["Scheduling", "Scheduled"])
def test_unwanted_start_is_shown_as_stopping(phase: str) -> None:
    vm = a_vm(phase, ready="Unschedulable", **GOES_ON)
    vm["spec"]["runStrategy"] = "Halted"
    assert summary.word(vm) == "Stopping"


def test_missing_reason_is_shown_as_none() -> None:
    assert summary.reason({"metadata": {}, "spec": {}}) is None
    assert summary.reason(a_vm("Pending", conditions=[{"type": "Ready", "status": "False", "message": ""}])) is None


def test_reason_is_one_bounded_line_and_absent_when_ready() -> None:
    assert summary.reason(a_vm("Failed", ready="AttemptFailed", **ENDED)) == "Ready says why"
    assert summary.reason(a_vm("Running", ready="Paused", conditions=[IS_PAUSED], **GOES_ON)) == "libvirt's reason: ioerror"
    assert summary.reason(a_vm("Running", conditions=[{"type": "Ready", "status": "True", "message": "it runs"}], **GOES_ON)) is None
    hostile = a_vm("Failed", conditions=[{"type": "Ready", "status": "False", "message": "a\n\x1b[2J" + "x" * 9999}], **ENDED)
    told = summary.reason(hostile)
    assert told is not None
    assert len(told) <= summary.MAX_REASON
    assert "\n" not in told
    assert "\x1b" not in told


def test_machine_without_ready_condition_says_why_it_is_off() -> None:
    off = a_vm("Stopped")
    assert summary.reason({**off, "spec": {"runStrategy": "Halted"}}) == power.decide({"spec": {"runStrategy": "Halted"}}).message
    assert summary.reason(a_vm("Pending")) is None


@pytest.mark.parametrize("claim", [{"claimName": "mem"}, {"nodeName": "n" * 12}])
def test_reason_of_a_stopped_machine_has_its_saved_memory(claim: dict[str, str]) -> None:
    saved = {"sizeBytes": 56 << 20, **claim}
    told = (
        summary.reason(
            a_vm("Stopped", ready="StopRequested", request={"action": "Stop", "runStrategy": "Always"}, managedSave=saved, **ENDED)
        )
        or ""
    )
    assert told.startswith("Ready says why; the guest's memory is saved ")
    assert told.endswith("(56 MiB); to continue it: kubectl virt resume a")
    assert summary.reason(a_vm("Suspended", ready="Suspended", managedSave=saved, **STOPPED)) == "Ready says why"


def test_wide_table_tells_what_a_ready_guest_lacks() -> None:
    ready = {"type": "Ready", "status": "True"}
    restart = {"type": "RestartRequired", "status": "True", "message": "the guest runs without these edits: spec.domain.cpu.cores"}
    change = {"path": "spec.domain.memory.guest", "state": "Pending", "message": "the node is full"}
    assert summary.reason(a_vm("Running", conditions=[ready, restart], changes=[change], **GOES_ON)) == restart["message"]
    assert summary.reason(a_vm("Running", conditions=[ready], changes=[change], **GOES_ON)) == "spec.domain.memory.guest: the node is full"
    del change["message"]
    assert summary.reason(a_vm("Running", conditions=[ready], changes=[change], **GOES_ON)) == "spec.domain.memory.guest: Pending"
    volumes = [{"name": "os"}, {"name": "data", "message": "PersistentVolumeClaim data does not exist"}]
    waits = a_vm("Running", conditions=[ready], volumeStatus=volumes, **GOES_ON)
    assert summary.reason(waits) == "disk data: PersistentVolumeClaim data does not exist"
    assert summary.reason(a_vm("Running", conditions=[ready], volumeStatus=volumes[:1], **GOES_ON)) is None
    waits = a_vm("Running", conditions=[ready, restart], changes=[change], volumeStatus=volumes, **GOES_ON)
    assert summary.reason(waits) == "disk data: PersistentVolumeClaim data does not exist"
    frozen = a_vm("Running", conditions=[ready, restart], fsFreezeStatus="frozen", **GOES_ON)
    assert summary.reason(frozen) == "the guest's file systems are frozen"
