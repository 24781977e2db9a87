from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from apiserver.apis.virt.places import network
from apiserver.apis.virt.spec import attachments
from handler.network import binding, filters, setup
from handler.network.binding import Link, Observed, Unsupported
from launcher.protocol.leases import Lease, Route
from tests.unit.handler.network.test_binding import EMPTY, plans

MAC = "52:54:00:aa:bb:cc"
CARD = {"name": "lan", "network": "lan", "mac": MAC}
LINK, BRIDGE = attachments.link("lan"), attachments.bridge("lan")
SEEN = Observed((*EMPTY.links, Link(LINK, MAC, 1400, ("10.77.0.2/24",))))


def a_vm(*interfaces: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "testvm", "namespace": "ns", "uid": "3f0e"}
    return {"metadata": metadata, "spec": {"domain": {"devices": {"interfaces": list(interfaces)}}}}


def script(seen: Observed, **card: Any) -> list[str]:
    (plan,) = plans(a_vm({**CARD, **card}), seen)
    return plan.script.splitlines()


def test_each_network_has_parts_of_its_own() -> None:
    own, lan, wan = setup.wanted(a_vm({"name": "default"}, CARD, {"name": "wan", "network": "default/wan"}))
    assert [each.network for each in (own, lan, wan)] == ["", "ns/lan", "default/wan"]
    assert [each.type for each in (own, lan, wan)] == ["masquerade", "bridge", "bridge"]
    assert len({part for each in (own, lan, wan) for part in (each.uplink, each.bridge, each.tap)}) == 9
    assert all(len(part) < 16 for part in (lan.uplink, lan.bridge, lan.tap))
    assert (own.uplink, own.bridge, own.tap) == (network.UPLINK, network.BRIDGE, network.TAP)


def test_guest_mac_is_removed_from_the_link_with_its_addresses() -> None:
    lines = script(SEEN)
    assert f"address flush dev {LINK}" in lines
    assert f"link set dev {LINK} address {network.derived_mac(MAC, 'uplink')}" in lines
    assert [line for line in lines if line.startswith("address replace")] == [f"address replace {network.BRIDGED_SERVER}/32 dev {BRIDGE}"]
    moved = Observed((*EMPTY.links, Link(LINK, network.derived_mac(MAC, "uplink"), 1400, ())))
    assert not any(line.startswith(f"link set dev {LINK} address") for line in script(moved))


def test_existing_links_are_not_created_again() -> None:
    assert any(line.startswith("link add") for line in script(SEEN))
    assert any(line.startswith("tuntap add") for line in script(SEEN))
    made = Observed((*SEEN.links, *(Link(each("lan"), "", 1400, ()) for each in (attachments.bridge, attachments.tap))))
    assert not any(line.startswith(("link add", "tuntap add")) for line in script(made))


def test_the_filters_are_there_before_a_frame_can_pass() -> None:
    lines = script(SEEN)
    loaded = lines.index("}", lines.index(f"  exit {binding.NO_FILTER}"))
    for name in (attachments.tap("lan"), LINK):
        of_it = [position for position, line in enumerate(lines) if line.startswith(f"link set dev {name} ")]
        raised = [position for position in of_it if lines[position].endswith(" up") or " master " in lines[position]]
        assert len(raised) == 2
        assert min(raised) > loaded
    tap = attachments.tap("lan")
    assert f"  nft list table netdev {filters.table(tap)} >/dev/null 2>&1 || ip link set dev {tap} down" in lines


def test_bridge_and_tap_are_as_large_as_the_network() -> None:
    assert sum(" mtu 1400" in line for line in script(SEEN)) == 2


def test_a_card_of_several_queues_has_a_tap_of_several() -> None:
    vm = a_vm(CARD)
    vm["spec"]["domain"] |= {"cpu": {"cores": 2}}
    vm["spec"]["domain"]["devices"]["networkInterfaceMultiqueue"] = True
    (plan,) = plans(vm, SEEN)
    assert "multi_queue\n" in plan.script


def test_the_address_of_a_further_network_is_not_the_pods() -> None:
    (plan,) = plans(a_vm(CARD), SEEN)
    assert (plan.interface.is_own, plan.interface.addresses, plan.interface.mac) == (False, ("10.77.0.2",), MAC)


ROUTES = (Route("0.0.0.0/0", "10.77.0.1"), Route("172.16.0.0/12"))
ALIAS = "kubevirt-ipam,10.77.0.2/24,0.0.0.0/0>10.77.0.1,172.16.0.0/12>"


def test_ipam_address_is_given_to_the_guest_and_kept() -> None:
    first = dataclasses.replace(SEEN, further_routes={LINK: ROUTES, "net0": (Route("10.0.0.0/8"),)})
    (plan,) = plans(a_vm(CARD), first)
    assert plan.interface.lease == Lease("10.77.0.2/24", network.BRIDGED_SERVER, ROUTES)
    assert f"link set dev {LINK} alias {ALIAS}" in plan.script.splitlines()
    later = Observed((*EMPTY.links, Link(LINK, "", 1400, ())), aliases={LINK: ALIAS, "eth0": "kubevirt-ipam,10.0.0.1/8"})
    (again,) = plans(a_vm(CARD), later)
    assert again.interface == plan.interface
    assert "udp dport 67 goto guest_dhcp" in again.script
    assert f'oifname "{LINK}" counter name from_pod drop' in again.script


@pytest.mark.parametrize("given", [(), ("fd00::7/64",)])
def test_guest_uses_the_networks_dhcp_when_ipam_gives_none(given: tuple[str, ...]) -> None:
    (plan,) = plans(a_vm(CARD), Observed((*EMPTY.links, Link(LINK, MAC, 1400, given))))
    assert (plan.interface.lease, plan.interface.addresses) == (None, ())
    for absent in ("alias", "guest_dhcp", "table bridge", "address replace", "ip_unprivileged_port_start"):
        assert absent not in plan.script


@pytest.mark.parametrize(
    "alias", ["", "uplink", "kubevirt-ipam", "kubevirt-ipam,x", "kubevirt-ipam,10.0.0.1/33", f"{ALIAS},;reboot>", f"{ALIAS},10.0.0.0/8>x"]
)
def test_an_alias_that_is_not_ours_says_nothing(alias: str) -> None:
    (plan,) = plans(a_vm(CARD), dataclasses.replace(SEEN, aliases={LINK: alias}))
    assert plan.interface.lease == Lease("10.77.0.2/24", network.BRIDGED_SERVER)


def test_more_routes_than_can_be_kept_are_told() -> None:
    routes = tuple(Route(f"10.{each}.0.0/16", "10.77.0.1") for each in range(20))
    with pytest.raises(Unsupported, match="network ns/lan has more routes than"):
        plans(a_vm(CARD), dataclasses.replace(SEEN, further_routes={LINK: routes}))


def test_pod_without_the_network_names_it_and_the_requirement() -> None:
    with pytest.raises(Unsupported, match=rf"interface lan: the pod has no link {LINK} to network ns/lan: .* such as Multus"):
        plans(a_vm(CARD), EMPTY)


@pytest.mark.parametrize("given", ["other/lan", "a b", "lan;reboot", "x" * 64, "-"])
def test_invalid_network_names_are_refused(given: str) -> None:
    with pytest.raises(Unsupported, match=r"interface lan: .* is not a valid name of a network"):
        setup.wanted(a_vm({**CARD, "network": given}))


def test_of_a_card_of_the_node_nothing_is_made() -> None:
    card = {"name": "card", "type": "sriov", "network": "fast", "deviceName": "vendor.example/card", "mac": MAC}
    (plan,) = plans(a_vm(card), EMPTY)
    assert (plan.script, plan.interface) == ("", binding.Interface("card", MAC, "", "", (), is_own=False))


def test_a_further_network_is_not_masqueraded() -> None:
    with pytest.raises(Unsupported, match="type masquerade is not supported"):
        plans(a_vm({**CARD, "type": "masquerade"}), SEEN)
