"""The script that puts a guest behind the pod's address. Pure.

It is idempotent. The tap stays down and outside of the bridge until the rules are in force.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.places import network
from handler.network import filters, ipv6, scripts
from handler.network.binding import Interface, Link, Observed, Plan, Unsupported, Wanted, in_order, pod_link
from launcher.protocol.leases import Lease6

_LEASE6: Final = Lease6(f"{network.GUEST6}/128", network.ROUTER6, network.BRIDGE_MAC, (network.ROUTER6, network.GATEWAY6))


def plan(wanted: Wanted, observed: Observed) -> Plan:
    """Return the plan to put the guest behind the pod's address.

    Raises Unsupported without an address on ``eth0``, or for an impossible port.
    """
    uplink = pod_link(wanted, observed)
    addresses4, addresses6 = uplink.of_family(4), uplink.of_family(6)
    if not addresses4 and not addresses6:
        raise Unsupported(f"interface {wanted.uplink} of the pod has neither an IPv4 nor an IPv6 address")
    if wrong := [each for each in wanted.ports or () if not 0 < each.port < 65536]:
        raise Unsupported(f"interface {wanted.name}: {wrong[0].port} is not a port")
    interface = Interface(
        wanted.name,
        wanted.mac,
        wanted.tap,
        wanted.model,
        in_order(wanted, addresses4, addresses6),
        lease6=_LEASE6 if addresses6 else None,
        ipv4=bool(addresses4),
    )
    return Plan(_script(wanted, observed, uplink), interface)


def _script(wanted: Wanted, observed: Observed, uplink: Link) -> str:
    has_ipv6 = bool(uplink.of_family(6))
    settings = ipv6.routing(wanted.uplink, network.BRIDGE) if has_ipv6 else ipv6.none(network.BRIDGE)
    settings += ipv6.none(network.TAP) + _SETTINGS
    links = scripts.tap_and_bridge(wanted, observed, uplink.mtu, bridge_mac=network.BRIDGE_MAC, tap_mac=network.TAP_MAC)
    return "".join(
        (
            "set -e\n",
            scripts.batch((*(ipv6.control_tap(observed) if has_ipv6 else ()), *links)),
            scripts.filtered(wanted.tap, filters.table(wanted.tap), filters.rules(wanted.mac, wanted.ports, ipv6=has_ipv6)),
            settings,
            scripts.batch(_joined(wanted.mac, has_ipv6=has_ipv6)),
        )
    )


def _joined(mac: str, *, has_ipv6: bool) -> list[str]:
    # permanent: packets reach the guest before it has answered ARP, and it cannot change the entry
    lines = [
        f"address replace {network.GATEWAY}/{network.PREFIX} dev {network.BRIDGE}",
        f"link set dev {network.TAP} master {network.BRIDGE}",
        f"link set dev {network.BRIDGE} up",
        f"link set dev {network.TAP} up",
        f"neighbour replace {network.GUEST} lladdr {mac} dev {network.BRIDGE} nud permanent",
    ]
    if has_ipv6:
        lines += [
            f"link set dev {network.CONTROL_TAP} up",
            f"address replace {network.GATEWAY6}/128 dev {network.BRIDGE} nodad",
            f"route replace {network.GUEST6}/128 dev {network.BRIDGE}",
            f"neighbour replace {network.GUEST6} lladdr {mac} dev {network.BRIDGE} nud permanent",
            f"route replace local ::1/128 dev {network.BRIDGE} table local",
        ]
    return lines


_SETTINGS: Final = f"""{scripts.LOW_PORTS}echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/conf/{network.BRIDGE}/route_localnet
"""
