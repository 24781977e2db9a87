"""nft rules for IPv6 in a pod's network: the filter at the guest's tap, and address translation. Pure.

A guest behind the pod's address cannot send neighbour or router discovery into the pod's bridge. These and DHCPv6 go to virt-launcher's
separate tap, with a rate limit, and answers from there only to the guest's tap. So the pod's kernel never learns an address from the guest.
A guest in the pod's place has neighbours, and may announce its own two addresses.

Packets with extension headers, which could hide what follows (RFC 6980), are dropped, except for fragments of TCP, UDP and SCTP.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from apiserver.apis.virt.places import network
from handler.network.binding import Port
from handler.network.portmatches import forwarding, kept_from_guest, matching, translating

CONTROL_PER_SECOND: Final = 20
"""Packets of a guest that virt-launcher reads: solicitations and DHCPv6."""
JUDGED: Final = "    ether type ip6 goto guest_ipv6\n"
_EXTENSION_HEADERS: Final = "{ 0, 43, 51, 60, 135, 139, 140, 253, 254 }"
"""IANA's, without fragments and ESP; nothing inspects the content of ESP."""
_FRAGMENTED: Final = "{ tcp, udp, sctp }"
_FRAGMENTED_OUTSIDE: Final = "{ tcp, udp, sctp, esp }"
_LISTENERS: Final = "{ mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report }"
_PLAIN_ICMP: Final = "{ destination-unreachable, packet-too-big, time-exceeded, parameter-problem, echo-request, echo-reply }"
_NOT_THE_PODS: Final = "{ fe80::/10, ff00::/8 }"


def guest() -> str:
    """Return the chains that filter IPv6 frames of a guest with a private address, and those of virt-launcher."""
    return f"""{_COUNTERS}{_CONTROL}  chain guest_ipv6 {{
    ip6 nexthdr icmpv6 icmpv6 type {{ nd-router-solicit, nd-neighbor-solicit }} goto guest_control
    ip6 nexthdr udp ip6 daddr {network.DHCP6_SERVERS} udp dport {network.DHCP6_SERVER_PORT} goto guest_control
    ip6 nexthdr hopopt icmpv6 type {_LISTENERS} counter name listener_report drop
{_plain(network.GUEST6)}  }}
"""


def bridged_guest(mac: str, address: str, router: str = "") -> str:
    """Return the chains for a guest with the pod's address on the pod's own network; virt-launcher answers for ``router``, unless empty.

    The guest may use and announce only this and the link-local address that follows from its MAC address; with another one it may only talk
    to virt-launcher. Its own solicitations that come back are dropped, or it would give up its address.
    """
    link = network.link_local(mac)
    asked = f"    ip6 nexthdr icmpv6 icmpv6 type nd-neighbor-solicit {_TARGET} {_number(router)} goto guest_control\n" if router else ""
    about_itself = "".join(f"    {_TARGET} {_number(each)} goto guest_own\n" for each in (address, link))
    return f"""{_COUNTERS}  counter foreign_claim {{}}
  counter router_outside {{}}
  counter server_outside6 {{}}
  counter sent_back {{}}
{_CONTROL}  chain guest_ipv6 {{
    ip6 nexthdr icmpv6 icmpv6 type nd-router-solicit goto guest_control
    ip6 nexthdr udp ip6 daddr {network.DHCP6_SERVERS} udp dport {network.DHCP6_SERVER_PORT} goto guest_control
{asked}    ip6 nexthdr icmpv6 icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} goto guest_neighbours
    ip6 nexthdr hopopt ip6 saddr {{ ::, {link} }} ip6 daddr ff02::/16 icmpv6 type {_REPORTS} accept
    ip6 nexthdr hopopt icmpv6 type {_LISTENERS} counter name listener_report drop
{_plain(address)}  }}
  chain guest_neighbours {{
    ip6 hoplimit != 255 counter name foreign_claim drop
    icmpv6 code != 0 counter name foreign_claim drop
    icmpv6 type nd-neighbor-solicit ip6 saddr :: goto guest_claims
    ip6 saddr != {{ {address}, {link} }} counter name foreign_claim drop
    icmpv6 type nd-neighbor-advert goto guest_claims
    ip6 length 24 accept
    ip6 length 32 {_FIRST_OPTION} 0x0101 {_MAC_IN_OPTION} {_hardware(mac)} accept
    counter name foreign_claim drop
  }}
  chain guest_claims {{
{about_itself}    counter name foreign_claim drop
  }}
  chain guest_own {{
    ip6 length 24 accept
    icmpv6 type nd-neighbor-solicit ip6 length 32 {_FIRST_OPTION} 0x0e01 accept
    icmpv6 type nd-neighbor-advert ip6 length 32 {_FIRST_OPTION} 0x0201 {_MAC_IN_OPTION} {_hardware(mac)} accept
    counter name foreign_claim drop
  }}
"""


def outside(mac: str) -> str:
    """Return the rules that block, from outside, router advertisements, all to DHCPv6's client port, and the guest's own frames (``mac``).

    Fragments without a plain protocol are dropped, because they may be of an advertisement.
    """
    return f"""    meta protocol ip6 ether saddr {mac} counter name sent_back drop
    frag nexthdr != {_FRAGMENTED_OUTSIDE} counter name router_outside drop
    icmpv6 type nd-router-advert counter name router_outside drop
    meta protocol ip6 udp dport {network.DHCP6_CLIENT_PORT} counter name server_outside6 drop
"""


_TARGET: Final = "@th,64,128"
"""Target of a neighbour discovery message (RFC 4861, sections 4.3 and 4.4)."""
_FIRST_OPTION: Final = "@th,192,16"
"""Kind and length of its first option: MAC address of the sender (1) or the target (2), a nonce (14; RFC 7527)."""
_MAC_IN_OPTION: Final = "@th,208,48"
_REPORTS: Final = "{ mld-listener-report, mld-listener-done, mld2-listener-report }"
_COUNTERS: Final = """  counter foreign_ipv6 {}
  counter foreign_icmpv6 {}
  counter extension_header {}
  counter listener_report {}
  counter to_loopback6 {}
  counter as_server6 {}
  counter too_much_control {}
  counter of_launcher {}
"""
_CONTROL: Final = f"""  chain guest_control {{
    limit rate {CONTROL_PER_SECOND}/second burst {2 * CONTROL_PER_SECOND} packets fwd to "{network.CONTROL_TAP}"
    counter name too_much_control drop
  }}
  chain launcher {{
    type filter hook ingress device "{network.CONTROL_TAP}" priority -500; policy drop;
    ether type ip6 fwd to "{network.TAP}"
    counter name of_launcher drop
  }}
"""


def _plain(address: str) -> str:
    return f"""    ip6 nexthdr {_EXTENSION_HEADERS} counter name extension_header drop
    ip6 nexthdr ipv6-frag frag nexthdr != {_FRAGMENTED} counter name extension_header drop
    ip6 nexthdr icmpv6 icmpv6 type != {_PLAIN_ICMP} counter name foreign_icmpv6 drop
    ip6 saddr != {address} counter name foreign_ipv6 drop
    ip6 daddr {{ ::/127, ::ffff:0:0/96 }} counter name to_loopback6 drop
    udp dport {network.DHCP6_CLIENT_PORT} counter name as_server6 drop
    accept
"""


def _number(address: str) -> str:
    return f"0x{ipaddress.IPv6Address(address).packed.hex()}"


def _hardware(mac: str) -> str:
    return f"0x{mac.replace(':', '')}"


def pod(table: str, ports: Sequence[Port] | None) -> str:
    """Return the table that translates between the pod's and the guest's IPv6 address, for these ports; None: for all."""
    arriving = f'iifname "{network.UPLINK}" ip6 daddr != {_NOT_THE_PODS}'
    if ports is None:
        from_others: tuple[str, ...] = (arriving,)
        local: tuple[str, ...] = ("meta l4proto tcp",)
    else:
        local = matching(ports, "TCP")
        from_others = tuple(f"{arriving} {each}" for each in (*local, *matching(ports, "UDP")))
    return f"""table ip6 {table} {{}}
delete table ip6 {table}
table ip6 {table} {{
  counter to_pod {{}}
  counter untranslated {{}}
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
{kept_from_guest(ports, network.DHCP6_CLIENT_PORT)}{translating(from_others, network.GUEST6)}  }}
  chain output {{
    type nat hook output priority -100; policy accept;
{translating((f"ip6 daddr ::1 {each}" for each in local), network.GUEST6)}  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip6 saddr ::1 oifname "{network.BRIDGE}" snat to {network.GATEWAY6}
    ip6 saddr {network.GUEST6} oifname "{network.UPLINK}" masquerade
  }}
  chain leaving {{
    type filter hook postrouting priority 300; policy accept;
    ip6 saddr {network.GUEST6} oifname "{network.UPLINK}" counter name untranslated drop
  }}
  chain input {{
    type filter hook input priority 0; policy accept;
    iifname {{ "{network.BRIDGE}", "{network.TAP}" }} goto from_guest
  }}
  chain from_guest {{
    ct state established,related accept
    iifname "{network.BRIDGE}" ip6 daddr {network.GATEWAY6} icmpv6 type echo-request accept
    counter name to_pod drop
  }}{forwarding(ports)}
}}
"""
