from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from apiserver.apis.meta import objects
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.lifecycle.domainstates import DomainState
from handler.network.binding import Interface
from handler.reconcilers.guests import guest_status
from launcher.protocol import messages
from tests.unit.handler.reconcilers.builders import NOW, a_running, a_vm

WIRED = (Interface("default", "02:00:00:00:00:09", "tap0", "virtio", ("10.244.0.9",)),)


def test_running_status_is_written_at_once() -> None:
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


def test_vsock_cid_is_reported_only_if_valid_and_wanted() -> None:
    def told(cid: int, old: dict[str, Any] | None = None, **devices: Any) -> Any:
        vm = a_vm(**(old or {}))
        vm["spec"]["domain"]["devices"] |= devices
        seen = a_running()
        assert seen.domain is not None
        return guest_status.running(vm, replace(seen, domain=replace(seen.domain, cid=cid)), None, NOW).get("vsock")

    assert told(3, vsock={}) == {"cid": 3}
    assert told(5, {"vsock": {"cid": 3}}, vsock={}) == {"cid": 5}
    assert told(3) is None
    for wrong in (0, 2, 2**32 - 1, -7):
        assert told(wrong, {"vsock": {"cid": 3}}, vsock={}) is None


def test_devices_are_those_of_the_last_report_that_has_any() -> None:
    def told(*devices: messages.DeviceStatus, changes: tuple[str, ...] = (), **old: Any) -> Any:
        seen = a_running()
        assert seen.domain is not None
        domain = replace(seen.domain, devices=devices, changes=changes)
        return guest_status.running(a_vm(**old), replace(seen, domain=domain), None, NOW).get("devices")

    card = {"kind": "interface", "name": "default", "target": "tap0"}
    assert told(messages.DeviceStatus("interface", "default", "tap0"), devices=[]) == [card]
    assert told(messages.DeviceStatus("interface", "strange", "tap0"), devices=[card]) == []
    assert told(devices=[card]) == [card]  # an earlier virt-launcher, which a migration left
    assert told(devices=[card], changes=("interface",)) == []
    assert told() is None


def test_migratability_follows_the_interface_plugins_answer() -> None:
    vm = a_vm()
    vm["spec"]["domain"]["devices"]["interfaces"] = [{"name": "private", "type": "plugin", "plugin": "isolated"}]
    made = Interface("private", "02:00:00:00:00:09", "tap7", "virtio", (), is_own=False)

    def told(*interfaces: Interface) -> Mapping[str, Any]:
        status = guest_status.running(vm, a_running(), interfaces or None, NOW)
        return objects.condition(status["conditions"], "Migratable") or {}

    assert told(made)["status"] == "True"
    assert (told(replace(made, live_migration=False))["status"], told()["status"]) == ("False", "False")
    assert "plugin isolated does not support live migration" in told(replace(made, live_migration=False))["message"]


def test_looking_again_changes_nothing() -> None:
    status = guest_status.running(a_vm(), a_running(), WIRED, NOW)

    assert guest_status.running({**a_vm(), "status": status}, a_running(), None, NOW) == status


def test_interfaces_are_those_of_the_running_form_in_its_order() -> None:
    vm, others = a_vm(), tuple(replace(WIRED[0], name=each, addresses=()) for each in ("coming", "lan"))
    vm["spec"]["domain"]["devices"]["interfaces"] = [{"name": "lan", "network": "lan"}, {"name": "default"}]
    found = guest_status.running(vm, a_running(), (*WIRED, *others), NOW)["interfaces"]
    assert [each["name"] for each in found] == ["lan", "default"]


def test_interfaces_are_empty_without_network_and_kept_if_unread() -> None:
    known = {**a_vm(), "status": guest_status.running(a_vm(), a_running(), WIRED, NOW)}

    assert guest_status.running(known, a_running(), (), NOW)["interfaces"] == []
    assert guest_status.running(known, a_running(), None, NOW)["interfaces"] == known["status"]["interfaces"]


@pytest.mark.parametrize("address", ["169.254.169.254", "fd00:ec2::254", "127.0.0.1"])
def test_an_address_that_no_pod_has_does_not_become_the_machines(address: str) -> None:
    known = {**a_vm(), "status": guest_status.running(a_vm(), a_running(), WIRED, NOW)}
    said = tuple(replace(each, addresses=(address,)) for each in WIRED)

    assert guest_status.running(known, a_running(), said, NOW)["podIP"] == known["status"]["podIP"]


def test_agent_facts_and_console_connections_cause_no_write() -> None:
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
    wanted = a_vm("Running")
    wanted["status"] |= {"attempt": 1, "pause": {"wanted": True, "attempt": 1}}
    resumed = guest_status.running(wanted, a_running("paused", "migrating"), None, NOW)["conditions"]
    assert (objects.condition(resumed, "Paused") or {})["message"] == "paused on request"
    failed = guest_status.running(a_vm("Running"), a_running("paused", "I/O error"), None, NOW)["conditions"]
    assert str((objects.condition(failed, "Ready") or {})["message"]).startswith("the guest is paused: a read or write of a disk failed")


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


def test_a_full_disk_is_told_apart_and_named_with_what_to_do() -> None:
    launcher = a_running("paused", "I/O error")
    assert launcher.domain is not None
    full = replace(launcher, domain=replace(launcher.domain, full=True, detail="disk 'data': no space left"))
    conditions = guest_status.running(a_vm("Running"), full, None, NOW)["conditions"]
    paused, ready = (objects.condition(conditions, kind) or {} for kind in ("Paused", "Ready"))

    assert (paused["status"], paused["reason"]) == ("True", "DiskFull")
    assert "expand the PersistentVolumeClaim or free space" in paused["message"]
    assert paused["message"].endswith(
        "the guest then continues automatically, or at once after kubectl virt unpause (disk 'data': no space left)"
    )
    assert ready["message"] == f"the guest is paused: {paused['message']}"


def test_requested_pause_ignores_a_full_disk_detail() -> None:
    launcher = a_running("paused", "user")
    assert launcher.domain is not None
    told = replace(launcher, domain=replace(launcher.domain, full=True))
    found = objects.condition(guest_status.running(a_vm("Running"), told, None, NOW)["conditions"], "Paused") or {}
    assert (found["reason"], found["message"]) == ("User", "paused on request")


def test_claims_condition_stays_until_the_launcher_knows_better() -> None:
    told = {"type": "Migratable", "status": "False", "reason": "DisksNotShared", "message": "PersistentVolumeClaim a is not ReadWriteMany"}
    vm = a_vm("Running")
    vm["status"]["conditions"] = [told]
    status = guest_status.running(vm, a_running(), None, NOW)
    assert objects.condition(status["conditions"], "Migratable") == told
    worse = guest_status.running(vm, a_running(not_migratable="disk0 is local"), None, NOW)
    assert (objects.condition(worse["conditions"], "Migratable") or {})["message"] == "disk0 is local"
    for other in ({**told, "reason": "NotMigratable"}, {**told, "status": "True"}):
        vm["status"]["conditions"] = [other]
        found = objects.condition(guest_status.running(vm, a_running(), None, NOW)["conditions"], "Migratable")
        assert (found or {})["status"] == "True"
        assert (found or {})["reason"] == "Migratable"


def test_a_guest_that_cannot_migrate_says_why() -> None:
    conditions = guest_status.running(a_vm("Running"), a_running(not_migratable="disk0 is local"), None, NOW)["conditions"]

    found = objects.condition(conditions, "Migratable")
    assert found is not None
    assert (found["status"], found["message"]) == ("False", "disk0 is local")


def test_qemu_log_is_one_bounded_printable_line() -> None:
    ending = messages.Ending("crashed", "QEMU died", log=("x" * 5000, "a\x1b[31mb\n"))
    end = guest_status.end_of(ending)

    assert end is not None
    assert len(end.message) <= guest_status.MAX_MESSAGE
    assert end.message.isprintable()


def test_forged_libvirt_reason_is_one_bounded_line() -> None:
    status = guest_status.running(a_vm("Running"), a_running("paused", "\x1b[2J\n" + "x" * 100_000), None, NOW)

    texts = [status["domain"]["reason"], *(each["message"] for each in status["conditions"])]
    assert all(len(each) < 128 and each.isprintable() for each in texts)


def test_an_end_clears_what_only_a_running_guest_has() -> None:
    running = {**a_vm(), "status": guest_status.running(a_vm(), a_running(), WIRED, NOW)}
    status = guest_status.ended(running, guest_status.End("Succeeded", "GuestPoweredOff", "bye"), NOW)

    assert not {"nodeName", "podIP", "domain", "interfaces", "graphics"} & set(status)
    assert (status["podName"], status["podUID"]) == ("p", running["status"]["podUID"])
    assert [each["type"] for each in status["conditions"]] == ["Ready"]
    assert status["attempts"][0]["nodeName"] == "n"
    assert status["attempts"][0]["endTime"] == "2026-11-21T08:00:00Z"
    assert status["attempts"][0]["runningTime"]


def test_an_end_leaves_the_conditions_that_tell_of_no_guest() -> None:
    """It removes the others, as virt-controller does, which alone removes LauncherOutdated."""
    known = [{"type": each, "status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"} for each in conditions.TYPES]
    status = guest_status.ended({**a_vm(), "status": {"conditions": known}}, guest_status.End("Stopped", "ShutDown", "bye"), NOW)
    left = {"Ready", "Stalled", "DisksReady", "DisruptionTarget", "NodeLost", "LauncherOutdated"}
    assert {each["type"] for each in status["conditions"]} == left


def test_image_wait_names_its_disk_and_is_written_once() -> None:
    vm = a_vm()
    vm["spec"]["domain"]["devices"]["disks"][0]["source"]["name"] = "myVolumeClaim"
    status = guest_status.waiting_for_images(vm, ("disk0", "forged by the launcher", *("disk0",) * 9), NOW)

    disks, ready = (objects.condition(status["conditions"], kind) for kind in ("DisksReady", "Ready"))
    assert disks is not None
    assert ready is not None
    assert (disks["status"], disks["reason"]) == ("False", "DiskImageNotFound")
    assert disks["message"] == (
        "disk 'disk0' has no image yet: file disk.img not found in PersistentVolumeClaim myvolumeclaim; "
        "the guest starts when the image exists: copy it there, or set source.create or source.import and restart"
    )
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "DisksNotReady", disks["message"])
    assert status["phase"] == "Scheduled"
    assert guest_status.waiting_for_images({**vm, "status": status}, ("disk0",), NOW + timedelta(minutes=1)) == status


@pytest.mark.parametrize(
    ("message", "is_news"),
    [
        ("disk 'a': its claim has space for 49Gi: expand", False),
        ("disk 'a': its claim has space for 54118453248 bytes: expand", False),
        ("disk 'a': its claim has space for 0: expand", False),
        ("disk 'b': its claim has space for 50Gi: expand", True),
        ("disk 'a': the claim is full: expand", True),
    ],
)
def test_room_wait_is_no_news_when_only_the_room_differs(message: str, is_news: bool) -> None:
    first = guest_status.waiting_for_room(a_vm(), "disk 'a': its claim has space for 50Gi: expand", NOW)
    assert guest_status.is_news_of_disks(a_vm(), first)
    vm = {**a_vm(), "status": first}
    assert guest_status.is_news_of_disks(vm, guest_status.waiting_for_room(vm, message, NOW)) is is_news
    assert guest_status.is_news_of_disks(vm, guest_status.waiting_for_images(vm, ("disk0",), NOW))


def test_a_wait_for_room_says_what_the_launcher_says_in_one_line() -> None:
    status = guest_status.waiting_for_room(a_vm(), "disk 'disk0': too\nsmall" + "!" * 5000, NOW)

    disks, ready = (objects.condition(status["conditions"], kind) or {} for kind in ("DisksReady", "Ready"))
    assert (disks["status"], disks["reason"], ready["status"], ready["reason"]) == ("False", "ClaimTooSmall", "False", "DisksNotReady")
    assert disks["message"].startswith("disk 'disk0': too | small!!!")
    assert len(disks["message"]) <= guest_status.MAX_MESSAGE
    assert conditions.waits_for({**a_vm(), "status": status}) == {conditions.Wait.IMAGE}
    assert (
        objects.condition(
            guest_status.ended({**a_vm(), "status": status}, guest_status.End("Stopped", "ShutDown", ""), NOW)["conditions"], "DisksReady"
        )
        is None
    )


def test_a_guest_that_runs_has_its_disks() -> None:
    for status in (
        guest_status.waiting_for_room(a_vm(), "too small", NOW),
        guest_status.waiting_for_images(a_vm(), ("disk0",), NOW),
        guest_status.with_disks_fault(a_vm(), {}, "DiskNotUsable", "disk0 contains a symbolic link", NOW),
    ):
        found = guest_status.running({**a_vm(), "status": status}, a_running(), None, NOW)
        assert objects.is_true(found["conditions"], "DisksReady")


def test_an_end_is_told_as_of_the_generation_that_ended() -> None:
    status = guest_status.ended(a_vm("Running", observedGeneration=2), guest_status.End("Stopped", "ShutDown", "bye"), NOW)
    assert status["observedGeneration"] == 3


def test_readiness_is_unknown_with_an_unsupported_launcher() -> None:
    status = guest_status.not_understood(a_vm("Running"), "it speaks\nversion 9", NOW)
    ready = objects.condition(status["conditions"], "Ready") or {}
    assert (status["phase"], ready["status"], ready["reason"]) == ("Running", "Unknown", "LauncherNotUnderstood")
    assert ready["message"].isprintable()


def test_a_server_that_is_silent_goes_before_a_disk_that_failed() -> None:
    observed = replace(a_running(), servers_silent=("data",), disk_faults=(messages.DiskFault("disk0", full=True),))
    disks = objects.condition(guest_status.running(with_servers(), observed, WIRED, NOW)["conditions"], "DisksReady") or {}
    assert disks["reason"] == "DiskServerSilent"


def test_image_wait_ends_with_the_attempt() -> None:
    waiting = {**a_vm(), "status": guest_status.waiting_for_images(a_vm(), ("disk0",), NOW)}
    status = guest_status.ended(waiting, guest_status.End("Stopped", "ShutDown", "not started"), NOW)

    assert [each["type"] for each in status["conditions"]] == ["Ready"]


def test_an_end_takes_back_what_was_told_of_the_network() -> None:
    faulty = guest_status.with_network(a_vm(), a_vm()["status"], guest_status.NetworkFault("NetworkNotReady", "nft failed"), NOW)
    assert objects.condition(faulty["conditions"], "NetworkReady") is not None
    status = guest_status.ended({**a_vm(), "status": faulty}, guest_status.End("Stopped", "ShutDown", "bye"), NOW)

    assert [each["type"] for each in status["conditions"]] == ["Ready"]


@pytest.mark.parametrize("kind", ["NetworkReady", "DisksReady"])
def test_satisfied_condition_is_not_rewritten_for_each_edit(kind: str) -> None:
    known = {"type": kind, "status": "True", "reason": "AsEver", "message": "", "observedGeneration": 1}
    vm = a_vm("Running", conditions=[known])

    told = guest_status.with_network(vm, guest_status.running(vm, a_running(), WIRED, NOW), None, NOW)

    assert objects.condition(told["conditions"], kind) == known


def test_returned_node_waiting_for_an_image_is_scheduled_again() -> None:
    status = guest_status.waiting_for_images(a_vm("Unknown"), ("disk0",), NOW)
    assert status["phase"] == "Scheduled"


def test_failed_disk_detail_is_one_bounded_line() -> None:
    launcher = a_running("paused", "I/O error")
    assert launcher.domain is not None
    failed = replace(launcher, domain=replace(launcher.domain, detail="\x1b[2J\n" + "x" * 100_000))
    conditions = guest_status.running(a_vm("Running"), failed, None, NOW)["conditions"]

    for each in conditions:
        assert len(each["message"]) < 2 * guest_status.MAX_DETAIL
        assert each["message"].isprintable()
    assert "xxx" in (objects.condition(conditions, "Paused") or {})["message"]


def test_pod_ip_is_the_first_address_on_the_pod_network() -> None:
    first = replace(WIRED[0], addresses=("10.244.0.9", "fd00::9"))
    further = replace(WIRED[0], name="other", addresses=("10.9.9.9",), is_own=False)
    for order in ((first, further), (further, first)):
        vm = a_vm()
        vm["spec"]["domain"]["devices"]["interfaces"] = [{"name": each.name} for each in order]
        status = guest_status.running(vm, a_running(), order, NOW)

        assert status["podIP"] == "10.244.0.9"
        assert [each["ipAddress"] for each in status["interfaces"]] == [each.addresses[0] for each in order]
        assert status["interfaces"][order.index(first)]["ipAddresses"] == ["10.244.0.9", "fd00::9"]


def test_disk_fault_message_is_one_bounded_line() -> None:
    status = guest_status.with_disks_fault(a_vm(), {}, "DiskNotUsable", "disk0:\n\x1b[2J" + "x" * 5000, NOW)

    found = objects.condition(status["conditions"], "DisksReady")
    assert found is not None
    assert len(found["message"]) <= guest_status.MAX_MESSAGE
    assert found["message"].isprintable()


def test_only_failures_quote_qemus_last_lines() -> None:
    log = ("first", "second", "third", "last")
    failed = guest_status.end_of(messages.Ending("crashed", "QEMU died", log=log))
    stopped = guest_status.end_of(messages.Ending("destroyed", "powered off", log=log))

    assert failed is not None
    assert failed.message == "QEMU died; last lines of QEMU's log: second | third | last"
    assert stopped is not None
    assert stopped.message == "powered off"


def test_panicked_guest_has_advice_instead_of_qemus_log() -> None:
    log = ("terminating on signal 15 from pid 6 (libvirtd)",)
    panicked = guest_status.end_of(messages.Ending("crashed", "the guest panicked", panicked=True, log=log))
    assert panicked is not None
    assert panicked.message == "the guest panicked; to see why, open kubectl virt console with --wait 5m before the next start"


def test_qemus_last_lines_are_not_repeated_from_libvirts_error() -> None:
    failed = guest_status.end_of(messages.Ending("start-failed", "process exited: Failed to get lock", log=("Failed to get lock",)))
    assert failed is not None
    assert failed.message == "process exited: Failed to get lock"


def test_when_a_guest_began_to_run_is_said_once() -> None:
    known = {**a_vm(), "status": guest_status.running(a_vm(), a_running(), WIRED, NOW)}
    later = guest_status.running(known, a_running("paused", "user"), None, NOW + timedelta(hours=1))

    assert later["attempts"][0]["runningTime"] == "2026-11-21T08:00:00Z"


def test_how_an_attempt_ended_is_not_written_over() -> None:
    ended = {"number": 1, "podName": "p", "endTime": "2026-11-21T07:59:30Z", "result": "Failed", "message": "node1 is gone"}
    status = guest_status.ended(a_vm("Running", attempts=[ended]), guest_status.End("Succeeded", "GuestPoweredOff", "bye"), NOW)

    assert status["attempts"] == [ended]


def test_a_guest_that_shuts_down_is_stopping_and_not_ready() -> None:
    status = guest_status.running(a_vm("Running"), a_running(stopping=True), None, NOW)

    assert status["phase"] == "Stopping"
    ready = objects.condition(status["conditions"], "Ready") or {}
    assert (ready["status"], ready["reason"]) == ("False", "Stopping")


def test_only_disks_with_a_missing_image_are_named() -> None:
    vm = a_vm()
    vm["spec"]["domain"]["devices"]["disks"].append({"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "other"}})
    disks = objects.condition(guest_status.waiting_for_images(vm, ("data",), NOW)["conditions"], "DisksReady") or {}

    assert "PersistentVolumeClaim other;" in disks["message"]
    assert "disk0" not in disks["message"]


def with_servers() -> dict[str, Any]:
    vm = a_vm()
    vm["spec"]["domain"]["devices"]["disks"] += [
        {"name": "data", "type": "NBD", "source": {"host": "nbd.example"}},
        {"name": "unit", "type": "ISCSI", "source": {"targetPortal": "[2001:db8::1]:860", "iqn": "iqn.2026-01.example:vms"}},
    ]
    return vm


def test_server_wait_names_disk_and_server_and_is_written_once() -> None:
    vm = with_servers()
    status = guest_status.waiting_for_servers(vm, ("unit", "forged by the launcher", "disk0"), NOW)

    assert status is not None
    disks = objects.condition(status["conditions"], "DisksReady") or {}
    assert (disks["status"], disks["reason"]) == ("False", "DiskServerSilent")
    assert disks["message"] == "disk 'unit': ISCSI server 2001:db8::1 port 860 does not answer; the guest starts when it does"
    assert conditions.waits_for({**vm, "status": status}) == {conditions.Wait.IMAGE}
    assert guest_status.waiting_for_servers({**vm, "status": status}, ("unit",), NOW + timedelta(minutes=1)) == status
    assert guest_status.waiting_for_servers(vm, ("disk0",), NOW) is None

    nameless = guest_status.waiting_for_disks(vm, ("data",), "", NOW, full=False, unresolved=("data", "forged"))
    disks = objects.condition(nameless["conditions"], "DisksReady") or {}
    assert "NBD server nbd.example port 10809 does not answer: its name does not resolve; " in disks["message"]


def test_silent_server_is_reported_until_it_answers() -> None:
    vm = with_servers()
    status = guest_status.running(vm, replace(a_running(), servers_silent=("data", "forged")), WIRED, NOW)

    disks = objects.condition(status["conditions"], "DisksReady") or {}
    assert (disks["status"], disks["reason"], status["phase"]) == ("False", "DiskServerSilent", "Running")
    assert disks["message"] == (
        "disk 'data': NBD server nbd.example port 10809 does not answer; reads and writes of this disk block or fail until it does"
    )
    assert objects.is_true(status["conditions"], "Ready")

    back = guest_status.running({**vm, "status": status}, a_running(), WIRED, NOW)
    assert objects.is_true(back["conditions"], "DisksReady")


def test_silent_plugin_server_is_reported_until_the_plugin_fails() -> None:
    vm = a_vm("Running")
    vm["spec"]["domain"]["devices"]["disks"] = [{"name": "data", "type": "Plugin", "source": {"plugin": "images"}}]
    status = guest_status.running(vm, a_running(servers_silent=("data", "other")), None, NOW)
    (told,) = (each for each in status["conditions"] if each["type"] == "DisksReady")
    assert (told["status"], told["reason"]) == ("False", "DiskServerSilent")
    assert told["message"].startswith("disk 'data': the NBD server of plugin images does not answer; ")
    status = guest_status.with_disks_fault(vm, status, "PluginFailed", "disk 'data': plugin images (CHECK): no\npool", NOW)
    (told,) = (each for each in status["conditions"] if each["type"] == "DisksReady")
    assert (told["reason"], told["message"]) == ("PluginFailed", "disk 'data': plugin images (CHECK): no | pool")
    status = guest_status.running({**vm, "status": status}, a_running(), None, NOW)
    (told,) = (each for each in status["conditions"] if each["type"] == "DisksReady")
    assert told["status"] == "True"


def test_new_disk_whose_claim_is_missing_is_told_until_it_exists() -> None:
    entry = {"name": "data", "phase": "Pending", "reason": "ClaimNotFound", "message": "PersistentVolumeClaim data does not exist"}
    waits = guest_status.running(a_vm(volumeStatus=[entry]), a_running(), None, NOW)
    found = objects.condition(waits["conditions"], "DisksReady") or {}
    assert (found["status"], found["reason"]) == ("False", "ClaimNotFound")
    assert found["message"] == "disk data: PersistentVolumeClaim data does not exist"
    there = guest_status.running({**a_vm(), "status": {**waits, "volumeStatus": []}}, a_running(), None, NOW)
    assert objects.is_true(there["conditions"], "DisksReady")
