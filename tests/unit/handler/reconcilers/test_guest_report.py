from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apiserver.apis.meta import objects
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.spec import hot_plug
from handler.plugins.faults import Failed
from handler.probes.tally import UNKNOWN, Verdict
from handler.reconcilers.guests import guest_report
from handler.reconcilers.guests.guest_report import Observed
from handler.reconcilers.guests.guest_status import NetworkFault
from handler.storage.adding import DisksFault
from launcher.protocol import messages
from tests.unit.handler.reconcilers.builders import NOW, a_running, a_vm, an_operation


def seen(vm: dict[str, Any], launcher: messages.Status | None = None) -> Observed:
    return Observed(vm, launcher or a_running(), interfaces=(), verdict=UNKNOWN, network=None, disks=None, now=NOW)


def conditions(status: Any) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def reasons(observed: Observed) -> list[str]:
    status, _ = guest_report.status_of(observed)
    return [reason for _, reason, _ in guest_report.events(observed, status)]


def test_a_guest_that_runs_for_the_first_time_has_started_once() -> None:
    first = seen(a_vm("Scheduled"))
    status, again = guest_report.status_of(first)
    assert (status["phase"], again) == ("Running", None)
    assert list(guest_report.events(first, status)) == [("Normal", "Started", "the guest runs (emulation)")]
    assert reasons(seen({**a_vm("Scheduled"), "status": {**status, "phase": "Scheduled"}})) == []
    assert reasons(seen(a_vm("Running"))) == []


def test_start_event_names_the_accelerator() -> None:
    with_kvm = a_running(domain=messages.DomainStatus("d", "u", "kvm", "running", "booted"))
    observed = seen(a_vm("Scheduled"), with_kvm)
    assert list(guest_report.events(observed, guest_report.status_of(observed)[0])) == [("Normal", "Started", "the guest runs (KVM)")]


def test_guest_failing_liveness_reports_only_its_end() -> None:
    fault = DisksFault({"root": Failed("no luck")})
    dead = replace(seen(a_vm("Scheduled")), verdict=Verdict(dead="no answer"), disks=fault)
    status, again = guest_report.status_of(dead)
    assert (status["phase"], again) == ("Stopping", None)
    assert list(guest_report.events(dead, status)) == [("Warning", "LivenessProbeFailed", "the liveness probe failed: no answer")]
    assert objects.condition(status["conditions"], "DisksReady") is None
    assert "LivenessProbeFailed" not in reasons(replace(dead, launcher=a_running(stopping=True)))


def test_passt_failure_is_a_network_fault() -> None:
    vm = a_vm("Running")
    vm["spec"]["domain"]["devices"] = {"interfaces": [{"name": "lan", "type": "passt", "ports": []}]}
    status, _ = guest_report.status_of(seen(vm, a_running(passt_problem="passt ended with -9")))
    found = objects.condition(status["conditions"], "NetworkReady") or {}
    assert (found["status"], found["message"]) == ("False", "interface lan: passt ended with -9; restarting it")
    observed = replace(seen(vm, a_running(passt_problem="passt ended with -9")), network=NetworkFault("NetworkNotReady", "no bridge"))
    found = objects.condition(guest_report.status_of(observed)[0]["conditions"], "NetworkReady") or {}
    assert found["message"] == "no bridge"


def test_disk_plugin_failure_is_reported_once() -> None:
    fault = DisksFault({"root": Failed("no luck")})
    observed = replace(seen(a_vm("Running")), disks=fault)
    status, _ = guest_report.status_of(observed)
    assert conditions(status)["DisksReady"] == ("False", fault.reason)
    assert reasons(observed) == [fault.reason]
    assert reasons(replace(observed, vm={**a_vm("Running"), "status": status})) == []


def test_status_parts_are_merged() -> None:
    vm = a_vm("Scheduled", operations=[an_operation("a", 1)])
    keys = {"source": {"secret": {"secretName": "s"}}, "propagationMethod": {"qemuGuestAgent": {"users": ["u"]}}}
    vm["spec"]["accessCredentials"] = [{"sshPublicKey": keys}]
    vm["spec"]["domain"]["devices"]["filesystems"] = [{"name": "a", "type": "ConfigMap", "source": {"name": "c"}}]
    network = NetworkFault("NetworkNotReady", "no bridge")
    reset = a_running(operations=(messages.OperationStatus("a", 1, "succeeded"),))
    status, _ = guest_report.status_of(replace(seen(vm, reset), network=network, disks=DisksFault({"root": Failed("no luck")})))
    assert (status["phase"], status["observedGeneration"], status["operations"][0]["result"]) == ("Running", 3, "Succeeded")
    kinds = {"Ready", "Paused", "Migratable", "NetworkReady", "DisksReady", "AccessCredentialsSynchronized", "FilesystemsReady"}
    assert conditions(status).keys() == {*kinds, "AgentConnected"}


@pytest.mark.parametrize(("devices", "is_migratable"), [((), "False"), ((messages.DeviceStatus("disk", "x"),), "True")])
def test_a_guest_without_its_imported_disk_is_not_migratable(devices: tuple[messages.DeviceStatus, ...], is_migratable: str) -> None:
    vm = a_vm("Running")
    disk = {"name": "x", "type": "PersistentVolumeClaim", "source": {"name": "x", "import": {"http": {"url": "http://server/x"}}}}
    vm["spec"]["domain"]["devices"]["disks"] = [disk]
    (full,) = disks.defaulted(vm["spec"]["domain"])
    volume = {"attachPodName": hot_plug.pod_name(vm, full), "attachPodUID": "2b0a1c1e-0000-4000-8000-000000000001"}
    vm["status"]["volumeStatus"] = [{"name": "x", "hotplugVolume": volume}]
    launcher = a_running(domain=messages.DomainStatus("d", "u", "qemu", "running", "booted", devices=devices))
    assert conditions(guest_report.status_of(seen(vm, launcher))[0])["Migratable"][0] == is_migratable


def test_valid_conditions_carry_the_current_generation() -> None:
    vm = a_vm("Running")
    told = {
        "DisksReady": ("True", "DisksFound"), "NetworkReady": ("True", "Ready"), "Migratable": ("False", "DisksNotShared"),
        "AgentConnected": ("False", "NotConnected"), "LauncherOutdated": ("True", "Stays"), "DisruptionTarget": ("True", "x"),
    }  # fmt: skip
    old = {"message": "as before", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
    vm["status"]["conditions"] = [{"type": kind, "status": state, "reason": reason, **old} for kind, (state, reason) in told.items()]
    vm["status"]["guest"] = {"agent": {"connected": False}, "time": "2026-01-01T00:00:00Z"}
    vm["metadata"]["generation"] = 7
    found = {each["type"]: each for each in guest_report.status_of(seen(vm))[0]["conditions"]}
    of_the_controller = {"LauncherOutdated", "DisruptionTarget"}
    assert {kind: each["observedGeneration"] for kind, each in found.items()} == {
        kind: 1 if kind in of_the_controller else 7 for kind in found
    }
    assert {kind: (each["status"], each["reason"]) for kind, each in found.items() if kind in told} == told
    assert found["DisksReady"]["message"] == "as before"
