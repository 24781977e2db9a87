"""``bridge`` on the pod's own network: the guest takes the pod's place, with its IPv4 address and its MAC address. Pure.

::

    guest (the pod's addresses) ── tap0 ── bridge k6t-eth0 (169.254.75.1) ── eth0 (no address, another MAC): the pod's network
                                     └ nft: only the guest's own addresses

The guest has the pod's MAC address, unless the machine names one, because CNI plugins may let no other through. What the pod had is kept
as the alias of ``eth0``, so that it is known when everything is set up again: the address itself is the guest's then, and the routes are
gone. virt-launcher tells the guest by DHCP; its requests are turned to the bridge's own MAC address at the tap, and do not leave the pod.

The pod itself has no network any more. virt-launcher needs none: its streams are Unix sockets, and it has no probes.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from apiserver.apis.virt import layout, network
from handler.network import filters
from handler.network.binding import NO_FILTER, Interface, Link, Observed, Plan, Unsupported, Wanted
from launcher.protocol.messages import Lease, Route

_ALIAS: Final = "kubevirt"
_MAX_ALIAS: Final = 255
"""Bytes (IFALIASZ)."""


def plan(wanted: Wanted, observed: Observed) -> Plan:
    """Return how the guest takes the pod's place.

    Raises:
        Unsupported: the pod has no interface named ``eth0`` with an IPv4 address, or more routes than can be kept.
    """
    uplink = observed.link(wanted.uplink)
    if uplink is None:
        raise Unsupported(f"the pod has no interface {wanted.uplink}")
    found = _kept(observed.alias) or _of_pod(wanted, uplink, observed)
    pods_mac, lease = found
    alias = _alias(pods_mac, lease)
    if len(alias) > _MAX_ALIAS:
        raise Unsupported(f"interface {wanted.uplink} of the pod has too many routes for a guest to take its place")
    mac, address = wanted.mac or pods_mac, lease.address.partition("/")[0]
    interface = Interface(wanted.name, mac, wanted.tap, wanted.model, (address,), lease=lease)
    return Plan(_script(wanted, observed, uplink, mac, address, alias), interface)


def _of_pod(wanted: Wanted, uplink: Link, observed: Observed) -> tuple[str, Lease]:
    addresses = [each for each in uplink.addresses if ":" not in each]
    if not addresses:
        raise Unsupported(f"interface {wanted.uplink} of the pod has no IPv4 address")
    return uplink.mac, Lease(addresses[0], network.BRIDGED_SERVER, observed.routes)


def _alias(mac: str, lease: Lease) -> str:
    return ",".join((_ALIAS, mac, lease.address, *(f"{each.destination}>{each.gateway}" for each in lease.routes)))


def _kept(alias: str) -> tuple[str, Lease] | None:
    """Return what an alias keeps; None: nothing, or it is not ours."""
    word, *rest = alias.split(",")
    if word != _ALIAS or len(rest) < 2 or not network.is_mac(rest[0]):
        return None
    try:
        address = str(ipaddress.IPv4Interface(rest[1]))
        routes = tuple(_route(each) for each in rest[2:])
    except ValueError:
        return None
    return rest[0], Lease(address, network.BRIDGED_SERVER, routes)


def _route(text: str) -> Route:
    destination, _, gateway = text.partition(">")
    return Route(str(ipaddress.IPv4Network(destination)), str(ipaddress.IPv4Address(gateway)) if gateway else "")


def _script(wanted: Wanted, observed: Observed, uplink: Link, mac: str, address: str, alias: str) -> str:
    bridge_mac = network.derived_mac(mac, "bridge")
    return f"""set -e
ip -batch - <<'END'
link set dev {wanted.uplink} alias {alias}
{_links(wanted, observed, uplink, mac)}END
nft -f - <<'END' || {{
{filters.bridged(mac, address, bridge_mac)}END
  nft list table netdev {filters.TABLE} >/dev/null 2>&1 || ip link set dev {wanted.tap} down
  exit {NO_FILTER}
}}
for link in {wanted.bridge} {wanted.tap} {wanted.uplink}; do
  [ ! -d /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/$link/disable_ipv6
done
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
ip -batch - <<'END'
{_joined(wanted, uplink, mac, address)}END
"""


def _links(wanted: Wanted, observed: Observed, uplink: Link, mac: str) -> str:
    lines: list[str] = []
    own = network.derived_mac(mac, "bridge")
    if observed.link(wanted.bridge) is None:
        lines.append(f"link add {wanted.bridge} address {own} type bridge stp_state 0 forward_delay 0")
    if observed.link(wanted.tap) is None:
        several = " multi_queue" if wanted.queues > 1 else ""  # QEMU has to open it the way it was made
        lines.append(f"tuntap add dev {wanted.tap} mode tap user {layout.USER_ID} group {layout.USER_ID}{several}")
        lines.append(f"link set dev {wanted.tap} address {network.derived_mac(mac, 'tap')}")
    lines += [f"link set dev {wanted.bridge} mtu {uplink.mtu} address {own}", f"link set dev {wanted.tap} mtu {uplink.mtu}"]
    return "".join(f"{line}\n" for line in lines)


def _joined(wanted: Wanted, uplink: Link, mac: str, address: str) -> str:
    # A bridge takes what is sent to the addresses of its links for itself, so the pod's own MAC address cannot stay there.
    others = network.derived_mac(mac, "uplink")
    lines = [f"address flush dev {wanted.uplink}"]
    if uplink.mac != others:
        lines.append(f"link set dev {wanted.uplink} address {others}")
    lines += [f"link set dev {each} master {wanted.bridge}" for each in (wanted.uplink, wanted.tap)]
    lines += [
        f"address replace {network.BRIDGED_SERVER}/32 dev {wanted.bridge}",
        *(f"link set dev {each} up" for each in (wanted.bridge, wanted.uplink, wanted.tap)),
        f"route replace {address}/32 dev {wanted.bridge}",
        f"neighbour replace {address} lladdr {mac} dev {wanted.bridge} nud permanent",
    ]
    return "".join(f"{line}\n" for line in lines)
