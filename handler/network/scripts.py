"""Common parts of the scripts of all bindings with a tap. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from apiserver.apis.virt.places import layout, network
from handler.network.binding import NO_FILTER, Link, Observed, Wanted

LOW_PORTS: Final = "echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start\n"
"""For virt-launcher's DHCP, and passt's ports of the guest. Most container runtimes allow pods all ports anyway."""


def batch(lines: Iterable[str]) -> str:
    """Return a script that runs ``ip`` commands, given without ``ip``, up to the first failure."""
    told = "".join(f"{line}\n" for line in lines)
    return f"ip -batch - <<'END'\n{told}END\n"


def tap_and_bridge(wanted: Wanted, observed: Observed, mtu: int, *, bridge_mac: str, tap_mac: str) -> list[str]:
    """Return ``ip`` commands that make missing taps and bridges, and set both to the link's MTU (bytes).

    The tap stays down and outside of the bridge.
    """
    lines: list[str] = []
    if observed.link(wanted.bridge) is None:
        lines.append(f"link add {wanted.bridge} address {bridge_mac} type bridge stp_state 0 forward_delay 0")
    if observed.link(wanted.tap) is None:
        several = " multi_queue" if wanted.queues > 1 else ""  # QEMU must open it as it was made
        lines.append(f"tuntap add dev {wanted.tap} mode tap user {layout.USER_ID} group {layout.USER_ID}{several}")
        lines.append(f"link set dev {wanted.tap} address {tap_mac}")
    return [*lines, f"link set dev {wanted.bridge} mtu {mtu} address {bridge_mac}", f"link set dev {wanted.tap} mtu {mtu}"]


def filtered(tap: str, table: str, rules: str) -> str:
    """Return the script that applies rules (input of ``nft -f -``), in a table of the family ``netdev``.

    If nft refuses them, the script exits with ``NO_FILTER``, and the tap stays up only with older rules in force.
    """
    return f"""nft -f - <<'END' || {{
{rules}END
  nft list table netdev {table} >/dev/null 2>&1 || ip link set dev {tap} down
  exit {NO_FILTER}
}}
"""


def joined(wanted: Wanted) -> list[str]:
    """Return ``ip`` commands that join the guest's tap with the pod's link by the bridge.

    The bridge learns no senders on the link: a bridge in hairpin mode reflects the guest's frames, and other hosts could take its place.
    """
    return [
        *(f"link set dev {each} master {wanted.bridge}" for each in (wanted.uplink, wanted.tap)),
        f"link set dev {wanted.uplink} type bridge_slave learning off",
        *(f"link set dev {each} up" for each in (wanted.bridge, wanted.uplink, wanted.tap)),
    ]


def served(bridge: str, mac: str, address: str) -> list[str]:
    """Return ``ip`` commands with which virt-launcher receives requests on the bridge.

    Unless the guest's address is empty, virt-launcher also reaches it: by a route, and a permanent neighbour entry.
    """
    lines = [f"address replace {network.BRIDGED_SERVER}/32 dev {bridge}"]
    if address:
        lines.append(f"route replace {address}/32 dev {bridge}")
        lines.append(f"neighbour replace {address} lladdr {mac} dev {bridge} nud permanent")
    return lines


def another_mac(wanted: Wanted, uplink: Link) -> tuple[str, ...]:
    """Return the ``ip`` command that changes the link's MAC address if it equals the guest's; else none."""
    return (f"link set dev {wanted.uplink} address {network.derived_mac(wanted.mac, 'uplink')}",) if uplink.mac == wanted.mac else ()
