"""Parts that the scripts of all bindings with a tap have in common. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from apiserver.apis.virt.places import layout, network
from handler.network.binding import NO_FILTER, Link, Observed, Wanted

LOW_PORTS: Final = "echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start\n"
"""virt-launcher serves DHCP, and passt whatever the guest does, without privileges; most container runtimes let pods have every port
anyway."""


def batch(lines: Iterable[str]) -> str:
    """Return what runs commands of ``ip``, given without that word, up to the first that fails."""
    told = "".join(f"{line}\n" for line in lines)
    return f"ip -batch - <<'END'\n{told}END\n"


def tap_and_bridge(wanted: Wanted, observed: Observed, mtu: int, *, bridge_mac: str, tap_mac: str) -> list[str]:
    """Return commands of ``ip`` that make the guest's tap and the bridge where they are missing, and give both the link's MTU (bytes).

    The tap stays down and outside of the bridge.
    """
    lines: list[str] = []
    if observed.link(wanted.bridge) is None:
        lines.append(f"link add {wanted.bridge} address {bridge_mac} type bridge stp_state 0 forward_delay 0")
    if observed.link(wanted.tap) is None:
        several = " multi_queue" if wanted.queues > 1 else ""  # QEMU has to open it the way it was made
        lines.append(f"tuntap add dev {wanted.tap} mode tap user {layout.USER_ID} group {layout.USER_ID}{several}")
        lines.append(f"link set dev {wanted.tap} address {tap_mac}")
    return [*lines, f"link set dev {wanted.bridge} mtu {mtu} address {bridge_mac}", f"link set dev {wanted.tap} mtu {mtu}"]


def filtered(tap: str, table: str, rules: str) -> str:
    """Return what puts rules in force. Where nft refuses them, the script ends, and no tap stays up that no older rules keep.

    Args:
        tap: the guest's.
        table: of nft's family ``netdev``, which the rules make.
        rules: the input of ``nft -f -``.
    """
    return f"""nft -f - <<'END' || {{
{rules}END
  nft list table netdev {table} >/dev/null 2>&1 || ip link set dev {tap} down
  exit {NO_FILTER}
}}
"""


def joined(wanted: Wanted) -> list[str]:
    """Return commands of ``ip`` by which the bridge joins the guest's tap with the pod's link.

    The bridge takes no sender of what comes by that link for one that is there: a CNI plugin's bridge in hairpin mode sends the guest's own
    broadcasts back, after which the answers to them would not reach it; and nobody else's frame takes the guest's place so.
    """
    return [
        *(f"link set dev {each} master {wanted.bridge}" for each in (wanted.uplink, wanted.tap)),
        f"link set dev {wanted.uplink} type bridge_slave learning off",
        *(f"link set dev {each} up" for each in (wanted.bridge, wanted.uplink, wanted.tap)),
    ]


def served(bridge: str, mac: str, address: str) -> list[str]:
    """Return commands of ``ip`` by which virt-launcher can be asked on the bridge, and can answer the guest; ``address``: empty: none.

    The guest is sent to by its address before it has answered, and cannot make it another's.
    """
    lines = [f"address replace {network.BRIDGED_SERVER}/32 dev {bridge}"]
    if address:
        lines.append(f"route replace {address}/32 dev {bridge}")
        lines.append(f"neighbour replace {address} lladdr {mac} dev {bridge} nud permanent")
    return lines


def another_mac(wanted: Wanted, uplink: Link) -> tuple[str, ...]:
    """Return the line that gives the link another MAC address than the guest's, where it has that; no line where it has not."""
    return (f"link set dev {wanted.uplink} address {network.derived_mac(wanted.mac, 'uplink')}",) if uplink.mac == wanted.mac else ()
