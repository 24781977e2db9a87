"""The network namespace of a pod with a masqueraded guest, and the script that gets it there. Pure.

The script may be run again: what exists is left alone, and the rules are replaced in one transaction. The tap stays down and outside of the
bridge until the rules are in force, so that there is no first frame that they do not see.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.virt import layout, network
from handler.network import filters

DEFAULT_MTU: Final = 1500
NO_FILTER: Final = 65
"""Exit status of the script when nft refused the rules."""


class Unsupported(Exception):
    """The pod's network, or what the virtual machine asks of it, cannot be served."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The namespace as it is."""

    links: frozenset[str]
    uplink_mtu: int
    addresses: tuple[str, ...]
    """Of the uplink, IPv4: the pod's."""


def observe(links: Sequence[Mapping[str, Any]]) -> Observed:
    """Read the answer of ``ip -json address show``.

    Raises:
        Unsupported: the pod has no interface named ``eth0`` with an IPv4 address.
    """
    uplink = next((link for link in links if link.get("ifname") == network.UPLINK), None)
    if uplink is None:
        raise Unsupported(f"the pod has no interface {network.UPLINK}")
    addresses = tuple(
        str(each["local"]) for each in uplink.get("addr_info", ()) if each.get("family") == "inet" and each.get("scope") == "global"
    )
    if not addresses:
        raise Unsupported(f"interface {network.UPLINK} of the pod has no IPv4 address")
    return Observed(frozenset(str(link["ifname"]) for link in links), int(uplink.get("mtu") or DEFAULT_MTU), addresses)


def mac_address(vm_uid: str, interface: str, given: str = "") -> str:
    """Return the guest's MAC: the one given, else one that follows from the VM and the interface, the same in every pod of it.

    Raises:
        Unsupported: a guest cannot have the one given; virt-api refuses it, but an older one, or its storage, may have let it in.
    """
    if given:
        if problem := network.mac_problem(given):
            raise Unsupported(f"interface {interface}: MAC address {given!r} {problem}")
        return network.normal_mac(given)
    digest = hashlib.sha256(f"{vm_uid}\0{interface}".encode()).digest()
    while network.mac_problem(derived := _mac_of(digest)):
        digest = hashlib.sha256(digest).digest()
    return derived


def _mac_of(digest: bytes) -> str:
    return "02:" + ":".join(f"{byte:02x}" for byte in digest[:5])  # 02: locally administered, unicast


def script(observed: Observed, mac: str, user: int = layout.USER_ID, *, queues: int = 1) -> str:
    """Return what ``sh`` is to do in the namespace; ``mac`` is the guest's, as :func:`mac_address` returns it, ``queues`` its card's."""
    return f"""set -e
ip -batch - <<'END'
{_links(observed, user, queues)}END
nft -f - <<'END' || {{
{filters.rules(mac)}END
  nft list table netdev {filters.TABLE} >/dev/null 2>&1 || ip link set dev {network.TAP} down
  exit {NO_FILTER}
}}
{_SETTINGS}ip -batch - <<'END'
{_joined(mac)}END
"""


def _links(observed: Observed, user: int, queues: int) -> str:
    lines: list[str] = []
    if network.BRIDGE not in observed.links:
        lines.append(f"link add {network.BRIDGE} address {network.BRIDGE_MAC} type bridge stp_state 0 forward_delay 0")
    if network.TAP not in observed.links:
        several = " multi_queue" if queues > 1 else ""  # QEMU has to open it the way it was made
        lines.append(f"tuntap add dev {network.TAP} mode tap user {user} group {user}{several}")
        lines.append(f"link set dev {network.TAP} address {network.TAP_MAC}")
    lines += [
        f"link set dev {network.BRIDGE} mtu {observed.uplink_mtu} address {network.BRIDGE_MAC}",
        f"link set dev {network.TAP} mtu {observed.uplink_mtu}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _joined(mac: str) -> str:
    # The neighbour is ours to say: a guest is sent to by its address before it has answered, and cannot make it another's.
    lines = (
        f"address replace {network.GATEWAY}/{network.PREFIX} dev {network.BRIDGE}",
        f"link set dev {network.TAP} master {network.BRIDGE}",
        f"link set dev {network.BRIDGE} up",
        f"link set dev {network.TAP} up",
        f"neighbour replace {network.GUEST} lladdr {mac} dev {network.BRIDGE} nud permanent",
    )
    return "".join(f"{line}\n" for line in lines)


# The shell's own words open these files inside the namespace: /proc/sys/net shows that of whoever looks. Where the kernel has no IPv6,
# there is nothing to turn off. virt-launcher serves DHCP without privileges; most container runtimes let pods have every port anyway.
_SETTINGS: Final = f"""for link in {network.BRIDGE} {network.TAP}; do
  [ ! -d /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/$link/disable_ipv6
done
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/conf/{network.BRIDGE}/route_localnet
"""
