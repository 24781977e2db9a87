from __future__ import annotations

from datetime import timedelta

import pytest

from apiserver.apis.meta import objects
from apiserver.apis.virt.domainstates import DomainState
from handler.network.setup import Interface
from handler.reconcilers import guest_status
from launcher.protocol import messages
from tests.unit.handler.reconcilers.builders import NOW, a_running, a_vm

WIRED = (Interface("default", "02:00:00:00:00:09", "tap0", "virtio", ("10.244.0.9",)),)


def test_one_write_says_everything_about_a_guest_that_runs() -> None:
    status = guest_status.running(a_vm(), a_running(), WIRED, NOW)

    assert status["phase"] == "Running"
    assert status["domain"] == {"state": "running", "reason": "booted", "type": "qemu"}
    assert status["interfaces"] == [
        {"name": "default", "mac": "02:00:00:00:00:09", "ipAddress": "10.244.0.9", "ipAddresses": ["10.244.0.9"]}
    ]
    assert status["podIP"] == "10.244.0.9"
    assert status["graphics"] == [{"type": "vnc"}]
    assert status["observedGeneration"] == 3
    assert status["attempts"][0]["runningTime"] == "2026-11-21T08:00:00Z"
    assert objects.is_true(status["conditions"], "Ready")
    assert objects.is_true(status["conditions"], "Migratable")
    assert status["phaseTransitionTimestamps"][-1] == {"phase": "Running", "time": "2026-11-21T08:00:00.000000Z"}


def test_looking_again_changes_nothing() -> None:
    status = guest_status.running(a_vm(), a_running(), WIRED, NOW)

    assert guest_status.running({**a_vm(), "status": status}, a_running(), None, NOW) == status


def test_facts_of_the_agent_and_console_connections_are_no_reason_to_write() -> None:
    status = guest_status.running(a_vm(), a_running(), WIRED, NOW)
    chatty = a_running(revision=99, consoles=3, agent=messages.AgentStatus(connected=True, hostname="guest"))

    assert guest_status.running({**a_vm(), "status": status}, chatty, WIRED, NOW) == status


def test_a_paused_guest_is_not_ready() -> None:
    conditions = guest_status.running(a_vm("Running"), a_running("paused", "user"), None, NOW)["conditions"]

    assert objects.is_true(conditions, "Paused")
    ready = objects.condition(conditions, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "Paused", "the guest is paused on request")
    assert (objects.condition(conditions, "Paused") or {})["message"] == "paused on request"
    failed = guest_status.running(a_vm("Running"), a_running("paused", "I/O error"), None, NOW)["conditions"]
    assert str((objects.condition(failed, "Ready") or {})["message"]).startswith("the guest is paused: a disk could not be read or written")


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        ("paused", "user", "User"),
        ("paused", "I/O error", "IOError"),
        ("paused", "watchdog", "Watchdog"),
        ("pmsuspended", "unknown", "GuestSuspended"),
        ("paused", "from snapshot", "Paused"),
    ],
)
def test_the_condition_names_what_stopped_the_guest(state: DomainState, reason: str, told: str) -> None:
    found = objects.condition(guest_status.running(a_vm("Running"), a_running(state, reason), None, NOW)["conditions"], "Paused")

    assert found is not None
    assert (found["status"], found["reason"]) == ("True", told)


def test_a_guest_that_cannot_migrate_says_why() -> None:
    conditions = guest_status.running(a_vm("Running"), a_running(not_migratable="disk0 is local"), None, NOW)["conditions"]

    found = objects.condition(conditions, "Migratable")
    assert found is not None
    assert (found["status"], found["message"]) == ("False", "disk0 is local")


def test_what_qemu_wrote_is_one_bounded_printable_line() -> None:
    ending = messages.Ending("crashed", "QEMU died", log=("x" * 5000, "a\x1b[31mb\n"))
    end = guest_status.end_of(ending)

    assert end is not None
    assert len(end.message) <= guest_status.MAX_MESSAGE
    assert end.message.isprintable()


def test_a_launcher_that_lies_about_libvirts_word_writes_one_bounded_line() -> None:
    status = guest_status.running(a_vm("Running"), a_running("paused", "\x1b[2J\n" + "x" * 100_000), None, NOW)

    texts = [status["domain"]["reason"], *(each["message"] for each in status["conditions"])]
    assert all(len(each) < 128 and each.isprintable() for each in texts)


def test_an_end_clears_what_only_a_running_guest_has() -> None:
    running = {**a_vm(), "status": guest_status.running(a_vm(), a_running(), WIRED, NOW)}
    status = guest_status.ended(running, guest_status.End("Succeeded", "GuestPoweredOff", "bye"), NOW)

    assert not {"nodeName", "podIP", "domain", "interfaces", "graphics"} & set(status)
    assert (status["podName"], status["podUID"]) == ("p", running["status"]["podUID"])  # the next attempt waits for this very pod
    assert [each["type"] for each in status["conditions"]] == ["Ready"]
    assert status["attempts"][0]["nodeName"] == "n"
    assert status["attempts"][0]["endTime"] == "2026-11-21T08:00:00Z"
    assert status["attempts"][0]["runningTime"]


def test_a_wait_for_an_image_names_disk_claim_and_file_and_is_written_once() -> None:
    vm = a_vm()
    vm["spec"]["domain"]["devices"]["disks"][0]["source"]["name"] = "myVolumeClaim"
    status = guest_status.waiting_for_images(vm, ("disk0", "forged by the launcher", *("disk0",) * 9), NOW)

    disks, ready = (objects.condition(status["conditions"], kind) for kind in ("DisksReady", "Ready"))
    assert disks is not None
    assert ready is not None
    assert (disks["status"], disks["reason"]) == ("False", "DiskImageNotFound")
    assert (
        disks["message"]
        == "disk 'disk0' has no image yet: no disk.img in PersistentVolumeClaim myvolumeclaim; the guest starts when it appears"
    )
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "DisksNotReady", disks["message"])
    assert status["phase"] == "Scheduled"
    assert guest_status.waiting_for_images({**vm, "status": status}, ("disk0",), NOW + timedelta(minutes=1)) == status


def test_a_guest_that_runs_has_its_disks() -> None:
    for status in (
        guest_status.waiting_for_images(a_vm(), ("disk0",), NOW),
        guest_status.with_disks_problem(a_vm(), "disk0 is reached through a link", NOW),
    ):
        found = guest_status.running({**a_vm(), "status": status}, a_running(), None, NOW)
        assert objects.is_true(found["conditions"], "DisksReady")


def test_nobody_looks_for_an_image_after_the_end() -> None:
    waiting = {**a_vm(), "status": guest_status.waiting_for_images(a_vm(), ("disk0",), NOW)}
    status = guest_status.ended(waiting, guest_status.End("Stopped", "ShutDown", "not started"), NOW)

    assert [each["type"] for each in status["conditions"]] == ["Ready"]
