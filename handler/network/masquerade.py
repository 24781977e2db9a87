"""What a pod's network namespace must look like for a masqueraded guest, and the commands that get it there. Pure.

Every command list may be run again: what exists is left alone, and the nft table is replaced in one transaction.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.virt import layout

UPLINK: Final = "eth0"
"""What every CNI plugin calls the pod's interface."""
BRIDGE: Final = "k6t-eth0"
TAP: Final = "tap0"
BRIDGE_MAC: Final = "02:00:00:00:00:01"
"""The guest's gateway. Fixed, because after a live migration the guest goes on talking to the address it has learnt."""
GATEWAY: Final = "10.0.2.1"
GUEST: Final = "10.0.2.2"
PREFIX: Final = 24
NETMASK: Final = "255.255.255.0"
TABLE: Final = "kubevirt"
DEFAULT_MTU: Final = 1500

_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_DOMAIN: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*")
_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MAX_DNS: Final = 3
_MAX_SEARCH: Final = 32


class Unsupported(Exception):
    """The pod's network, or what the virtual machine asks of it, cannot be served."""


@dataclass(frozen=True, slots=True)
class Resolver:
    """The pod's resolv.conf, as far as DHCP can hand it on."""

    servers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """The namespace as it is."""

    links: frozenset[str]
    uplink_mtu: int
    addresses: tuple[str, ...]
    """Of the uplink, IPv4: the pod's."""


def resolver(text: str) -> Resolver:
    """Read a resolv.conf (resolv.conf(5)); what the guest could not use (IPv6, loopback, no names) is left out."""
    servers: list[str] = []
    search: list[str] = []
    for line in text.splitlines():
        words = line.split()
        match words[:1]:
            case ["nameserver"] if len(words) > 1 and _is_reachable(words[1]):
                servers.append(words[1])
            case ["search" | "domain"]:
                search = [word.rstrip(".") for word in words[1:] if _DOMAIN.fullmatch(word.rstrip("."))]
            case _:
                pass
    return Resolver(tuple(servers[:_MAX_DNS]), tuple(search[:_MAX_SEARCH]))


def _is_reachable(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return parsed.version == 4 and not parsed.is_loopback and not parsed.is_unspecified


def observe(links: Sequence[Mapping[str, Any]]) -> Observed:
    """Read the answer of ``ip -json address show``.

    Raises:
        Unsupported: the pod has no interface named ``eth0`` with an IPv4 address.
    """
    uplink = next((link for link in links if link.get("ifname") == UPLINK), None)
    if uplink is None:
        raise Unsupported(f"the pod has no interface {UPLINK}")
    addresses = tuple(
        str(each["local"]) for each in uplink.get("addr_info", ()) if each.get("family") == "inet" and each.get("scope") == "global"
    )
    if not addresses:
        raise Unsupported(f"interface {UPLINK} of the pod has no IPv4 address")
    return Observed(frozenset(str(link["ifname"]) for link in links), int(uplink.get("mtu") or DEFAULT_MTU), addresses)


def mac_address(vm_uid: str, interface: str, given: str = "") -> str:
    """Return the guest's MAC: the one given, else one that follows from the VM and the interface, the same in every pod of it."""
    if given:
        return given.lower().replace("-", ":")
    digest = hashlib.sha256(f"{vm_uid}\0{interface}".encode()).digest()
    return "02:" + ":".join(f"{byte:02x}" for byte in digest[:5])  # 02: locally administered, unicast


def link_commands(observed: Observed, user: int = layout.USER_ID) -> str:
    """Return the lines for ``ip -batch -`` that are still missing."""
    lines: list[str] = []
    if BRIDGE not in observed.links:
        lines.append(f"link add {BRIDGE} address {BRIDGE_MAC} type bridge stp_state 0 forward_delay 0")
    if TAP not in observed.links:
        lines.append(f"tuntap add dev {TAP} mode tap user {user} group {user}")
    lines += [
        f"link set dev {BRIDGE} mtu {observed.uplink_mtu} address {BRIDGE_MAC}",
        f"link set dev {TAP} mtu {observed.uplink_mtu} master {BRIDGE}",
        f"address replace {GATEWAY}/{PREFIX} dev {BRIDGE}",
        f"link set dev {BRIDGE} up",
        f"link set dev {TAP} up",
    ]
    return "".join(f"{line}\n" for line in lines)


def table() -> str:
    """Return the input of ``nft -f -``: what reaches the pod goes to the guest, what leaves the guest has the pod's address."""
    # "table; delete; table" in one file is one transaction, whether or not the table was there.
    return f"""table ip {TABLE} {{}}
delete table ip {TABLE}
table ip {TABLE} {{
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
    iifname "{UPLINK}" dnat to {GUEST}
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {GUEST} oifname "{UPLINK}" masquerade
  }}
}}
"""


SETTINGS: Final = (("net/ipv4/ip_forward", "1"),)
"""Below ``/proc/sys``; of the namespace they are written in."""


def dnsmasq(mac: str, *, hostname: str, dns: Resolver, mtu: int, pid_file: str) -> tuple[str, ...]:
    """Return the command line of the guest's DHCP server.

    Raises:
        ValueError: something in it is not what its name says, and could be read as another option.
    """
    if not _MAC.fullmatch(mac):
        raise ValueError(f"{mac!r} is no MAC address")
    name = f",{hostname}" if _HOST.fullmatch(hostname) else ""
    options = [f"option:router,{GATEWAY}", f"option:mtu,{mtu}"]
    if dns.servers:
        options.append("option:dns-server," + ",".join(dns.servers))
    if dns.search:
        options.append("option:domain-search," + ",".join(dns.search))
    return (
        "dnsmasq",
        "--conf-file=/dev/null",
        "--keep-in-foreground",
        "--user=root",  # it has nothing but its capabilities in a namespace of ours; there is no other user in the image
        f"--interface={BRIDGE}",
        "--except-interface=lo",
        "--bind-interfaces",
        "--port=0",
        "--no-hosts",
        "--no-resolv",
        "--no-ping",
        "--dhcp-authoritative",
        "--leasefile-ro",
        "--log-facility=/dev/null",
        f"--pid-file={pid_file}",
        f"--dhcp-range={GUEST},static,{NETMASK},infinite",
        f"--dhcp-host={mac},{GUEST}{name},infinite",
        *(f"--dhcp-option={option}" for option in options),
    )
