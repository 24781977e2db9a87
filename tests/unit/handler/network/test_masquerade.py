from __future__ import annotations

import dataclasses

import pytest

from handler.network import binding, filters, masquerade
from handler.network.binding import Link, Observed, Port, Unsupported, Wanted
from launcher.protocol.leases import Lease6

UPLINK = Link("eth0", "0a:58:0a:f4:01:07", 1450, ("10.244.1.7/24",))
EMPTY = Observed((Link("lo", "00:00:00:00:00:00", 65536, ()), UPLINK))
FULL = Observed((*EMPTY.links, Link("tap0", "02:00:00:00:00:02", 1450, ()), Link("k6t-eth0", "02:00:00:00:00:01", 1450, ("10.0.2.1/24",))))
MAC = "02:11:22:33:44:55"
WANTED = Wanted("default", "masquerade", MAC, "virtio")


def script(observed: Observed, queues: int = 1) -> str:
    return masquerade.plan(Wanted("default", "masquerade", MAC, "virtio", queues), observed).script


def test_existing_links_are_not_created_again() -> None:
    first = script(EMPTY)
    again = script(FULL)

    assert "link add k6t-eth0 address 02:00:00:00:00:01" in first
    assert "tuntap add dev tap0 mode tap user 107 group 107" in first
    assert "link set dev tap0 address 02:00:00:00:00:02" in first
    assert "link add" not in again
    assert "tuntap add" not in again
    assert "mtu 1450" in again


def test_a_tap_of_several_queues_is_made_so() -> None:
    assert "mode tap user 107 group 107 multi_queue\n" in script(EMPTY, queues=2)
    assert "multi_queue" not in script(EMPTY, queues=1)


@pytest.mark.parametrize("observed", [EMPTY, FULL], ids=["new", "known"])
def test_the_rules_are_there_before_the_tap_can_carry_a_frame(observed: Observed) -> None:
    lines = script(observed).splitlines()
    rules = lines.index("nft -f - <<'END' || {")
    loaded = lines.index("}", lines.index(f"  exit {binding.NO_FILTER}"))

    assert lines[0] == "set -e"
    for opening in ("link set dev tap0 up", "link set dev tap0 master k6t-eth0", "echo 1 >/proc/sys/net/ipv4/ip_forward"):
        assert [position for position, line in enumerate(lines) if line == opening] > [loaded]
    for making in (line for line in lines if line.startswith(("link add", "tuntap add"))):
        assert lines.index(making) < rules
    assert filters.rules(MAC) in script(observed)


def test_tap_goes_down_without_rules_unless_older_ones_apply() -> None:
    lines = [line.strip() for line in script(FULL).splitlines()]
    position = lines.index("nft list table netdev kubevirt >/dev/null 2>&1 || ip link set dev tap0 down")
    assert lines[position + 1] == "exit 65"


def test_the_guest_cannot_move_its_entry_among_the_neighbours() -> None:
    assert f"neighbour replace 10.0.2.2 lladdr {MAC} dev k6t-eth0 nud permanent" in script(EMPTY)


def test_a_pod_without_an_address_is_not_supported() -> None:
    with pytest.raises(Unsupported, match="no interface eth0"):
        masquerade.plan(WANTED, Observed(EMPTY.links[:1]))
    with pytest.raises(Unsupported, match="neither an IPv4 nor an IPv6"):
        masquerade.plan(WANTED, Observed((Link("eth0", UPLINK.mac, 1500, ()),)))


DUAL = Observed((dataclasses.replace(UPLINK, addresses=("10.244.1.7/24", "fd00:10:244::7/64")),))
SIX = Observed((dataclasses.replace(UPLINK, addresses=("fd00:10:244::7/64",)),))


def test_a_pod_without_ipv6_has_a_guest_without() -> None:
    plan = masquerade.plan(WANTED, EMPTY)
    assert (plan.interface.lease6, plan.interface.ipv4) == (None, True)
    assert "for link in k6t-eth0; do\n  [ ! -d /proc/sys/net/ipv6 ] || echo 1" in plan.script
    for word in ("ip6", "tap-ipv6", "fd10", "forwarding"):
        assert word not in plan.script


@pytest.mark.parametrize("observed", [DUAL, SIX], ids=["both", "alone"])
def test_where_the_pod_has_ipv6_the_guest_has_a_router_of_ours(observed: Observed) -> None:
    plan = masquerade.plan(WANTED, observed)
    assert plan.interface.lease6 == Lease6("fd10:0:2::2/128", "fe80::1", "02:00:00:00:00:01", ("fe80::1", "fd10:0:2::1"))
    lines = plan.script.splitlines()
    assert filters.rules(MAC, ipv6=True) in plan.script
    filtered = lines.index("}", lines.index(f"  exit {binding.NO_FILTER}"))
    for once in (
        "address replace fd10:0:2::1/128 dev k6t-eth0 nodad",
        f"neighbour replace fd10:0:2::2 lladdr {MAC} dev k6t-eth0 nud permanent",
        "link set dev tap-ipv6 up",
        "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
    ):
        assert [position for position, line in enumerate(lines) if line == once] > [filtered]
    assert lines.index("tuntap add dev tap-ipv6 mode tap user 107 group 107") < filtered
    assert not [line for line in lines if "tap-ipv6 master" in line]
    made = Observed((*observed.links, Link("tap-ipv6", "", 1450, ())))
    assert "add dev tap-ipv6" not in masquerade.plan(WANTED, made).script


def test_addresses_are_in_the_pods_order() -> None:
    assert masquerade.plan(WANTED, DUAL).interface.addresses == ("10.244.1.7", "fd00:10:244::7")
    six_first = dataclasses.replace(WANTED, ipv6_first=True)
    assert masquerade.plan(six_first, DUAL).interface.addresses == ("fd00:10:244::7", "10.244.1.7")
    alone = masquerade.plan(WANTED, SIX).interface
    assert (alone.addresses, alone.ipv4) == (("fd00:10:244::7",), False)


def test_others_reach_the_guest_by_the_address_of_the_pod() -> None:
    interface = masquerade.plan(WANTED, EMPTY).interface
    assert (interface.name, interface.mac, interface.tap, interface.addresses) == ("default", MAC, "tap0", ("10.244.1.7",))


@pytest.mark.parametrize("port", [0, -1, 65536, 10**9])
def test_invalid_ports_never_reach_nft(port: int) -> None:
    with pytest.raises(Unsupported, match=f"interface default: {port} is not a port"):
        masquerade.plan(Wanted("default", "masquerade", MAC, "virtio", ports=(Port("TCP", port),)), EMPTY)


def test_the_ports_that_are_the_guests_are_told_to_nft() -> None:
    ports = (Port("TCP", 22), Port("UDP", 65535))
    assert filters.rules(MAC, ports) in masquerade.plan(Wanted("default", "masquerade", MAC, "virtio", ports=ports), EMPTY).script
