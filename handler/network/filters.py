"""The nft rules of a pod with a guest: address translation, and which of the guest's frames are let in. Pure.

Frames are judged at the ingress hook of the tap, before the bridge: a bridge hands frames to some reserved group addresses (IEEE 802.1Q,
table 8-1; LLDP's) to the node's protocols without asking the filters of its own family. Every chain drops what it does not name.

Connection tracking gives no translation to what it takes for invalid (an answer that nobody asked for, a wrong checksum), and the kernel
forwards it as it is; so what still has the guest's private address behind the translation is dropped there.

Connections to the pod's own 127.0.0.1 are the guest's, too: ``kubectl port-forward`` makes them there. The kernel routes such addresses to
the bridge, and takes the answers, where ``route_localnet`` is set for it; what the guest itself sends to 127.0.0.0/8 is dropped at the tap.

What was dropped is counted: ``nsenter --net=/proc/<pid of virt-launcher>/ns/net nft list counters``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from apiserver.apis.virt import network
from handler.network.binding import Port

TABLE: Final = "kubevirt"
DHCP_PER_SECOND: Final = 20
"""Packets of a guest that virt-launcher reads; a client sends one every few seconds."""
_DHCP_SERVERS: Final = f"{{ {network.GATEWAY}, {network.BROADCAST}, 255.255.255.255 }}"
"""Addresses to which a guest sends requests of DHCP: counted at the tap, and let in for no other address of the pod."""
KERNEL_OPTIONS: Final = (
    "CONFIG_NF_TABLES_NETDEV",
    "CONFIG_NETFILTER_INGRESS",
    "CONFIG_NF_TABLES_IPV4",
    "CONFIG_NFT_NAT",
    "CONFIG_NFT_LIMIT",
)
"""Options of the node's kernel that these rules need; Debian, Ubuntu, Red Hat, Flatcar and Talos have them."""

_NOT_IN_THIS_KERNEL: Final = (
    "Operation not supported",
    "Address family not supported",
    "Protocol not supported",
    "No such file or directory",  # a chain type or an expression whose module there is not
)


def is_not_in_this_kernel(said: str) -> bool:
    """Tell from what nft said whether the kernel lacks something, so that trying again is of no use."""
    return any(words in said for words in _NOT_IN_THIS_KERNEL)


def rules(mac: str, ports: Sequence[Port] | None = None) -> str:
    """Return the input of ``nft -f -`` for the guest with this (valid, normal) MAC address; the tap must exist.

    ``ports`` are those of the pod's address that are the guest's, None for all.

    "table; delete; table" in one file is one transaction, whether or not the table was there: a filter in force is never away.
    """
    return f"""table netdev {TABLE} {{}}
delete table netdev {TABLE}
table netdev {TABLE} {{
{_guest(mac)}
}}
table ip {TABLE} {{}}
delete table ip {TABLE}
table ip {TABLE} {{
{_pod(ports)}
}}
"""


def bridged(mac: str, address: str, bridge_mac: str) -> str:
    """Return the input of ``nft -f -`` for a guest that has the pod's own address; tap and bridge must exist.

    What it asks of DHCP is sent to the bridge's own MAC address, so that it is heard in the pod alone.
    """
    servers = f"{{ {network.BRIDGED_SERVER}, 255.255.255.255 }}"
    return f"""table netdev {TABLE} {{}}
delete table netdev {TABLE}
table netdev {TABLE} {{
{_guest(mac, address, servers, f"ether daddr set {bridge_mac} ")}
  counter to_pod {{}}
  chain pod {{
    type filter hook ingress device "{network.BRIDGE}" priority -500; policy drop;
    ether saddr {mac} ether daddr {bridge_mac} ip daddr {servers} udp dport {network.DHCP_SERVER_PORT} accept
    counter name to_pod drop
  }}
}}
"""


def _guest(mac: str, address: str = network.GUEST, servers: str = _DHCP_SERVERS, turned: str = "") -> str:
    return f"""  counter foreign_mac {{}}
  counter foreign_arp {{}}
  counter foreign_ipv4 {{}}
  counter to_loopback {{}}
  counter other_protocol {{}}
  counter too_much_dhcp {{}}
  chain guest_dhcp {{
    limit rate {DHCP_PER_SECOND}/second burst {2 * DHCP_PER_SECOND} packets {turned}accept
    counter name too_much_dhcp drop
  }}
  chain guest_arp {{
    arp htype 1 arp ptype 0x0800 arp hlen 6 arp plen 4 arp operation {{ request, reply }} goto guest_sender
    counter name foreign_arp drop
  }}
  chain guest_sender {{
    arp saddr ether {mac} arp saddr ip {{ {address}, 0.0.0.0 }} accept
    counter name foreign_arp drop
  }}
  chain guest_ipv4 {{
    ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport {network.DHCP_CLIENT_PORT} udp dport {network.DHCP_SERVER_PORT} goto guest_dhcp
    ip saddr != {address} counter name foreign_ipv4 drop
    ip daddr 127.0.0.0/8 counter name to_loopback drop
    ip daddr {servers} udp dport {network.DHCP_SERVER_PORT} goto guest_dhcp
    accept
  }}
  chain guest {{
    type filter hook ingress device "{network.TAP}" priority -500; policy drop;
    ether saddr != {mac} counter name foreign_mac drop
    ether daddr 01:80:c2:00:00:00-01:80:c2:00:00:0f counter name other_protocol drop
    ether type arp goto guest_arp
    ether type ip goto guest_ipv4
    counter name other_protocol drop
  }}"""


def _matching(ports: Sequence[Port], protocol: str) -> tuple[str, ...]:
    """Return what matches packets of a protocol to the ports; nothing where there are none."""
    numbers = sorted({each.port for each in ports if each.protocol == protocol})
    return (f"{protocol.lower()} dport {{ {', '.join(map(str, numbers))} }}",) if numbers else ()


def _translating(matches: Iterable[str]) -> str:
    return "".join(f"    {each} dnat to {network.GUEST}\n" for each in matches)


_OTHER_PORTS: Final = f"""
  counter to_other_port {{}}
  chain forward {{
    type filter hook forward priority 0; policy accept;
    iifname "{network.UPLINK}" ct state established,related accept
    iifname "{network.UPLINK}" ct status dnat accept
    iifname "{network.UPLINK}" counter name to_other_port drop
  }}"""


def _pod(ports: Sequence[Port] | None) -> str:
    if ports is None:
        arriving: tuple[str, ...] = (f'iifname "{network.UPLINK}"',)
        local: tuple[str, ...] = ("meta l4proto tcp",)
    else:
        local = _matching(ports, "TCP")
        arriving = tuple(f'iifname "{network.UPLINK}" {each}' for each in (*local, *_matching(ports, "UDP")))
    return f"""  counter to_pod {{}}
  counter untranslated {{}}
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
{_translating(arriving)}  }}
  chain output {{
    type nat hook output priority -100; policy accept;
{_translating(f"ip daddr 127.0.0.1 {each}" for each in local)}  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr 127.0.0.1 oifname "{network.BRIDGE}" snat to {network.GATEWAY}
    ip saddr {network.GUEST} oifname "{network.UPLINK}" masquerade
  }}
  chain leaving {{
    type filter hook postrouting priority 300; policy accept;
    ip saddr {network.GUEST} oifname "{network.UPLINK}" counter name untranslated drop
  }}
  chain input {{
    type filter hook input priority 0; policy accept;
    iifname {{ "{network.BRIDGE}", "{network.TAP}" }} goto from_guest
  }}
  chain from_guest {{
    icmp type redirect counter name to_pod drop
    ct state established,related accept
    iifname "{network.BRIDGE}" ip daddr {_DHCP_SERVERS} udp dport {network.DHCP_SERVER_PORT} accept
    iifname "{network.BRIDGE}" ip daddr {network.GATEWAY} icmp type echo-request accept
    counter name to_pod drop
  }}{"" if ports is None else _OTHER_PORTS}"""
