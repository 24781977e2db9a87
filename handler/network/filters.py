"""nft rules of a pod with a guest: address translation, and filters for the guest's frames. Pure.

Frames are filtered at the tap's ingress hook: a bridge's filters do not see some reserved group addresses (IEEE 802.1Q, table 8-1; LLDP's).
Every chain drops what it does not name.

The kernel forwards packets that connection tracking considers invalid (unexpected answers, wrong checksums) untranslated. So packets that
still have the guest's private address are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from apiserver.apis.virt.places import network
from handler.network import filters6
from handler.network.binding import Port, Wanted
from handler.network.portmatches import forwarding, kept_from_guest, matching, translating

TABLE: Final = "kubevirt"
RESERVED_GROUP: Final = "01:80:c2:00:00:00-01:80:c2:00:00:0f"
"""Reserved for bridges: a guest that spoke spanning tree could redirect the network's traffic to itself."""
DHCP_PER_SECOND: Final = 20
"""Packets of a guest that virt-launcher reads; a client sends one every few seconds."""
_DHCP_SERVERS: Final = f"{{ {network.GATEWAY}, {network.BROADCAST}, 255.255.255.255 }}"
"""Destinations of a guest's DHCP requests, limited at the tap."""
KERNEL_OPTIONS: Final = (
    "CONFIG_NF_TABLES_NETDEV",
    "CONFIG_NETFILTER_INGRESS",
    "CONFIG_NF_TABLES_IPV4",
    "CONFIG_NFT_NAT",
    "CONFIG_NFT_LIMIT",
)
"""Needed by these rules; Debian, Ubuntu, Red Hat, Flatcar and Talos have them."""
KERNEL_OPTIONS_BRIDGED: Final = ("CONFIG_NF_TABLES_BRIDGE",)
"""Needed in addition if virt-launcher answers on a bridge with the pod's link."""
KERNEL_OPTIONS6: Final = ("CONFIG_NF_TABLES_IPV6", "CONFIG_NFT_FWD_NETDEV")
"""Needed in addition for IPv6."""

_NOT_IN_THIS_KERNEL: Final = (
    "Operation not supported",
    "Address family not supported",
    "Protocol not supported",
    "No such file or directory",  # a chain type or expression without its module
)


def is_not_in_this_kernel(said: str) -> bool:
    """Return whether nft's message means that the kernel lacks a feature, so retrying is useless."""
    return any(words in said for words in _NOT_IN_THIS_KERNEL)


def table(tap: str) -> str:
    """Return the name of the nft table for a guest's tap."""
    return TABLE if tap == network.TAP else f"{TABLE}_{tap}"


def rules(mac: str, ports: Sequence[Port] | None = None, *, ipv6: bool = False) -> str:
    """Return nft's input for a guest behind the pod's address, with this (valid, normalized) MAC address; the tap must exist.

    An earlier filter stays in force until nft has applied this one. The guest receives packets to these ``ports`` of the pod's address;
    None: to all. With ``ipv6``, virt-launcher's tap must exist.
    """
    guest = _guest(network.TAP, mac, network.GUEST, _DHCP_SERVERS, judged6=filters6.JUDGED if ipv6 else "")
    return f"""table netdev {TABLE} {{}}
delete table netdev {TABLE}
table netdev {TABLE} {{
{filters6.guest() if ipv6 else ""}{guest}
}}
table ip {TABLE} {{}}
delete table ip {TABLE}
table ip {TABLE} {{
{_pod(ports)}
}}
{filters6.pod(TABLE, ports) if ipv6 else ""}"""


def bridged(wanted: Wanted, mac: str, address: str, address6: str = "", router6: str = "") -> str:
    """Return the input of ``nft -f -`` for a guest with the pod's addresses; taps and bridge must exist.

    DHCP requests are redirected to the bridge's MAC address, so only the pod receives them; answers from outside are dropped. On a further
    network IPv6 is not filtered. An empty address is none; virt-launcher answers for ``router6``.
    """
    name, own = table(wanted.tap), network.derived_mac(mac, "bridge")
    servers = f"{{ {network.BRIDGED_SERVER}, 255.255.255.255 }}"
    judged6 = filters6.JUDGED if address6 else _ANY6 if wanted.network else ""
    return f"""table netdev {name} {{}}
delete table netdev {name}
table netdev {name} {{
{filters6.bridged_guest(mac, address6, router6) if address6 else ""}{_guest(wanted.tap, mac, address, servers, own, judged6=judged6)}
  counter server_outside {{}}
  chain outside {{
    type filter hook ingress device "{wanted.uplink}" priority -500; policy accept;
    meta protocol ip udp dport {network.DHCP_CLIENT_PORT} counter name server_outside drop
{filters6.outside(mac) if address6 else ""}  }}
  counter to_pod {{}}
  chain pod {{
    type filter hook ingress device "{wanted.bridge}" priority -500; policy drop;
    ether saddr {mac} ether daddr {own} ip daddr {servers} udp dport {network.DHCP_SERVER_PORT} accept
    counter name to_pod drop
  }}
}}
{_kept_in(name, wanted.uplink)}"""


def _kept_in(name: str, uplink: str) -> str:
    """Return a bridge table that stops the pod's own packets at ``uplink``: answers to a guest may be broadcasts."""
    return f"""table bridge {name} {{}}
delete table bridge {name}
table bridge {name} {{
  counter from_pod {{}}
  chain pod {{
    type filter hook output priority 0; policy accept;
    oifname "{uplink}" counter name from_pod drop
  }}
}}
"""


_JUDGED4: Final = """    ether type arp goto guest_arp
    ether type ip goto guest_ipv4
"""
_ANY6: Final = "    ether type ip6 accept\n"


def own_mac(wanted: Wanted, hook: Literal["ingress", "egress"]) -> str:
    """Return the chain that lets a guest send only from its MAC address, and not to a reserved group.

    ``hook``: where its tap receives the guest's frames.
    """
    return f"""  chain guest {{
    type filter hook {hook} device "{wanted.tap}" priority -500; policy accept;
    ether saddr != {wanted.mac} counter name foreign_mac drop
    ether daddr {RESERVED_GROUP} counter name other_protocol drop
  }}
"""


def _guest(tap: str, mac: str, address: str, servers: str, turned_to: str = "", *, judged6: str) -> str:
    """Return the chains that filter the guest's frames.

    DHCP requests to ``servers``, nft's text for addresses, are rate-limited, and redirected to the MAC address ``turned_to``, if any. An
    empty ``address`` drops all IPv4. ``judged6``: rules that accept IPv6 frames; empty: drop all.
    """
    own = address or "0.0.0.0"  # noqa: S104 - no address to listen on: nothing of IPv4 is let in then
    judged = (_JUDGED4 if address else "") + judged6
    turned = f"ether daddr set {turned_to} " if turned_to else ""
    return f"""  counter foreign_mac {{}}
  counter foreign_arp {{}}
  counter foreign_ipv4 {{}}
  counter to_loopback {{}}
  counter as_server {{}}
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
    arp saddr ether {mac} arp saddr ip {{ {own}, 0.0.0.0 }} accept
    counter name foreign_arp drop
  }}
  chain guest_ipv4 {{
    ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport {network.DHCP_CLIENT_PORT} udp dport {network.DHCP_SERVER_PORT} goto guest_dhcp
    ip saddr != {own} counter name foreign_ipv4 drop
    ip daddr 127.0.0.0/8 counter name to_loopback drop
    ip daddr {servers} udp dport {network.DHCP_SERVER_PORT} goto guest_dhcp
    udp dport {network.DHCP_CLIENT_PORT} counter name as_server drop
    accept
  }}
  chain guest {{
    type filter hook ingress device "{tap}" priority -500; policy drop;
    ether saddr != {mac} counter name foreign_mac drop
    ether daddr {RESERVED_GROUP} counter name other_protocol drop
{judged}    counter name other_protocol drop
  }}"""


def _pod(ports: Sequence[Port] | None) -> str:
    if ports is None:
        arriving: tuple[str, ...] = (f'iifname "{network.UPLINK}"',)
        local: tuple[str, ...] = ("meta l4proto tcp",)
    else:
        local = matching(ports, "TCP")
        arriving = tuple(f'iifname "{network.UPLINK}" {each}' for each in (*local, *matching(ports, "UDP")))
    return f"""  counter to_pod {{}}
  counter untranslated {{}}
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
{kept_from_guest(ports, network.DHCP_CLIENT_PORT)}{translating(arriving, network.GUEST)}  }}
  chain output {{
    type nat hook output priority -100; policy accept;
{translating((f"ip daddr 127.0.0.1 {each}" for each in local), network.GUEST)}  }}
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
  }}{forwarding(ports)}"""
