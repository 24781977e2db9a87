from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.apis.virt.spec import attachments, hot_plug_interfaces, live_changes, running

DEFAULT: dict[str, Any] = {"name": "default", "type": "masquerade", "model": "virtio"}
LAN: dict[str, Any] = {"name": "lan", "type": "bridge", "network": "lan", "model": "virtio"}
DMZ: dict[str, Any] = {"name": "dmz", "network": "dmz", "model": "e1000e", "mac": "52:54:00:00:00:77"}


def a_vm(desired: list[dict[str, Any]] | None, runs: list[dict[str, Any]] | None = None, **domain: Any) -> dict[str, Any]:
    def a_domain(cards: list[dict[str, Any]] | None) -> dict[str, Any]:
        devices = {**domain.get("devices", {}), **({} if cards is None else {"interfaces": cards})}
        return {"memory": {"guest": "1Gi"}, **domain, "devices": devices}

    status: dict[str, Any] = {"phase": "Running", "domain": {"liveChanges": ["interface"]}}
    if runs is not None:
        status["running"] = {"generation": 1, "domain": a_domain(runs)}
    metadata = {"name": "testvm", "namespace": "default", "uid": "u"}
    return {"metadata": metadata, "spec": {"domain": a_domain(desired)}, "status": status}


def names(*found: tuple[dict[str, Any], ...]) -> list[list[str]]:
    return [[each["name"] for each in cards] for cards in found]


def applied(card: str) -> dict[str, str]:
    return {"path": hot_plug_interfaces.path_of(card), "state": "Applied", "time": "2026-11-29T08:00:00Z"}


def test_added_removed_and_kept_cards_are_found_by_name() -> None:
    vm = a_vm([DEFAULT, LAN], [DEFAULT, DMZ])
    found = hot_plug_interfaces.added(vm), hot_plug_interfaces.removed(vm), hot_plug_interfaces.kept(vm)
    assert names(*found) == [["lan"], ["dmz"], ["default"]]
    assert hot_plug_interfaces.live(vm) == ("lan", "dmz")
    assert live_changes.rest(vm) == ()
    vm["status"]["domain"] = {}
    assert hot_plug_interfaces.live(vm) == ()
    assert [str(each) for each in live_changes.rest(vm)] == [
        "spec.domain.devices.interfaces[dmz] (removed)",
        "spec.domain.devices.interfaces[lan] (added)",
    ]


@pytest.mark.parametrize(
    "card",
    [
        {"name": "x", "type": "bridge"},
        {"name": "x", "type": "passt", "ports": []},
        {"name": "x", "type": "sriov", "network": "lan", "deviceName": "intel.com/nic"},
        {"name": "x", "network": "lan", "model": "rtl8139"},
        {"name": "x", "network": "lan", "model": "e1000"},
    ],
)
def test_other_cards_need_a_restart(card: dict[str, Any]) -> None:
    assert hot_plug_interfaces.kept(a_vm([card], [card])) == ()
    for vm in (a_vm([card], []), a_vm([], [card])):
        assert hot_plug_interfaces.live(vm) == ()
        assert live_changes.limits(vm, live_changes.rest(vm)).startswith("live, cards of type masquerade, macvtap, plugin")


@pytest.mark.parametrize(("state", "expected"), [("Failed", [hot_plug_interfaces.path_of("lan")]), ("Pending", [])])
def test_failed_card_needs_a_restart_and_a_waiting_one_does_not(state: str, expected: list[str]) -> None:
    vm = a_vm([DEFAULT, LAN], [DEFAULT])
    vm["status"]["changes"] = [{**applied("lan"), "state": state}]
    assert [each.path for each in live_changes.rest(vm)] == expected


def test_changed_card_is_told_how_it_can_be_replaced() -> None:
    vm = a_vm([{**DMZ, "mac": "52:54:00:00:00:78"}, {**LAN, "model": "e1000e"}], [DMZ, LAN])
    assert live_changes.limits(vm, live_changes.rest(vm)) == "live, of a card only state changes; a card of another name replaces it"
    vm["status"]["domain"] = {}
    assert live_changes.limits(vm, live_changes.rest(vm)) == ""


@pytest.mark.parametrize(
    "card", [{"name": "x", "type": "macvtap", "network": "lan"}, {"name": "x", "type": "plugin", "plugin": "isolated"}]
)
def test_macvtap_and_plugin_cards_come_and_go(card: dict[str, Any]) -> None:
    assert names(hot_plug_interfaces.kept(a_vm([card], [card]))) == [["x"]]
    assert hot_plug_interfaces.live(a_vm([card], [])) == hot_plug_interfaces.live(a_vm([], [card])) == ("x",)


@pytest.mark.parametrize("cores", [2, 4])
def test_card_with_several_queues_needs_a_restart(cores: int) -> None:
    domain = {"cpu": {"cores": cores}, "devices": {"networkInterfaceMultiqueue": True}}
    assert hot_plug_interfaces.live(a_vm([LAN], [], **domain)) == ()
    assert hot_plug_interfaces.live(a_vm([DMZ], [], **domain)) == ("dmz",)


@pytest.mark.parametrize("form", ["spec", "running"])
def test_machine_with_xml_keeps_its_cards(form: str) -> None:
    vm = a_vm([LAN], [])
    forms = {"spec": vm["spec"], "running": vm["status"]["running"]}
    forms[form]["domainXML"] = "<domain/>"
    assert (hot_plug_interfaces.added(vm), hot_plug_interfaces.removed(vm), hot_plug_interfaces.kept(vm)) == ((), (), ())


@pytest.mark.parametrize(
    ("desired", "runs", "expected"),
    [
        ([{**DEFAULT, "name": "other"}], [DEFAULT], []),
        ([{**DEFAULT, "name": "other"}], [LAN], ["other"]),
        ([{**DMZ, "name": "other"}, LAN], [DMZ], ["lan"]),
        ([{**DMZ, "name": "other", "mac": "52-54-00-00-00-77"}], [DMZ], []),
        ([{**LAN, "name": f"card{each}"} for each in range(8)], [DEFAULT], [f"card{each}" for each in range(7)]),
        ([LAN], [{**LAN, "name": f"card{each}"} for each in range(9)], []),
    ],
)
def test_card_waits_for_the_end_of_one_in_its_place(desired: list[dict[str, Any]], runs: list[dict[str, Any]], expected: list[str]) -> None:
    assert names(hot_plug_interfaces.coming(a_vm(desired, runs))) == [expected]


def test_running_form_takes_what_the_guest_has() -> None:
    vm = a_vm([DEFAULT, LAN], [DEFAULT, DMZ])
    vm["status"]["changes"] = [applied("lan")]
    old = copy.deepcopy(vm)
    live_changes.record(vm)
    assert [each["name"] for each in vm["status"]["running"]["domain"]["devices"]["interfaces"]] == ["default", "lan", "dmz"]
    assert live_changes.follows(old, vm)
    assert "changes" not in vm["status"]
    old = copy.deepcopy(vm)
    vm["status"]["changes"] = [applied("dmz")]
    live_changes.record(vm)
    assert "running" not in vm["status"]
    assert live_changes.follows(old, vm)


def test_machine_with_cards_keeps_its_other_devices() -> None:
    disks = [{"name": "root"}]
    vm = a_vm([LAN, DMZ], [DEFAULT], devices={"disks": disks})
    for found, expected in (
        (hot_plug_interfaces.with_added(vm), ["lan", "dmz", "default"]),
        (hot_plug_interfaces.with_coming(vm, ["dmz"]), ["dmz", "default"]),
        (hot_plug_interfaces.alone(vm, "lan"), ["lan"]),
        (hot_plug_interfaces.with_added(a_vm([DEFAULT], devices={"disks": disks})), ["default"]),
    ):
        devices = running.spec_of(found)["domain"]["devices"]
        assert (devices["disks"], [each["name"] for each in devices["interfaces"]]) == (disks, expected)
    assert hot_plug_interfaces.alone(vm, "lan")["status"]["phase"] == "Running"


def test_running_form_takes_nothing_else() -> None:
    old = a_vm([DEFAULT, LAN], [DEFAULT, DMZ])
    for devices in ([DEFAULT, {**LAN, "network": "other"}, DMZ], [LAN, DMZ], [DEFAULT, DMZ, {**DMZ, "name": "third"}]):
        new = copy.deepcopy(old)
        new["status"]["running"]["domain"]["devices"]["interfaces"] = devices
        assert not live_changes.follows(old, new)
    vm = a_vm([{**DEFAULT, "name": "other"}], [DEFAULT])
    vm["status"]["changes"] = [applied("other")]
    live_changes.record(vm)
    assert [each["name"] for each in vm["status"]["running"]["domain"]["devices"]["interfaces"]] == ["default"]


def test_report_of_a_card_in_neither_form_changes_nothing() -> None:
    vm = a_vm([DEFAULT])
    vm["status"]["changes"] = [applied("lan")]
    live_changes.record(vm)
    assert "changes" not in vm["status"]
    assert "running" not in vm["status"]


def test_default_card_is_kept_when_another_one_comes() -> None:
    vm = a_vm([DEFAULT, LAN], [])
    vm["status"]["running"]["domain"]["devices"] = {}
    assert names(hot_plug_interfaces.added(vm), hot_plug_interfaces.kept(vm)) == [["lan"], ["default"]]
    hot_plug_interfaces.take(vm, ["lan"])
    assert "running" not in vm["status"]


def test_pod_of_a_coming_card_names_its_link_after_the_network() -> None:
    vm = hot_plug_interfaces.with_coming(a_vm([DEFAULT, LAN, DMZ], [DEFAULT, DMZ]), ["lan", "unknown"])
    assert [each["name"] for each in running.spec_of(vm)["domain"]["devices"]["interfaces"]] == ["default", "lan", "dmz"]
    annotation = attachments.pod_annotations(vm, ["lan"])[attachments.ANNOTATION]
    assert attachments.link_of_network("lan", "default/lan") in annotation
    assert attachments.link("dmz") in annotation
    assert attachments.link("lan") not in annotation


def test_one_card_alone_is_that_of_the_running_form() -> None:
    vm = a_vm([LAN, {**DMZ, "network": "edited"}], [DMZ])
    for name, network in (("lan", "lan"), ("dmz", "dmz")):
        (card,) = running.spec_of(hot_plug_interfaces.alone(vm, name))["domain"]["devices"]["interfaces"]
        assert card["network"] == network
