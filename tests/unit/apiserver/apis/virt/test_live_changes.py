from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apiserver.apis.virt.spec import hot_plug, live_changes, running
from apiserver.apis.virt.spec.live_changes import Change
from tests.unit.apiserver.apis.virt.test_running import DATA, ROOT, Edit, a_vm, add, cores, edited, with_status

LIMITS = "spec.domain.devices.disks[data].ioTune"
LINK = "spec.domain.devices.interfaces[default].state"
SUPPORTED = {"state": "running", "liveChanges": list(live_changes.KNOWN)}


def limited(**limits: Any) -> Edit:
    return lambda spec: spec["domain"]["devices"]["disks"][1].update(ioTune=limits)


def link(state: str) -> Edit:
    return lambda spec: spec["domain"]["devices"].update(interfaces=[{"name": "default", "state": state}])


def a_guest() -> dict[str, Any]:
    return with_status(a_vm("Running", ROOT, DATA), domain=SUPPORTED)


def entry(path: str, state: str, **members: str) -> dict[str, str]:
    return {"path": path, "state": state, **members}


def told(vm: dict[str, Any]) -> list[str]:
    return [str(each) for each in live_changes.rest(vm)]


def test_edit_of_a_setting_needs_no_restart() -> None:
    vm = edited(a_guest(), limited(totalIopsSec=500))
    assert live_changes.of(vm) == (Change("disk.ioTune", "data"),)
    assert told(vm) == []
    assert "ioTune" not in running.spec_of(vm)["domain"]["devices"]["disks"][1]
    done = with_status(vm, changes=[entry(LIMITS, "Applied")])
    assert "running" not in done["status"]
    assert "changes" not in done["status"]
    assert running.spec_of(done) == done["spec"]


def created(size: str, claim: str = "data") -> Edit:
    return lambda spec: spec["domain"]["devices"]["disks"][1].update(source={"name": claim, "create": {"size": size}})


def test_disk_in_a_claim_grows_without_a_restart() -> None:
    vm = edited(a_guest(), created("2Gi"))
    assert live_changes.of(vm) == (Change("disk.size", "data"),)
    assert live_changes.wanted(vm)[Change("disk.size", "data")] == str(2 << 30)
    assert told(vm) == []
    done = with_status(vm, changes=[entry("spec.domain.devices.disks[data].source.create", "Applied")])
    assert "running" not in done["status"]
    back = edited(done, lambda spec: spec["domain"]["devices"]["disks"][1].update(source={"name": "data"}))
    assert with_status(back, changes=[entry("spec.domain.devices.disks[data].source.create", "Applied")]).get("running") is None


@pytest.mark.parametrize(
    "edit",
    [
        created("2Gi", "other"),
        created("2Gi", "another"),
        lambda spec: spec["domain"]["devices"]["disks"][1]["source"].update(ephemeral=True),
    ],
)
def test_another_claim_or_use_of_it_is_no_growth(edit: Edit) -> None:
    vm = edited(a_guest(), edit)
    assert live_changes.of(vm) == ()
    assert told(vm) == ["spec.domain.devices.disks[data]"]


def test_other_edits_still_need_a_restart() -> None:
    vm = edited(edited(a_guest(), limited(totalIopsSec=500)), cores(2))
    assert told(vm) == ["spec.domain.cpu.cores"]
    done = with_status(vm, changes=[entry(LIMITS, "Applied")])
    kept = done["status"]["running"]
    assert (kept["generation"], kept["domain"]["cpu"]["cores"]) == (4, 1)
    assert kept["domain"]["devices"]["disks"][1]["ioTune"] == {"totalIopsSec": 500}
    assert live_changes.of(done) == ()
    assert told(done) == ["spec.domain.cpu.cores"]


def test_only_the_changed_settings_are_written() -> None:
    card, limits = {"name": "default", "state": "down"}, {"totalIopsSec": 500}
    desired = {"devices": {"disks": [ROOT, {**DATA, "ioTune": limits}], "interfaces": [card]}}
    changes = [Change("disk.ioTune", "data"), Change("interface.state", "default")]
    changed = live_changes.with_changes({"devices": {"disks": [ROOT, DATA]}}, desired, changes)["devices"]
    assert changed["disks"] == desired["devices"]["disks"]
    assert [(each["name"], each["state"]) for each in changed["interfaces"]] == [("default", "down")]


def test_link_that_is_not_written_changes_by_its_default() -> None:
    vm = edited(a_guest(), link("down"))
    assert live_changes.of(vm) == (Change("interface.state", "default"),)
    assert "running" not in with_status(vm, changes=[entry(LINK, "Applied")])["status"]
    assert "running" not in edited(vm, link("up"))["status"]


@pytest.mark.parametrize("same", [{"readBytesSec": "1Mi"}, {"readBytesSec": "1024Ki"}])
def test_limits_compare_by_their_amount(same: dict[str, str]) -> None:
    vm = edited(edited(a_guest(), limited(readBytesSec="1Mi")), cores(2))
    vm = with_status(vm, changes=[entry(LIMITS, "Applied")])
    assert live_changes.of(edited(vm, limited(**same))) == ()


@pytest.mark.parametrize("state", ["Pending", "Failed"])
def test_edit_that_the_guest_has_not_taken_stays_recorded(state: str) -> None:
    vm = edited(a_guest(), limited(totalIopsSec=500))
    told_so = with_status(vm, changes=[entry(LIMITS, state, message="why")])
    assert told_so["status"]["running"] == vm["status"]["running"]
    assert told_so["status"]["changes"] == [entry(LIMITS, state, message="why")]
    assert told(told_so) == ([LIMITS.removesuffix(".ioTune")] if state == "Failed" else [])


@pytest.mark.parametrize(
    "path", ["spec.domain.cpu.cores", "spec.domain.devices.disks[data]", "spec.domain.devices.disks[root].ioTune", LINK, "spec.domain"]
)
def test_only_a_missing_setting_can_be_declared_as_applied(path: str) -> None:
    vm = edited(edited(a_guest(), limited(totalIopsSec=500)), cores(2))
    lied = with_status(vm, changes=[entry(path, "Applied")])
    assert lied["status"]["running"] == vm["status"]["running"]
    assert "changes" not in lied["status"]


def test_virt_handler_takes_only_settings_of_the_spec() -> None:
    vm = edited(edited(a_guest(), limited(totalIopsSec=500)), cores(2))
    done = with_status(vm, changes=[entry(LIMITS, "Applied")])
    assert live_changes.follows(vm, done)
    done["status"]["running"]["domain"]["devices"]["disks"][1]["ioTune"] = {"totalIopsSec": 900}
    assert not live_changes.follows(vm, done)


def test_without_a_report_of_support_a_restart_is_required() -> None:
    vm = edited(a_vm("Running", ROOT, DATA), limited(totalIopsSec=500))
    assert told(vm) == ["spec.domain.devices.disks[data]"]
    assert told(with_status(vm, domain={"liveChanges": ["interface.state"]})) == ["spec.domain.devices.disks[data]"]


def test_devices_of_only_one_form_are_no_setting() -> None:
    vm = edited(a_vm("Running", ROOT), add({**DATA, "ioTune": {"totalIopsSec": 500}}))
    assert live_changes.of(vm) == ()
    assert Change("disk.ioTune", "data") not in live_changes.wanted(vm)


def sockets(number: int, **also: int) -> Edit:
    return lambda spec: spec["domain"]["cpu"].update(sockets=number, **also)


def a_guest_with_room(**cpu: Any) -> dict[str, Any]:
    vm = a_guest()
    vm["spec"]["domain"]["cpu"] = {"sockets": 2, "cores": 1, "threads": 1, "maxSockets": 4, **cpu}
    return vm


def test_guest_gets_processors_up_to_its_maximum() -> None:
    vm = edited(a_guest_with_room(), sockets(4))
    assert live_changes.of(vm) == (live_changes.PROCESSORS,)
    assert live_changes.wanted(vm)[live_changes.PROCESSORS] == "4"
    assert told(vm) == []
    assert "running" not in with_status(vm, changes=[entry("spec.domain.cpu.sockets", "Applied")])["status"]


@pytest.mark.parametrize(
    ("number", "supported", "expected"),
    [
        (4, live_changes.KNOWN, ""),
        (5, live_changes.KNOWN, "live, sockets go up to maxSockets (4)"),
        (9, live_changes.KNOWN, "live, sockets go up to maxSockets (4)"),
        (3, live_changes.KNOWN, ""),
        (1, live_changes.KNOWN, "live, sockets only grow"),
        (5, ["disk.ioTune"], ""),
        (5, None, ""),
        (2, live_changes.KNOWN, ""),
    ],
)
def test_processors_outside_the_limits_are_told(number: int, supported: Any, expected: str) -> None:
    vm = edited(a_guest_with_room(), sockets(number, maxSockets=9))
    vm["status"]["domain"] = {"liveChanges": supported}
    assert live_changes.limits(vm, live_changes.rest(vm)) == expected


@pytest.mark.parametrize(
    ("given", "edit"),
    [
        ({}, sockets(1)),
        ({"maxSockets": 3}, sockets(4, maxSockets=4)),
        ({}, sockets(3, cores=2)),
        ({"dedicatedCpuPlacement": True}, sockets(3)),
        ({"numa": {"cells": []}}, sockets(3)),
    ],
)
def test_other_edits_of_processors_need_a_restart(given: dict[str, Any], edit: Edit) -> None:
    vm = edited(a_guest_with_room(**given), edit)
    assert "spec.domain.cpu.sockets" in told(vm)
    assert live_changes.PROCESSORS not in live_changes.wanted(vm)
    lied = with_status(vm, changes=[entry("spec.domain.cpu.sockets", "Applied")])
    assert lied["status"]["running"] == vm["status"]["running"]


@pytest.mark.parametrize("field", ["networkInterfaceMultiqueue", "blockMultiQueue"])
def test_queues_per_processor_keep_the_processors(field: str) -> None:
    vm = a_guest_with_room()
    vm["spec"]["domain"]["devices"][field] = True
    assert told(edited(vm, sockets(3))) == ["spec.domain.cpu.sockets"]


def guest_memory(amount: str) -> Edit:
    return lambda spec: spec["domain"]["memory"].update(guest=amount)


def a_guest_with_memory(**domain: Any) -> dict[str, Any]:
    vm = a_guest()
    vm["spec"]["domain"] |= {"memory": {"guest": "512Mi", "maxGuest": "1Gi"}, **domain}
    return vm


@pytest.mark.parametrize("amount", ["1Gi", "514Mi", "256Mi"])
def test_guest_gets_memory_up_to_its_maximum_and_returns_it(amount: str) -> None:
    """virt-launcher knows the guest's first amount, and refuses less."""
    vm = edited(a_guest_with_memory(), guest_memory(amount))
    assert live_changes.of(vm) == (live_changes.MEMORY,)
    assert told(vm) == []
    assert "running" not in with_status(vm, changes=[entry("spec.domain.memory.guest", "Applied")])["status"]
    failed = with_status(vm, changes=[entry("spec.domain.memory.guest", "Failed")])
    assert told(failed) == ["spec.domain.memory.guest"]
    assert live_changes.limits(failed, live_changes.rest(failed)) == ""


@pytest.mark.parametrize(
    ("given", "amount", "why"),
    [
        ({}, "513Mi", "memory changes by multiples of 2Mi, up to resources.limits.memory"),
        ({"memory": {"guest": "512Mi", "maxGuest": "768Mi"}}, "1Gi", "memory goes up to maxGuest (768Mi)"),
        ({"memory": {"guest": "512Mi"}}, "1Gi", "memory changes only for a guest with memory.maxGuest at its start"),
        ({"memory": {"guest": "512Mi", "maxGuest": "1Gi", "hugepages": {"pageSize": "2Mi"}}}, "1Gi", ""),
        ({"cpu": {"sockets": 1, "cores": 1, "threads": 1, "numa": {"cells": [{"cpus": "0", "memory": "512Mi"}]}}}, "1Gi", ""),
        ({"resources": {"limits": {"memory": "768Mi"}}}, "1Gi", "memory changes by multiples of 2Mi, up to resources.limits.memory"),
        ({"devices": {"hostDevices": [{"name": "card", "deviceName": "vendor.example/card"}]}}, "1Gi", ""),
        ({"devices": {"filesystems": [{"name": "ca", "type": "ConfigMap", "source": {"name": "ca"}}]}}, "1Gi", ""),
    ],
)
def test_other_edits_of_memory_need_a_restart(given: dict[str, Any], amount: str, why: str) -> None:
    vm = edited(a_guest_with_memory(**given), guest_memory(amount))
    assert live_changes.limits(vm, live_changes.rest(vm)) == (why and f"live, {why}")
    assert "spec.domain.memory.guest" in told(vm)
    vm["status"]["domain"]["liveChanges"] = ["disk.ioTune"]
    assert live_changes.limits(vm, live_changes.rest(vm)) == ""
    assert live_changes.MEMORY not in live_changes.wanted(vm)


@pytest.mark.parametrize("form", ["desired", "running", "both"])
def test_machine_with_xml_has_no_such_settings(form: str) -> None:
    vm = edited(a_guest(), limited(totalIopsSec=500))
    for each in {"desired": (vm["spec"],), "running": (vm["status"]["running"],)}.get(form, (vm["spec"], vm["status"]["running"])):
        each["domainXML"] = "<domain/>"
    assert live_changes.wanted(vm) == {}


def test_device_of_a_change_has_its_name() -> None:
    devices = {"disks": [{**DATA, "name": name} for name in ("root", "archive", "data")]}
    assert live_changes.device_of({"devices": devices}, Change("disk.ioTune", "data"))["name"] == "data"


def test_entries_end_with_the_guest() -> None:
    vm = edited(a_guest(), limited(totalIopsSec=500))
    vm = with_status(vm, changes=[entry(LIMITS, "Failed", message="why")])
    assert "changes" not in with_status(vm, phase="Stopped", attempts=[{"number": 1, "endTime": "2026-01-01T00:00:00Z"}])["status"]


def test_removed_setting_leaves_the_running_form() -> None:
    vm = a_guest()
    vm["spec"]["domain"]["devices"]["disks"][1]["ioTune"] = {"totalIopsSec": 500}
    vm = edited(edited(vm, cores(2)), lambda spec: spec["domain"]["devices"]["disks"][1].pop("ioTune"))
    done = with_status(vm, changes=[entry(LIMITS, "Applied")])
    assert "ioTune" not in done["status"]["running"]["domain"]["devices"]["disks"][1]


class CountedList(list[Any]):
    reads = 0

    def __iter__(self) -> Iterator[Any]:
        self.reads += 1
        return super().__iter__()


def reads_with(number: int, judge: Callable[[dict[str, Any]], object]) -> int:
    claims = [{**DATA, "name": f"old{each}", "source": {"name": f"old{each}", "create": {"size": "1Gi"}}} for each in range(number)]
    grown = [{**each, "source": {**each["source"], "create": {"size": "2Gi"}}, "ioTune": {"totalIopsSec": 5}} for each in claims]
    new = [{**DATA, "name": f"new{each}", "source": {"name": f"new{each}"}} for each in range(number)]
    vm = edited(
        with_status(a_vm("Running", *claims), domain=SUPPORTED), lambda spec: spec["domain"]["devices"].update(disks=[*grown, *new])
    )
    pods = [(each["name"], {"attachPodName": hot_plug.pod_name(vm, each), "attachPodUID": "u"}) for each in hot_plug.added(vm)]
    vm["status"]["volumeStatus"] = [{"name": name, "hotplugVolume": pod} for name, pod in pods]
    desired, runs = vm["spec"]["domain"]["devices"], running.spec_of(vm)["domain"]["devices"]
    desired["disks"], runs["disks"] = CountedList(desired["disks"]), CountedList(runs["disks"])
    counted = (desired["disks"], runs["disks"])
    judge(vm)
    return sum(each.reads for each in counted)


@pytest.mark.parametrize("judge", [live_changes.wanted, live_changes.of, live_changes.rest, hot_plug.record])
def test_many_disks_are_read_as_often_as_few(judge: Callable[[dict[str, Any]], object]) -> None:
    """Otherwise the work grows with the square of the disks, and blocks virt-handler's event loop."""
    assert 0 < reads_with(12, judge) == reads_with(2, judge)
