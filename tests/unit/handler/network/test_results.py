from __future__ import annotations

import json
from typing import Any

import pytest

from handler.network import results, setup
from handler.network.binding import Interface, Port, Wanted
from launcher.protocol.leases import Lease, Route

MAC = "52:54:00:00:00:77"


def a_vm(*interfaces: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "testvm", "namespace": "ns", "uid": "3f0e"}
    return {"metadata": metadata, "spec": {"domain": {"devices": {"interfaces": list(interfaces)}}}}


def over_the_wire(document: Any) -> Any:
    return json.loads(json.dumps(document))


@pytest.mark.parametrize(
    "interface",
    [
        {"name": "default", "ports": [{"port": 22}]},
        {"name": "default", "type": "bridge"},
        {"name": "lan", "network": "lan", "mac": MAC},
        {"name": "private", "type": "plugin", "plugin": "isolated", "options": {"segment": "blue"}},
        {"name": "private", "type": "plugin", "plugin": "isolated", "network": "lan"},
    ],
    ids=str,
)
def test_wanted_interface_survives_serialization(interface: dict[str, Any]) -> None:
    (wanted,) = setup.wanted(a_vm(interface))
    assert results.wanted(over_the_wire(results.document_of(wanted))) == wanted


def test_third_party_plugins_get_only_documented_members() -> None:
    private, default = setup.wanted(
        {
            **a_vm({"name": "private", "type": "plugin", "plugin": "isolated"}, {"name": "default", "ports": [{"port": 22}]}),
            "status": {"podIP": "fd00::9"},
        }
    )
    told = results.document_of(private)
    assert told.keys() == {"name", "type", "plugin", "options", "mac", "model", "queues", "network", "tap", "bridge", "uplink"}
    ours = over_the_wire(results.document_of(default))
    assert ours.keys() - told.keys() == {"own"}
    assert ours["own"] == {"ports": [{"protocol": "TCP", "port": 22}], "ipv6_first": True, "device": ""}


@pytest.mark.parametrize("given", [None, [], {}, {"name": 5}, {"name": "a", "type": "b", "mac": "c", "model": "d", "queues": "1"}], ids=str)
def test_malformed_interface_documents_are_reported(given: Any) -> None:
    with pytest.raises(ValueError, match=r"^interface"):
        results.wanted(given)


def test_plugin_interface_has_own_names_and_mac() -> None:
    private, default = setup.wanted(a_vm({"name": "private", "type": "plugin", "plugin": "isolated"}, {"name": "default"}))
    assert (private.plugin, private.options, private.network) == ("isolated", {}, "")
    assert private.mac
    assert not {private.tap, private.bridge, private.uplink} & {default.tap, default.bridge, default.uplink}


@pytest.mark.parametrize(
    "made",
    [
        Interface("default", MAC, "tap0", "virtio", ("10.0.0.9", "fd00::9")),
        Interface(
            "default", MAC, "tap0", "e1000", ("10.0.0.9",), lease=Lease("10.0.0.9/24", "169.254.75.1", (Route("0.0.0.0/0", "10.0.0.1"),))
        ),
        Interface("card", MAC, "", "", (), is_own=False),
    ],
    ids=str,
)
def test_results_of_own_bindings_are_parsed(made: Interface) -> None:
    wanted = Wanted(made.name, "masquerade", made.mac, made.model, network="" if made.is_own else "ns/lan", ports=(Port("TCP", 22),))
    assert results.of_ours(wanted, over_the_wire({"version": "1.0.0", **results.members(made)})) == made


THEIRS = Wanted("private", "plugin", MAC, "virtio", tap="tap7", plugin="isolated")


def test_plugin_results_are_parsed_in_any_usual_notation() -> None:
    said = {"version": "1.0.0", "tap": "tap7", "mac": "52-54-00-00-00-77", "addresses": ["10.9.0.7", "FD00::0:7"]}
    made = results.of_theirs(THEIRS, said, live_migration=True)
    assert made == Interface("private", MAC, "tap7", "virtio", ("10.9.0.7", "fd00::7"), is_own=False)
    assert results.of_theirs(THEIRS, {"tap": "tap7", "mac": MAC}, live_migration=False).addresses == ()


@pytest.mark.parametrize(
    "said",
    [
        {"addresses": ["10.0.0.9/24"]},
        {"addresses": [7]},
        {"addresses": "10.0.0.9"},
        {"addresses": 7},
        {"addresses": ["10.0.0.9"] * 17},
        {"tap": None},
        {"tap": "TAP7"},
        {"mac": 7},
    ],
    ids=str,
)
def test_invalid_plugin_results_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(said))):
        results.of_theirs(THEIRS, {"version": "1.0.0", "tap": "tap7", "mac": MAC, **said}, live_migration=True)


@pytest.mark.parametrize("told", [None, {}, [], [7], [{}], [{"ifname": "tap7", "linkinfo": None}], [{"ifname": "tap7"}]], ids=str)
def test_unknown_link_is_no_tap(told: Any) -> None:
    made = results.of_theirs(THEIRS, {"tap": "tap7", "mac": MAC}, live_migration=True)
    assert results.tap_problem(made, told, frozenset({"107"}), several_queues=False) == "the pod has no tap device tap7"


A_TAP: dict[str, Any] = {"ifname": "tap7", "flags": ["BROADCAST", "UP"], "linkinfo": {"info_data": {"type": "tap", "user": "107"}}}


def with_tun(**members: Any) -> dict[str, Any]:
    return {**A_TAP, "linkinfo": {"info_data": {**A_TAP["linkinfo"]["info_data"], **members}}}


@pytest.mark.parametrize(
    ("told", "several_queues", "problem"),
    [
        (A_TAP, False, ""),
        (with_tun(user="qemu"), False, ""),
        (with_tun(multi_queue=False), False, ""),
        (with_tun(multi_queue=True), True, ""),
        (with_tun(multi_queue=True), False, "tap7 must be created without multi_queue"),
        (A_TAP, True, "tap7 must be created with multi_queue"),
        (with_tun(user="0"), False, "tap7 belongs to user 0, must belong to 107"),
        (with_tun(user=None), False, "tap7 belongs to user None, must belong to 107"),
        (with_tun(type="tun"), False, "the pod has no tap device tap7"),
        ({**A_TAP, "ifname": "tap0"}, False, "the pod has no tap device tap7"),
        ({**A_TAP, "flags": ["BROADCAST"]}, False, "tap7 is down"),
        ({each: A_TAP[each] for each in ("ifname", "linkinfo")}, False, "tap7 is down"),
    ],
    ids=str,
)
def test_a_tap_is_as_the_kernel_says_it_is(told: dict[str, Any], several_queues: bool, problem: str) -> None:
    made = results.of_theirs(THEIRS, {"tap": "tap7", "mac": MAC, "addresses": ["10.0.0.9"] * 16}, live_migration=True)
    assert results.tap_problem(made, [told, 7], frozenset({"107", "qemu"}), several_queues=several_queues) == problem
    assert results.tap_problem(made, {0: told}, frozenset({"107"}), several_queues=several_queues) == "the pod has no tap device tap7"
