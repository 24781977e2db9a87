from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.virt.spec import live_changes
from apiserver.apis.virt.spec.live_changes import Change
from handler.reconcilers.guests import guest_changes, guest_plan
from handler.reconcilers.guests.guest_changes import Failure
from launcher.protocol import messages

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = "2026-01-01T00:00:00Z"
LIMITS = Change("disk.ioTune", "data")
LINK = Change("interface.state", "default")
WANTED = {"totalIopsSec": 500}
REQUEST = messages.Change("disk.ioTune", "data", {"name": "data", "ioTune": WANTED})


def a_domain(**limits: Any) -> dict[str, Any]:
    disk = {"name": "data", **({"ioTune": limits} if limits else {})}
    return {"devices": {"disks": [disk], "interfaces": [{"name": "default"}]}}


def a_vm(*changes: dict[str, str], desired: dict[str, Any] | None = None, runs: dict[str, Any] | None = None) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": "Running", "attempt": 1, "attempts": [{"number": 1}], "changes": list(changes)}
    if runs is not None:
        status["running"] = {"generation": 1, "domain": runs}
    spec = {"domain": desired or a_domain(**WANTED), "runStrategy": "Always"}
    return {"metadata": {"namespace": "ns", "name": "vm", "uid": "u", "generation": 2}, "spec": spec, "status": status}


def edited(*changes: dict[str, str]) -> dict[str, Any]:
    return a_vm(*changes, runs=a_domain())


def a_launcher(limits: str | None = "", link: str = "up", *, changes: tuple[str, ...] = live_changes.KNOWN) -> messages.Status:
    told = [messages.SettingStatus("interface.state", "default", link)]
    told += [] if limits is None else [messages.SettingStatus("disk.ioTune", "data", limits)]
    domain = messages.DomainStatus("ns_vm", "u", "qemu", "running", "booted", settings=tuple(told), changes=changes)
    return messages.Status(1, domain=domain, started=True)


def next_change(vm: dict[str, Any], launcher: messages.Status, now: float = 0.0, **failed: Failure) -> messages.Change | None:
    return guest_changes.next_change(vm, launcher, {LIMITS: failed["limits"]} if failed else {}, now)


def entries(vm: dict[str, Any], launcher: messages.Status, **failed: Failure) -> list[dict[str, str]]:
    found = guest_changes.with_entries(vm, vm["status"], launcher, {LIMITS: failed["limits"]} if failed else {}, NOW)
    return list(found.get("changes", ()))


def an_entry(state: str, message: str = "", time: str = STAMP) -> dict[str, str]:
    return {"path": str(LIMITS), "state": state, "time": time, **({"message": message} if message else {})}


def test_setting_that_the_guest_lacks_is_requested() -> None:
    assert next_change(edited(), a_launcher()) == REQUEST
    assert next_change(edited(), a_launcher("totalIopsSec=500")) is None


def test_reverted_edit_is_reverted_in_the_guest() -> None:
    assert next_change(a_vm(desired=a_domain()), a_launcher("totalIopsSec=500")) == messages.Change("disk.ioTune", "data", {"name": "data"})


@pytest.mark.parametrize("launcher", [a_launcher(changes=()), a_launcher(None), messages.Status(1)])
def test_launcher_is_not_asked_for_what_it_does_not_support(launcher: messages.Status) -> None:
    assert next_change(edited(), launcher) is None


def test_failure_waits_longer_each_time_until_the_next_edit() -> None:
    vm = edited()
    first = guest_changes.failure_after(vm, LIMITS, "no", None, 100.0)
    assert (first.again, first.count) == (105.0, 1)
    assert next_change(vm, a_launcher(), 104.0, limits=first) is None
    assert next_change(vm, a_launcher(), 105.0, limits=first) == REQUEST
    assert guest_changes.failure_after(vm, LIMITS, "no", first, 105.0).again == 115.0
    assert guest_changes.failure_after(vm, LIMITS, "no", replace(first, count=99), 105.0).again == 405.0
    other = a_vm(desired=a_domain(totalIopsSec=7), runs=a_domain())
    assert next_change(other, a_launcher(), 101.0, limits=first) is not None
    assert guest_changes.failure_after(other, LIMITS, "no", first, 105.0).count == 1
    assert guest_changes.pause(vm, a_launcher(), {LIMITS: first}, 101.0) == 4.0
    assert guest_changes.pause(vm, a_launcher("totalIopsSec=500"), {LIMITS: first}, 101.0) is None


FAILED = Failure("totalIopsSec=500", "libvirt says no", 1, 9.0)


def test_status_says_what_became_of_each_edit() -> None:
    assert entries(edited(), a_launcher()) == [an_entry("Pending")]
    assert entries(edited(), a_launcher("totalIopsSec=500")) == [an_entry("Applied")]
    assert entries(edited(), a_launcher(), limits=FAILED) == [an_entry("Failed", "libvirt says no")]
    assert entries(edited(), a_launcher(), limits=replace(FAILED, value="another")) == [an_entry("Pending")]
    assert entries(edited(), a_launcher(None)) == [an_entry("Failed", guest_changes.NOT_REPORTED)]
    assert entries(a_vm(an_entry("Failed")), a_launcher("totalIopsSec=500")) == []
    assert entries(edited(an_entry("Pending")), a_launcher(changes=())) == []


def memory_of(guest: str) -> dict[str, Any]:
    return {"memory": {"guest": guest, "maxGuest": "1Gi"}}


def with_memory(value: int, requested: str = "") -> messages.Status:
    launcher = a_launcher()
    assert launcher.domain is not None
    told = messages.SettingStatus("memory.guest", "", str(value << 20), requested)
    return replace(launcher, domain=replace(launcher.domain, settings=(told,)))


def test_memory_waits_for_the_guest_and_is_requested_once() -> None:
    vm = a_vm(desired=memory_of("512Mi"), runs=memory_of("256Mi"))
    vm["status"] |= {"podResize": {"guestMemoryBytes": 512 << 20}, "domain": {"liveChanges": ["memory.guest"]}}
    request = messages.Change("memory.guest", "", {"guest": "512Mi", "maxGuest": "1Gi"})
    assert next_change(vm, with_memory(256)) == request
    assert next_change(vm, with_memory(256, str(384 << 20))) == request
    waiting = with_memory(300, str(512 << 20))
    assert next_change(vm, waiting) is None
    found = {"path": "spec.domain.memory.guest", "time": STAMP}
    assert entries(vm, waiting) == [{**found, "state": "Pending", "message": "the guest has 300 MiB so far"}]
    assert entries(vm, with_memory(512)) == [{**found, "state": "Applied"}]
    assert entries(vm, with_memory(512, str(256 << 20))) == [{**found, "state": "Pending"}]


def test_memory_waits_for_its_pod() -> None:
    vm = a_vm(desired=memory_of("512Mi"), runs=memory_of("256Mi"))
    vm["status"] |= {"podResize": {"reason": "Deferred", "message": "the node is full"}, "domain": {"liveChanges": ["memory.guest"]}}
    assert next_change(vm, with_memory(256)) is None
    assert entries(vm, with_memory(256)) == [
        {"path": "spec.domain.memory.guest", "time": STAMP, "state": "Pending", "message": "the node is full"}
    ]
    smaller = a_vm(desired=memory_of("256Mi"), runs=memory_of("512Mi"))
    assert next_change(smaller, with_memory(512)) == messages.Change("memory.guest", "", {"guest": "256Mi", "maxGuest": "1Gi"})


def test_reverted_memory_is_pending_until_the_guest_released_it() -> None:
    """virt-controller shrinks the pod after that."""
    vm = a_vm(desired=memory_of("256Mi"))
    found = {"path": "spec.domain.memory.guest", "time": STAMP, "state": "Pending"}
    assert entries(vm, with_memory(300, str(512 << 20))) == [found]
    assert entries(vm, with_memory(300, str(256 << 20))) == [{**found, "message": "the guest has 300 MiB so far"}]
    assert entries(vm, with_memory(256, str(512 << 20))) == [found]
    assert next_change(vm, with_memory(256, str(512 << 20))) == messages.Change("memory.guest", "", {"guest": "256Mi", "maxGuest": "1Gi"})
    assert next_change(vm, with_memory(300, str(256 << 20))) is None
    assert entries(vm, with_memory(256)) == []


def test_failure_stays_over_a_restart_of_virt_handler() -> None:
    old = an_entry("Failed", "libvirt says no", "2025-12-31T23:00:00Z")
    assert entries(edited(old), a_launcher()) == [old]
    assert entries(edited(old), a_launcher("totalIopsSec=500")) == [an_entry("Applied")]


def test_events_report_each_outcome_once() -> None:
    def told(vm: dict[str, Any], **status: Any) -> list[tuple[str, str, str]]:
        return list(guest_changes.events(vm, {**vm["status"], **status}))

    failed = an_entry("Failed", "libvirt says no")
    assert told(edited(), changes=[an_entry("Applied")]) == [("Normal", "HardwareChanged", f"the guest took the edit of {LIMITS}")]
    assert told(edited(), changes=[failed]) == [("Warning", "HardwareChangeFailed", f"{LIMITS}: libvirt says no")]
    assert told(edited(failed), changes=[failed]) == []
    assert told(edited(), changes=[an_entry("Pending")]) == []


def plan(vm: dict[str, Any], launcher: messages.Status, *, now: float = 0.0, **members: Any) -> tuple[guest_plan.Action, ...]:
    return guest_plan.plan(guest_plan.Observed(vm, launcher, connected=True, gone=False, now=now, **members))


def test_running_guest_is_changed_then_reported() -> None:
    assert plan(edited(), a_launcher()) == (guest_plan.ChangeGuest(REQUEST),)
    assert plan(edited(), a_launcher("totalIopsSec=500")) == (guest_plan.ReportGuest(),)
    assert plan(edited(), a_launcher(), failures={LIMITS: FAILED}, now=8.0) == (guest_plan.ReportGuest(),)


@pytest.mark.parametrize(
    "launcher",
    [
        replace(a_launcher(), stopping=True),
        replace(a_launcher(), migrations=(messages.MigrationStatus("m", "outgoing", "running"),)),
        replace(a_launcher(), migrations=(messages.MigrationStatus("m", "incoming", "arrived"),)),
    ],
)
def test_guest_that_stops_or_migrates_is_not_changed(launcher: messages.Status) -> None:
    assert not any(isinstance(each, guest_plan.ChangeGuest) for each in plan(edited(), launcher))
