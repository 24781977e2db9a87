from __future__ import annotations

import pytest

from handler.network import filters
from handler.network.binding import Port

MAC = "52:54:00:c0:ff:ee"


def chain(name: str) -> list[str]:
    text = filters.rules(MAC)
    start = text.index(f"chain {name} {{")
    return [line.strip() for line in text[start : text.index("\n  }", start)].splitlines()[1:]]


def test_guest_frames_are_filtered_at_the_tap_by_default_drop() -> None:
    first, *rest = chain("guest")
    assert first == 'type filter hook ingress device "tap0" priority -500; policy drop;'
    assert rest[0] == f"ether saddr != {MAC} counter name foreign_mac drop"
    assert rest[-3:] == ["ether type arp goto guest_arp", "ether type ip goto guest_ipv4", "counter name other_protocol drop"]


def test_every_drop_is_counted_and_every_counter_is_used() -> None:
    lines = [line.strip() for line in filters.rules(MAC, (Port("TCP", 22),)).splitlines()]
    assert all("counter name" in line for line in lines if line.endswith(" drop"))
    declared = {line.split()[1] for line in lines if line.startswith("counter ") and line.endswith("{}")}
    assert declared == {line.split("counter name ")[1].split()[0] for line in lines if "counter name " in line}


def test_a_guest_sends_only_from_its_addresses() -> None:
    assert chain("guest_arp")[0].endswith("arp operation { request, reply } goto guest_sender")
    assert chain("guest_sender")[0] == f"arp saddr ether {MAC} arp saddr ip {{ 10.0.2.2, 0.0.0.0 }} accept"
    accepting = [line for line in chain("guest_ipv4") if line.endswith(("accept", "goto guest_dhcp"))]
    refusal = chain("guest_ipv4").index("ip saddr != 10.0.2.2 counter name foreign_ipv4 drop")
    assert accepting[0] == "ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 goto guest_dhcp"
    assert chain("guest_ipv4").index(accepting[0]) < refusal < chain("guest_ipv4").index(accepting[1])


def test_both_tables_are_replaced_in_one_transaction() -> None:
    lines = filters.rules(MAC).splitlines()
    for family in ("netdev", "ip"):
        position = lines.index(f"table {family} kubevirt {{}}")
        assert lines[position + 1 : position + 3] == [f"delete table {family} kubevirt", f"table {family} kubevirt {{"]


@pytest.mark.parametrize(
    ("said", "lacking"),
    [
        ("Error: Could not process rule: Operation not supported", True),
        ("Error: Could not process rule: No such file or directory", True),
        ("netlink: Error: Address family not supported by protocol", True),
        ("Error: Could not process rule: Device or resource busy", False),
        ("Error: Could not process rule: Cannot allocate memory", False),
        ("", False),
    ],
)
def test_missing_kernel_support_is_recognized(said: str, lacking: bool) -> None:
    assert filters.is_not_in_this_kernel(said) == lacking


def test_without_a_port_list_all_pod_ports_reach_the_guest() -> None:
    text = filters.rules(MAC)
    assert '    iifname "eth0" dnat to 10.0.2.2\n' in text
    assert "    ip daddr 127.0.0.1 meta l4proto tcp dnat to 10.0.2.2\n" in text
    assert "hook forward" not in text


def test_with_a_port_list_no_other_port_reaches_the_guest() -> None:
    text = filters.rules(MAC, (Port("TCP", 80), Port("UDP", 53), Port("TCP", 22), Port("TCP", 80)))
    assert [line.strip() for line in text.splitlines() if "dnat to" in line] == [
        'iifname "eth0" tcp dport { 22, 80 } dnat to 10.0.2.2',
        'iifname "eth0" udp dport { 53 } dnat to 10.0.2.2',
        "ip daddr 127.0.0.1 tcp dport { 22, 80 } dnat to 10.0.2.2",
    ]
    forward = text[text.index("chain forward {") :].splitlines()[1:5]
    assert [line.strip() for line in forward] == [
        "type filter hook forward priority 0; policy accept;",
        'iifname "eth0" ct state established,related accept',
        'iifname "eth0" ct status dnat accept',
        'iifname "eth0" counter name to_other_port drop',
    ]


def test_an_empty_list_lets_nothing_in() -> None:
    text = filters.rules(MAC, ())
    assert "dnat to" not in text
    assert "to_other_port drop" in text
