from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from apiserver.apis.virt.places import network
from apiserver.apis.virt.spec import attachments
from handler.devices import macvtap as devices
from handler.devices.ownership import Node
from handler.network import binding, bindings, results, setup
from handler.network.binding import Interface, Link, Observed, Plan, Unsupported
from tests.unit.handler.network.test_binding import EMPTY

MAC = "52:54:00:aa:bb:cc"
CARD = {"name": "lan", "type": "macvtap", "network": "lan", "mac": MAC}
LINK, TAP = attachments.link("lan"), attachments.tap("lan")
SEEN = Observed((*EMPTY.links, Link(LINK, MAC, 1400, ())))
MADE = Observed((*SEEN.links, Link(TAP, MAC, 1400, ())))


def a_vm(*interfaces: dict[str, Any], **domain: Any) -> dict[str, Any]:
    metadata = {"name": "testvm", "namespace": "ns", "uid": "3f0e"}
    return {"metadata": metadata, "spec": {"domain": {**domain, "devices": {"interfaces": list(interfaces), **domain.get("devices", {})}}}}


def a_device(minor: int) -> Node:
    return Node(devices.path_of(minor), "char", (246, minor))


def planned(seen: Observed, device: str = "246:7", **domain: Any) -> Plan:
    (wanted,) = setup.wanted(a_vm(CARD, **domain))
    return bindings.plan(dataclasses.replace(wanted, device=device), seen)


def test_macvtap_guest_has_a_tap_and_no_pod_address() -> None:
    assert planned(SEEN).interface == Interface("lan", MAC, TAP, "virtio", (), is_own=False)


def test_macvtap_link_has_the_index_of_the_pods_device() -> None:
    script = planned(SEEN).script
    made = f"ip link add link {LINK} name {TAP} index {network.MACVTAP_INDEX + 7} address {MAC} mtu 1400 type macvtap mode bridge\n"
    assert made in script
    assert devices.path_of(7) == f"/dev/tap{network.MACVTAP_INDEX + 7}"
    assert "while [ $minor -lt 7 ]" in script
    assert f"*/{TAP}/macvtap/tap{network.MACVTAP_INDEX + 7}) ;;" in script


def test_existing_macvtap_is_kept_and_its_device_rechecked() -> None:
    script = planned(MADE).script
    assert "type macvtap" not in script
    assert "/sys/dev/char/246:7" in script


def test_the_filters_are_there_before_a_frame_can_pass() -> None:
    lines = planned(SEEN).script.splitlines()
    loaded = lines.index("}", lines.index(f"  exit {binding.NO_FILTER}"))
    assert [position > loaded for position, line in enumerate(lines) if line == f"link set dev {TAP} up"] == [True]
    assert f"    ether saddr != {MAC} counter name foreign_mac drop" in lines


def test_the_guests_address_is_taken_off_the_link_once() -> None:
    line = f"link set dev {LINK} address {network.derived_mac(MAC, 'uplink')}"
    assert line in planned(SEEN).script
    assert line not in planned(Observed((*EMPTY.links, Link(LINK, network.derived_mac(MAC, "uplink"), 1400, ())))).script


def test_a_card_of_several_queues_has_a_tap_of_several() -> None:
    script = planned(SEEN, cpu={"cores": 2}, devices={"networkInterfaceMultiqueue": True}).script
    assert " numtxqueues 2 numrxqueues 2 type macvtap" in script


@pytest.mark.parametrize("address", ["10.77.0.2/24", "fd00::7/64"])
def test_a_network_with_ipam_is_refused_with_the_way_out(address: str) -> None:
    with pytest.raises(Unsupported, match=r"interface lan: IPAM of network ns/lan .* or use type bridge"):
        planned(Observed((*EMPTY.links, Link(LINK, MAC, 1400, (address,)))))


@pytest.mark.parametrize("device", ["", "246", "246:", "246:7;reboot", "246:7\n", "x:7"])
def test_a_pod_without_a_device_is_told(device: str) -> None:
    with pytest.raises(Unsupported, match="interface lan: its pod has no device for a macvtap"):
        planned(SEEN, device)


def test_pod_without_the_network_names_it_and_the_requirement() -> None:
    with pytest.raises(Unsupported, match=rf"interface lan: the pod has no link {LINK} to network ns/lan: .* such as Multus"):
        planned(EMPTY)


def test_macvtap_devices_are_assigned_in_order() -> None:
    vm = a_vm({"name": "default"}, CARD, {"name": "other", "network": "lan"}, {**CARD, "name": "wan", "mac": "52:54:00:aa:bb:cd"})
    asked = setup.with_devices(setup.wanted(vm), [a_device(4), a_device(9), a_device(11)], {})
    assert [each.device for each in asked] == ["", "246:4", "", "246:9"]
    assert [each.device for each in setup.with_devices(setup.wanted(vm), [a_device(4)], {})] == ["", "246:4", "", ""]


def test_macvtap_keeps_its_device_and_another_gets_a_free_one() -> None:
    found = [a_device(4), a_device(9)]
    for there, device in ((TAP, "246:4"), ("other", "246:9")):
        (asked,) = setup.with_devices(setup.wanted(a_vm(CARD)), found, {there: network.MACVTAP_INDEX + 4})
        assert asked.device == device
    (asked,) = setup.with_devices(setup.wanted(a_vm(CARD)), [a_device(4)], {"other": network.MACVTAP_INDEX + 4})
    assert asked.device == ""


def test_our_plugin_is_told_the_device_and_no_other_plugin_is() -> None:
    (asked,) = setup.with_devices(setup.wanted(a_vm(CARD)), [a_device(4)], {})
    assert results.wanted(setup.over_the_wire(results.document_of(asked))) == asked
    assert "own" not in results.document_of(dataclasses.replace(asked, type="plugin"))
