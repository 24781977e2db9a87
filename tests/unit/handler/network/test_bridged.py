from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from apiserver.apis.virt import network
from handler.network import binding, bridged, filters, setup
from handler.network.binding import Link, Observed, Unsupported, Wanted
from launcher.protocol.messages import Lease, Route

PODS_MAC = "0a:58:0a:f4:01:07"
UPLINK = Link("eth0", PODS_MAC, 1450, ("10.244.1.7/24", "fd00::7/64"))
ROUTES = (Route("0.0.0.0/0", "10.244.1.1"), Route("169.254.1.1/32"))
NEW = Observed((UPLINK,), ROUTES)
ALIAS = f"kubevirt,{PODS_MAC},10.244.1.7/24,0.0.0.0/0>10.244.1.1,169.254.1.1/32>"
AGAIN = Observed(
    (Link("eth0", network.derived_mac(PODS_MAC, "uplink"), 1450, ()), Link("tap0", "", 1450, ()), Link("k6t-eth0", "", 1450, ())),
    (),
    ALIAS,
)
WANTED = Wanted("lan", "bridge", "", "virtio")


def lines(observed: Observed, wanted: Wanted = WANTED) -> list[str]:
    return bridged.plan(wanted, observed).script.splitlines()


def test_the_guest_has_the_addresses_of_the_pod() -> None:
    found = bridged.plan(WANTED, NEW).interface
    assert (found.mac, found.addresses) == (PODS_MAC, ("10.244.1.7",))
    assert found.lease == Lease("10.244.1.7/24", network.BRIDGED_SERVER, ROUTES)


def test_what_the_pod_had_is_found_again_when_the_guest_has_it() -> None:
    assert bridged.plan(WANTED, AGAIN).interface == bridged.plan(WANTED, NEW).interface
    assert f"link set dev eth0 alias {ALIAS}" in lines(NEW)
    assert f"link set dev eth0 alias {ALIAS}" in lines(AGAIN)
    assert not [each for each in lines(AGAIN) if each.startswith(("link add", "tuntap", f"link set dev eth0 address {PODS_MAC}"))]


def test_it_is_kept_before_it_is_taken_and_the_filter_is_there_before_the_guest_is_joined() -> None:
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


def test_the_rules_keep_the_guest_to_its_addresses_and_its_questions_in_the_pod() -> None:
    text = filters.bridged(PODS_MAC, "10.244.1.7", "02:00:00:00:00:99")
    assert f"arp saddr ether {PODS_MAC} arp saddr ip {{ 10.244.1.7, 0.0.0.0 }} accept" in text
    assert "ip saddr != 10.244.1.7 counter name foreign_ipv4 drop" in text
    assert "limit rate 20/second burst 40 packets ether daddr set 02:00:00:00:00:99 accept" in text
    (to_pod,) = (each for each in text.splitlines() if 'device "k6t-eth0"' in each)
    assert to_pod.endswith("policy drop;")
    assert all("counter name" in each for each in text.splitlines() if each.endswith(" drop"))


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        (Observed(()), "no interface eth0"),
        (Observed((dataclasses.replace(UPLINK, addresses=("fd00::7/64",)),)), "no IPv4"),
        (Observed((UPLINK,), tuple(Route(f"10.{each}.0.0/16", "10.244.1.1") for each in range(20))), "too many routes"),
    ],
)
def test_a_pod_whose_place_nobody_can_take_is_told(observed: Observed, said: str) -> None:
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
    ],
)
def test_an_alias_that_is_not_ours_says_nothing(alias: str) -> None:
    assert bridged.plan(WANTED, dataclasses.replace(NEW, alias=alias)).interface.addresses == ("10.244.1.7",)


def test_what_ip_tells_of_routes_and_aliases_is_read() -> None:
    routes: list[dict[str, Any]] = [
        {"dst": "default", "gateway": "10.244.1.1", "dev": "eth0"},
        {"dst": "169.254.1.1", "dev": "eth0", "scope": "link"},
        {"dst": "10.244.1.0/24", "dev": "eth0", "protocol": "kernel", "scope": "link"},
        {"dst": "10.9.0.0/16", "gateway": "10.9.0.1", "dev": "net1"},
        {"type": "blackhole", "dst": "10.8.0.0/16", "dev": "eth0"},
    ]
    found = binding.observe([], routes, [{"ifname": "lo"}, {"ifname": "eth0", "ifalias": "a"}])
    assert found == Observed((), ROUTES, "a")


def test_only_on_the_pods_own_network_the_guest_has_the_mac_address_of_the_pod() -> None:
    interface = {"name": "lan", "type": "bridge"}
    vm: dict[str, Any] = {"metadata": {"uid": "u", "namespace": "n"}, "spec": {"domain": {"devices": {"interfaces": [interface]}}}}
    assert [each.mac for each in setup.wanted(vm)] == [""]
    interface["network"] = "lan"
    assert [each.mac for each in setup.wanted(vm)] == [network.derived_mac("u", "lan")]
