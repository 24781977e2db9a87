from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.spec import hot_plug, live_changes
from handler.reconcilers.guests import device_steps, guest_steps
from handler.reconcilers.guests.device_steps import Failure
from handler.reconcilers.guests.guest_steps import AttachDisk, DetachDisk
from launcher.protocol import messages

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PATH = "spec.domain.devices.disks[data]"
ROOT, DATA = ({"name": each, "type": "PersistentVolumeClaim", "source": {"name": each}} for each in ("root", "data"))


def a_vm(desired: list[dict[str, Any]], runs: list[dict[str, Any]] | None = None, **status: Any) -> dict[str, Any]:
    vm: dict[str, Any] = {
        "metadata": {"name": "testvm", "namespace": "default", "uid": "u"},
        "spec": {"domain": {"devices": {"disks": desired}}},
        "status": {"phase": "Running", "podUID": "p", "domain": {"liveChanges": ["disk"]}, **status},
    }
    if runs is not None:
        vm["status"]["running"] = {"domain": {"devices": {"disks": runs}}}
    return vm


def a_launcher(*disks: str, changes: tuple[str, ...] = ("disk",)) -> messages.Status:
    devices = tuple(messages.DeviceStatus("disk", each, "vda") for each in disks)
    return messages.Status(1, messages.DomainStatus("d", "u", "qemu", "running", "booted", devices=devices, changes=changes))


def full(disk: dict[str, Any]) -> dict[str, Any]:
    return disks.defaulted({"devices": {"disks": [disk]}})[0]


def step(vm: dict[str, Any], launcher: messages.Status, failures: dict[str, Failure] | None = None, now: float = 0.0) -> str:
    found = device_steps.next_due(guest_steps.missing(vm, launcher), failures or {}, now)
    return "" if found is None else f"{type(found).__name__} {found.name}"


def test_guest_gets_the_missing_disks_of_the_running_form() -> None:
    assert step(a_vm([ROOT, DATA]), a_launcher("root")) == "AttachDisk data"
    assert step(a_vm([ROOT, DATA]), a_launcher("root", "data")) == ""
    card = messages.DeviceStatus("interface", "root", "tap0")
    guest = messages.DomainStatus("d", "u", "qemu", "running", "booted", devices=(card,), changes=("disk",))
    assert step(a_vm([ROOT]), messages.Status(1, guest)) == "AttachDisk root"
    assert step(a_vm([ROOT, DATA], [ROOT]), a_launcher("root")) == ""
    assert step(a_vm([ROOT, DATA]), a_launcher("root", changes=())) == ""


def test_drive_gets_and_ejects_its_medium() -> None:
    empty = {"name": "tray", "device": "cdrom"}
    full = {**empty, "source": {"name": "iso"}}

    def launcher(*, empty: bool, changes: tuple[str, ...] = ("disk.medium",)) -> messages.Status:
        devices = (messages.DeviceStatus("disk", "tray", "sda", empty=empty),)
        return messages.Status(1, messages.DomainStatus("d", "u", "qemu", "running", "booted", devices=devices, changes=changes))

    assert step(a_vm([full]), launcher(empty=True)) == "AttachDisk tray"
    assert step(a_vm([full]), launcher(empty=True, changes=("disk",))) == ""
    assert step(a_vm([full]), launcher(empty=False)) == ""
    assert step(a_vm([empty], [full]), launcher(empty=False)) == "DetachDisk tray"
    assert step(a_vm([full], [empty]), launcher(empty=True)) == ""


@pytest.mark.parametrize("there", [("root", "data"), ("root",)])
def test_removed_disk_is_detached_until_it_left_the_running_form(there: tuple[str, ...]) -> None:
    assert step(a_vm([ROOT], [ROOT, DATA]), a_launcher(*there)) == "DetachDisk data"
    assert step(a_vm([ROOT]), a_launcher(*there)) == ""


def test_failed_step_waits_and_blocks_no_other() -> None:
    vm = a_vm([DATA], [ROOT, DATA])
    failed = {"spec.domain.devices.disks[root]": device_steps.failure_after(DetachDisk(full(ROOT)), "busy", None, 10.0)}
    assert step(vm, a_launcher("root"), failed, now=10.5) == "AttachDisk data"
    assert step(vm, a_launcher("root"), failed, now=11.0) == "DetachDisk root"
    assert device_steps.pause(guest_steps.missing(vm, a_launcher("root")), failed, 10.5) == 0.5
    assert device_steps.pause(guest_steps.missing(a_vm([ROOT]), a_launcher("root")), failed, 10.5) is None


def test_expected_failures_are_pending_while_patience_lasts() -> None:
    failure, states = None, []
    for _ in range(3):
        failure = device_steps.failure_after(AttachDisk(DATA), "not ready", failure, 0.0, patience=2)
        states.append(failure.state)
    assert states == ["Pending", "Pending", "Failed"]


def test_an_unfinished_step_is_pending_unless_it_failed() -> None:
    waits = device_steps.unfinished(AttachDisk(DATA), "imports", None, 5.0)
    fails = device_steps.unfinished(AttachDisk(DATA), "imports", None, 5.0, has_failed=True)
    assert [(each.count, each.again, each.state) for each in (waits, fails)] == [(2, 5.0, "Pending"), (2, 5.0, "Failed")]


def test_removal_of_a_disk_that_was_not_attached_ends_the_pause() -> None:
    failed = {PATH: device_steps.failure_after(AttachDisk(full(DATA)), "no image", None, 10.0)}
    assert step(a_vm([ROOT, DATA]), a_launcher("root"), failed, now=10.5) == ""
    assert step(a_vm([ROOT], [ROOT, DATA]), a_launcher("root"), failed, now=10.5) == "DetachDisk data"


def test_edit_of_the_disk_ends_the_pause() -> None:
    failed = {PATH: device_steps.failure_after(AttachDisk(full(DATA)), "no image", None, 10.0)}
    assert step(a_vm([DATA]), a_launcher(), failed, now=10.5) == ""
    edited = {**DATA, "source": {"name": "data", "create": {"size": "1Gi"}}}
    assert step(a_vm([edited]), a_launcher(), failed, now=10.5) == "AttachDisk data"
    assert device_steps.failure_after(AttachDisk(full(edited)), "no room", failed[PATH], 10.5).count == 1


def test_pauses_double_up_to_a_minute() -> None:
    failure, pauses = None, []
    for _ in range(8):
        failure = device_steps.failure_after(AttachDisk(DATA), "busy", failure, 0.0)
        pauses.append(failure.again)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_repeated_failure_is_reported_since_its_beginning() -> None:
    vm, launcher = a_vm([ROOT], [ROOT, DATA]), a_launcher("root", "data")
    failed = {PATH: device_steps.failure_after(DetachDisk(full(DATA)), "the guest has not released it", None, 0.0)}
    assert "changes" not in device_steps.with_entries(vm, vm["status"], guest_steps.missing(vm, launcher), failed, NOW)
    failed[PATH] = device_steps.failure_after(DetachDisk(full(DATA)), "the guest has not released it", failed[PATH], 1.0)
    status = device_steps.with_entries(vm, vm["status"], guest_steps.missing(vm, launcher), failed, NOW)
    entry = {"path": PATH, "state": "Failed", "time": "2026-01-01T00:00:00Z", "message": "the guest has not released it"}
    assert status["changes"] == [entry]
    vm["status"]["changes"] = [entry]
    steps, tomorrow = guest_steps.missing(vm, launcher), datetime(2026, 1, 2, tzinfo=UTC)
    later = device_steps.with_entries(vm, {**vm["status"], "changes": []}, steps, failed, tomorrow)
    assert later["changes"] == [entry]
    failed[PATH] = device_steps.failure_after(DetachDisk(full(DATA)), "the guest has not released it", failed[PATH], 9.0)
    assert device_steps.with_entries(vm, {}, steps, failed, NOW)["changes"] == [entry]
    assert device_steps.with_entries(a_vm([ROOT]), {}, guest_steps.missing(a_vm([ROOT]), launcher), failed, NOW) == {}


def test_released_disk_is_reported_as_applied() -> None:
    vm = a_vm([ROOT], [ROOT, DATA], changes=[{"path": PATH, "state": "Failed"}])
    assert device_steps.done(vm, PATH, NOW)["changes"] == [{"path": PATH, "state": "Applied", "time": "2026-01-01T00:00:00Z"}]


def test_released_disk_is_reported_among_many_changes() -> None:
    vm = a_vm([ROOT], [ROOT, DATA])
    vm["status"]["changes"] = [{"path": f"{number}", "state": "Failed"} for number in range(live_changes.MAX_CHANGES)]
    found = device_steps.done(vm, PATH, NOW)["changes"]
    assert (len(found), found[-1]["path"]) == (live_changes.MAX_CHANGES, PATH)


def test_failures_of_disks_without_a_step_are_forgotten() -> None:
    failure = device_steps.failure_after(DetachDisk(full(DATA)), "busy", None, 0.0)
    failed = {PATH: failure, hot_plug.path_of("gone"): failure}
    assert device_steps.current(guest_steps.missing(a_vm([ROOT], [ROOT, DATA]), a_launcher("root", "data")), failed) == {PATH: failure}


def test_steps_are_of_the_disks() -> None:
    assert [type(each) for each in guest_steps.missing(a_vm([DATA], [ROOT, DATA]), a_launcher("root"))] == [DetachDisk, AttachDisk]
