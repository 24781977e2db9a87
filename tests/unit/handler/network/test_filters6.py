from __future__ import annotations

from handler.network import filters
from handler.network.binding import Port

MAC = "52:54:00:c0:ff:ee"


def chain(name: str) -> list[str]:
    text = filters.rules(MAC, ipv6=True)
    start = text.index(f"chain {name} {{")
    return [line.strip() for line in text[start : text.index("\n  }", start)].splitlines()[1:]]


def test_every_drop_is_counted_and_every_counter_is_used() -> None:
    lines = [line.strip() for line in filters.rules(MAC, (Port("TCP", 22),), ipv6=True).splitlines()]
    assert all("counter name" in line for line in lines if line.endswith(" drop"))
    declared = {line.split()[1] for line in lines if line.startswith("counter ") and line.endswith("{}")}
    assert declared == {line.split("counter name ")[1].split()[0] for line in lines if "counter name " in line}


def test_frames_are_judged_after_their_mac_address() -> None:
    found = chain("guest")
    assert found.index("ether type ip6 goto guest_ipv6") > found.index(f"ether saddr != {MAC} counter name foreign_mac drop")
    assert found[-1] == "counter name other_protocol drop"


def test_only_plain_ipv6_packets_of_the_guests_address_pass() -> None:
    found = chain("guest_ipv6")
    (accepting,) = (line for line in found if line.endswith("accept"))
    before = found[: found.index(accepting)]
    assert accepting == "accept"
    assert "ip6 saddr != fd10:0:2::2 counter name foreign_ipv6 drop" in before
    assert "ip6 nexthdr { 0, 43, 51, 60, 135, 139, 140, 253, 254 } counter name extension_header drop" in before
    assert "ip6 nexthdr ipv6-frag frag nexthdr != { tcp, udp, sctp } counter name extension_header drop" in before
    assert [line for line in before if line.startswith("ip6 nexthdr icmpv6 icmpv6 type != {")]


def test_ipv6_control_messages_go_to_virt_launcher_rate_limited() -> None:
    assert chain("guest_control") == [
        'limit rate 20/second burst 40 packets fwd to "tap-ipv6"',
        "counter name too_much_control drop",
    ]
    assert chain("launcher") == [
        'type filter hook ingress device "tap-ipv6" priority -500; policy drop;',
        'ether type ip6 fwd to "tap0"',
        "counter name of_launcher drop",
    ]


def test_all_tables_are_replaced_in_one_transaction() -> None:
    lines = filters.rules(MAC, ipv6=True).splitlines()
    for family in ("netdev", "ip", "ip6"):
        position = lines.index(f"table {family} kubevirt {{}}")
        assert lines[position + 1 : position + 3] == [f"delete table {family} kubevirt", f"table {family} kubevirt {{"]


def test_the_ports_are_the_same_as_those_of_ipv4() -> None:
    text = filters.rules(MAC, (Port("TCP", 80), Port("UDP", 53), Port("TCP", 22)), ipv6=True)
    assert [line.strip() for line in text.splitlines() if "dnat to fd10" in line] == [
        'iifname "eth0" ip6 daddr != { fe80::/10, ff00::/8 } tcp dport { 22, 80 } dnat to fd10:0:2::2',
        'iifname "eth0" ip6 daddr != { fe80::/10, ff00::/8 } udp dport { 53 } dnat to fd10:0:2::2',
        "ip6 daddr ::1 tcp dport { 22, 80 } dnat to fd10:0:2::2",
    ]
    assert text.count('iifname "eth0" counter name to_other_port drop') == 2


def test_without_ipv6_there_is_no_word_of_it() -> None:
    assert "ip6" not in filters.rules(MAC)
