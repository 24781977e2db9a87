from __future__ import annotations

from typing import Any

import pytest

from handler.network import masquerade
from handler.network.masquerade import Observed, Resolver

EMPTY = Observed(frozenset({"lo", "eth0"}), 1450, ("10.244.1.7",))
MAC = "02:11:22:33:44:55"


def test_what_exists_is_not_made_again() -> None:
    first = masquerade.link_commands(EMPTY)
    again = masquerade.link_commands(Observed(EMPTY.links | {"tap0", "k6t-eth0"}, 1450, EMPTY.addresses))

    assert "link add k6t-eth0" in first
    assert "tuntap add dev tap0 mode tap user 107 group 107" in first
    assert "add " not in again.replace("address", "")
    assert "mtu 1450" in again


def test_the_bridge_has_the_same_address_in_every_pod() -> None:
    assert "k6t-eth0 address 02:00:00:00:00:01" in masquerade.link_commands(EMPTY)


def test_a_pod_without_an_ipv4_uplink_is_not_supported() -> None:
    with pytest.raises(masquerade.Unsupported, match="no interface eth0"):
        masquerade.observe([{"ifname": "lo"}])
    with pytest.raises(masquerade.Unsupported, match="no IPv4"):
        masquerade.observe([{"ifname": "eth0", "mtu": 1500, "addr_info": [{"family": "inet6", "local": "fd00::1", "scope": "global"}]}])


def test_the_uplink_gives_mtu_and_addresses() -> None:
    links: list[dict[str, Any]] = [
        {"ifname": "eth0", "mtu": 1450, "addr_info": [{"family": "inet", "local": "10.0.0.9", "scope": "global"}]},
        {"ifname": "lo"},
    ]

    assert masquerade.observe(links) == Observed(frozenset({"eth0", "lo"}), 1450, ("10.0.0.9",))


def test_resolv_conf_is_handed_on_as_far_as_a_guest_can_use_it() -> None:
    text = """
# made by the kubelet
nameserver 127.0.0.53
nameserver 10.96.0.10
nameserver fd00::10
nameserver what?
search default.svc.cluster.local svc.cluster.local. --dhcp-script=/bin/sh
options ndots:5
"""
    assert masquerade.resolver(text) == Resolver(("10.96.0.10",), ("default.svc.cluster.local", "svc.cluster.local"))


def test_a_mac_address_follows_from_the_machine_and_not_from_the_pod() -> None:
    one = masquerade.mac_address("uid-1", "default")

    assert one == masquerade.mac_address("uid-1", "default")
    assert one != masquerade.mac_address("uid-2", "default")
    assert int(one[:2], 16) & 0b11 == 0b10
    assert masquerade.mac_address("uid-1", "default", "52-54-00-AA-BB-CC") == "52:54:00:aa:bb:cc"


def test_nothing_that_a_pod_says_becomes_an_option_of_dnsmasq() -> None:
    with pytest.raises(ValueError, match="no MAC"):
        masquerade.dnsmasq("02:00,set:x", hostname="vm", dns=Resolver(), mtu=1500, pid_file="/p")
    command = masquerade.dnsmasq(MAC, hostname="a,b --x", dns=Resolver(), mtu=1500, pid_file="/p")
    assert f"--dhcp-host={MAC},10.0.2.2,infinite" in command


def test_the_guest_learns_router_mtu_names_and_its_own() -> None:
    command = masquerade.dnsmasq(MAC, hostname="testvm", dns=Resolver(("10.96.0.10",), ("svc.local",)), mtu=1450, pid_file="/p")

    assert f"--dhcp-host={MAC},10.0.2.2,testvm,infinite" in command
    for option in ("option:router,10.0.2.1", "option:mtu,1450", "option:dns-server,10.96.0.10", "option:domain-search,svc.local"):
        assert f"--dhcp-option={option}" in command
