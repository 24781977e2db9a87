from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from apiserver.apis.virt.places import network
from handler.network import binding, bridged, filters, setup
from handler.network.binding import Link, Observed, Unsupported, Wanted
from launcher.protocol.leases import Lease, Lease6, Route

PODS_MAC = "0a:58:0a:f4:01:07"
UPLINK = Link("eth0", PODS_MAC, 1450, ("10.244.1.7/24",))
ROUTES = (Route("0.0.0.0/0", "10.244.1.1"), Route("169.254.1.1/32"))
NEW = Observed((UPLINK,), ROUTES)
ALIAS = f"kubevirt,{PODS_MAC},10.244.1.7/24,0.0.0.0/0>10.244.1.1,169.254.1.1/32>"
AGAIN = Observed(
    (Link("eth0", network.derived_mac(PODS_MAC, "uplink"), 1450, ()), Link("tap0", "", 1450, ()), Link("k6t-eth0", "", 1450, ())),
    (),
    ALIAS,
)
SIX = Observed((dataclasses.replace(UPLINK, addresses=("fd00::7/64",)),), gateway6="fd00::1", gateway6_mac="0a:58:0a:f4:01:01")
WANTED = Wanted("lan", "bridge", "", "virtio")


def lines(observed: Observed, wanted: Wanted = WANTED) -> list[str]:
    return bridged.plan(wanted, observed).script.splitlines()


def test_the_guest_has_the_addresses_of_the_pod() -> None:
    found = bridged.plan(WANTED, NEW).interface
    assert (found.mac, found.addresses) == (PODS_MAC, ("10.244.1.7",))
    assert found.lease == Lease("10.244.1.7/24", network.BRIDGED_SERVER, ROUTES)


def test_pod_address_is_found_again_after_the_guest_took_it() -> None:
    assert bridged.plan(WANTED, AGAIN).interface == bridged.plan(WANTED, NEW).interface
    assert f"link set dev eth0 alias {ALIAS}" in lines(NEW)
    assert f"link set dev eth0 alias {ALIAS}" in lines(AGAIN)
    assert not [each for each in lines(AGAIN) if each.startswith(("link add", "tuntap", f"link set dev eth0 address {PODS_MAC}"))]


def test_address_is_saved_before_removal_and_filtered_first() -> None:
    found = lines(NEW)
    kept, flushed = found.index(f"link set dev eth0 alias {ALIAS}"), found.index("address flush dev eth0")
    loaded = found.index("}", found.index(f"  exit {binding.NO_FILTER}"))
    assert kept < loaded < flushed
    for opening in ("link set dev tap0 master k6t-eth0", "link set dev tap0 up", "link set dev eth0 master k6t-eth0"):
        assert [position for position, each in enumerate(found) if each == opening] > [loaded]
    assert found.index("address flush dev eth0") < found.index("link set dev eth0 master k6t-eth0")


def test_no_link_of_the_pod_keeps_the_mac_address_of_the_guest() -> None:
    given = [each.split()[-1] for each in lines(NEW) if each.startswith("link") and " address " in each and "type bridge" not in each]
    assert len(set(given)) == 3
    assert PODS_MAC not in given


def test_a_machine_may_name_its_mac_address() -> None:
    plan = bridged.plan(dataclasses.replace(WANTED, mac="52:54:00:c0:ff:ee"), NEW)
    assert plan.interface.mac == "52:54:00:c0:ff:ee"
    assert "ether saddr != 52:54:00:c0:ff:ee counter name foreign_mac drop" in plan.script
    assert f"alias kubevirt,{PODS_MAC}," in plan.script


def test_rules_limit_the_guest_to_its_addresses_and_pod_queries() -> None:
    text = filters.bridged(WANTED, PODS_MAC, "10.244.1.7")
    assert f"arp saddr ether {PODS_MAC} arp saddr ip {{ 10.244.1.7, 0.0.0.0 }} accept" in text
    assert "ip saddr != 10.244.1.7 counter name foreign_ipv4 drop" in text
    assert f"limit rate 20/second burst 40 packets ether daddr set {network.derived_mac(PODS_MAC, 'bridge')} accept" in text
    (to_pod,) = (each for each in text.splitlines() if 'device "k6t-eth0"' in each)
    assert to_pod.endswith("policy drop;")
    assert all("counter name" in each for each in text.splitlines() if each.endswith(" drop"))


OURS = network.BRIDGED_ROUTER6


@pytest.mark.parametrize(
    ("gateway", "mac", "told", "kept"),
    [
        (None, "", Lease6("fd00::7/64", OURS, is_default=False), "6>fd00::7/64>>"),
        ("", "", Lease6("fd00::7/64", OURS, is_default=False), "6>fd00::7/64>>"),
        ("fe80::1", "", Lease6("fd00::7/64", "fe80::1"), "6>fd00::7/64>fe80::1>"),
        ("fd00::1", PODS_MAC, Lease6("fd00::7/64", OURS, PODS_MAC, (OURS,)), f"6>fd00::7/64>{OURS}>{PODS_MAC}"),
    ],
)
@pytest.mark.parametrize("has_ipv4", [True, False])
def test_the_guest_has_the_pods_ipv6_address_and_its_way_out(
    gateway: str | None, mac: str, told: Lease6, kept: str, *, has_ipv4: bool
) -> None:
    addresses = ("10.244.1.7/24", "fd00::7/64") if has_ipv4 else ("fd00::7/64",)
    new = dataclasses.replace(NEW, links=(dataclasses.replace(UPLINK, addresses=addresses),), gateway6=gateway, gateway6_mac=mac)
    alias = f"{ALIAS},{kept}" if has_ipv4 else f"kubevirt,{PODS_MAC},,{kept}"
    for observed in (new, dataclasses.replace(AGAIN, alias=alias)):
        found = bridged.plan(WANTED, observed)
        assert (found.interface.lease6, found.interface.ipv4) == (told, has_ipv4)
        assert found.interface.addresses == tuple(each.partition("/")[0] for each in addresses)
        assert f"link set dev eth0 alias {alias}" in found.script.splitlines()
        assert ("ether type ip goto" in found.script, "route replace 10.244.1.7" in found.script) == (has_ipv4, has_ipv4)
        assert "for link in k6t-eth0 tap0 eth0 tap-ipv6; do" in found.script
        assert "goto guest_control" in found.script
    assert bridged.unknown_gateway(new) == ("fd00::1" if gateway == "fd00::1" else "")
    assert bridged.unknown_gateway(dataclasses.replace(new, alias=alias)) == ""


def test_addresses_are_in_the_pods_order() -> None:
    observed = dataclasses.replace(SIX, links=(dataclasses.replace(UPLINK, addresses=("10.244.1.7/24", "fd00::7/64")),))
    found = bridged.plan(dataclasses.replace(WANTED, ipv6_first=True), observed).interface
    assert found.addresses == ("fd00::7", "10.244.1.7")


def test_the_guest_says_of_its_own_addresses_alone_who_has_them() -> None:
    text = filters.bridged(WANTED, PODS_MAC, "10.244.1.7", "fd00::7", OURS)
    link = "fe80::858:aff:fef4:107"
    claims = text[text.index("chain guest_claims {") :].splitlines()[1:4]
    assert [each.strip() for each in claims] == [
        "@th,64,128 0xfd000000000000000000000000000007 goto guest_own",
        "@th,64,128 0xfe8000000000000008580afffef40107 goto guest_own",
        "counter name foreign_claim drop",
    ]
    assert f"ip6 saddr != {{ fd00::7, {link} }} counter name foreign_claim drop" in text
    assert "ip6 saddr != fd00::7 counter name foreign_ipv6 drop" in text
    assert "@th,64,128 0xfe8000000000000000000000a9fe4b01 goto guest_control" in text
    assert "icmpv6 type nd-router-advert counter name router_outside drop" in text
    assert all("counter name" in each for each in text.splitlines() if each.endswith(" drop"))


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        (Observed(()), "no interface eth0"),
        (Observed((dataclasses.replace(UPLINK, addresses=()),)), "neither an IPv4 nor an IPv6"),
        (dataclasses.replace(SIX, gateway6_mac=""), "gateway fd00::1 has no known MAC address"),
        (Observed((UPLINK,), tuple(Route(f"10.{each}.0.0/16", "10.244.1.1") for each in range(20))), "more routes than"),
    ],
)
def test_pod_interface_that_cannot_be_bridged_is_reported(observed: Observed, said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        bridged.plan(WANTED, observed)


@pytest.mark.parametrize(
    "alias",
    [
        "",
        "uplink-of-node1",
        "kubevirt",
        f"kubevirt,{PODS_MAC}",
        "kubevirt,x,10.0.0.1/8",
        f"kubevirt,{PODS_MAC},10.0.0.1/33",
        f"kubevirt,{PODS_MAC},10.0.0.1/8,10.0.0.0/8>x",
        f"kubevirt,{PODS_MAC},10.0.0.1/8,;reboot>",
        f"kubevirt,{PODS_MAC},",
        f"kubevirt,{PODS_MAC},,6>fd00::7/129>>",
        f"kubevirt,{PODS_MAC},,6>fd00::7/64>",
        f"kubevirt,{PODS_MAC},,6>fd00::7/64>fe80::x>",
        f"kubevirt,{PODS_MAC},,6>fd00::7/64>fe80::1>;reboot",
    ],
)
def test_an_alias_that_is_not_ours_says_nothing(alias: str) -> None:
    assert bridged.plan(WANTED, dataclasses.replace(NEW, alias=alias)).interface.addresses == ("10.244.1.7",)


def test_routes_and_aliases_are_parsed() -> None:
    routes: list[dict[str, Any]] = [
        {"dst": "default", "gateway": "10.244.1.1", "dev": "eth0"},
        {"dst": "169.254.1.1", "dev": "eth0", "scope": "link"},
        {"dst": "10.244.1.0/24", "dev": "eth0", "protocol": "kernel", "scope": "link"},
        {"dst": "10.9.0.0/16", "gateway": "10.9.0.1", "dev": "net1"},
        {"type": "blackhole", "dst": "10.8.0.0/16", "dev": "eth0"},
    ]
    found = binding.observe([], routes, [{"ifname": "lo"}, {"ifname": "eth0", "ifalias": "a"}])
    further = {"net1": (Route("10.9.0.0/16", "10.9.0.1"),)}
    assert found == Observed((), ROUTES, "a", further, {"eth0": "a"})


@pytest.mark.parametrize(
    ("told", "gateway"),
    [
        ([], None),
        ([{"dst": "fd00::/64", "dev": "eth0", "protocol": "kernel"}], None),
        ([{"dst": "default", "gateway": "fe80::1", "dev": "net1"}, {"type": "unreachable", "dst": "default", "dev": "eth0"}], None),
        ([{"dst": "default", "gateway": "fe80::1", "dev": "eth0"}], "fe80::1"),
        ([{"dst": "default", "dev": "eth0"}], ""),
    ],
)
def test_ipv6_default_gateway_is_parsed(told: list[dict[str, Any]], gateway: str | None) -> None:
    assert binding.observe([], (), (), told).gateway6 == gateway


def test_bridge_guest_has_the_pods_mac_only_on_the_pod_network() -> None:
    interface = {"name": "lan", "type": "bridge"}
    vm: dict[str, Any] = {"metadata": {"uid": "u", "namespace": "n"}, "spec": {"domain": {"devices": {"interfaces": [interface]}}}}
    assert [each.mac for each in setup.wanted(vm)] == [""]
    interface["network"] = "lan"
    assert [each.mac for each in setup.wanted(vm)] == [network.derived_mac("u", "lan")]
