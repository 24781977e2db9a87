from __future__ import annotations

import hashlib
from typing import Any

import pytest

from apiserver.apis.virt import network
from handler.network import filters, masquerade
from handler.network.masquerade import Observed

EMPTY = Observed(frozenset({"lo", "eth0"}), 1450, ("10.244.1.7",))
FULL = Observed(EMPTY.links | {"tap0", "k6t-eth0"}, 1450, EMPTY.addresses)
MAC = "02:11:22:33:44:55"


def test_what_exists_is_not_made_again() -> None:
    first = masquerade.script(EMPTY, MAC)
    again = masquerade.script(FULL, MAC)

    assert "link add k6t-eth0 address 02:00:00:00:00:01" in first
    assert "tuntap add dev tap0 mode tap user 107 group 107" in first
    assert "link set dev tap0 address 02:00:00:00:00:02" in first
    assert "link add" not in again
    assert "tuntap add" not in again
    assert "mtu 1450" in again


def test_a_tap_of_several_queues_is_made_so() -> None:
    assert "mode tap user 107 group 107 multi_queue\n" in masquerade.script(EMPTY, MAC, queues=2)
    assert "multi_queue" not in masquerade.script(EMPTY, MAC, queues=1)


@pytest.mark.parametrize("observed", [EMPTY, FULL], ids=["new", "known"])
def test_the_rules_are_there_before_the_tap_can_carry_a_frame(observed: Observed) -> None:
    lines = masquerade.script(observed, MAC).splitlines()
    rules = lines.index("nft -f - <<'END' || {")
    loaded = lines.index("}", lines.index(f"  exit {masquerade.NO_FILTER}"))

    assert lines[0] == "set -e"
    for opening in ("link set dev tap0 up", "link set dev tap0 master k6t-eth0", "echo 1 >/proc/sys/net/ipv4/ip_forward"):
        assert [position for position, line in enumerate(lines) if line == opening] > [loaded]
    for making in (line for line in lines if line.startswith(("link add", "tuntap add"))):
        assert lines.index(making) < rules
    assert filters.rules(MAC) in masquerade.script(observed, MAC)


def test_without_rules_the_tap_goes_down_unless_older_ones_are_in_force() -> None:
    lines = [line.strip() for line in masquerade.script(FULL, MAC).splitlines()]
    position = lines.index("nft list table netdev kubevirt >/dev/null 2>&1 || ip link set dev tap0 down")
    assert lines[position + 1] == "exit 65"


def test_the_guest_cannot_move_its_entry_among_the_neighbours() -> None:
    assert f"neighbour replace 10.0.2.2 lladdr {MAC} dev k6t-eth0 nud permanent" in masquerade.script(EMPTY, MAC)


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


def test_a_mac_address_follows_from_the_machine_and_not_from_the_pod() -> None:
    one = masquerade.mac_address("uid-1", "default")

    assert one == masquerade.mac_address("uid-1", "default")
    assert one != masquerade.mac_address("uid-2", "default")
    assert int(one[:2], 16) & 0b11 == 0b10
    assert masquerade.mac_address("uid-1", "default", "52-54-00-AA-BB-CC") == "52:54:00:aa:bb:cc"


@pytest.mark.parametrize(
    "given", [network.BRIDGE_MAC, network.TAP_MAC, "02-00-00-00-00-01", "ff:ff:ff:ff:ff:ff", "x; accept", "00:00:00:00:00:00"]
)
def test_an_address_that_no_guest_can_have_is_refused_here_too(given: str) -> None:
    with pytest.raises(masquerade.Unsupported, match="interface default: MAC address"):
        masquerade.mac_address("uid-1", "default", given)


def test_no_machine_derives_an_address_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the hash of this machine were the gateway's address."""
    plain = masquerade.mac_address("uid-1", "default")
    monkeypatch.setattr(network, "RESERVED_MACS", frozenset({plain}))
    derived = masquerade.mac_address("uid-1", "default")

    again = hashlib.sha256(hashlib.sha256(b"uid-1\0default").digest()).digest()
    assert derived == "02:" + again[:5].hex(":")
    assert derived == masquerade.mac_address("uid-1", "default")
