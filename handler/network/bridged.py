"""``bridge`` on the pod's own network: the guest takes the pod's IP and MAC addresses. Pure.

::

    guest (the pod's addresses) ── tap0 ── bridge k6t-eth0 (169.254.75.1) ── eth0 (no address, another MAC): the pod's network
                                     └ nft: only the guest's own addresses

The guest has the pod's MAC address, unless the machine specifies one. The guest's DHCP stays in the pod.

For IPv6, virt-launcher sends router advertisements and DHCPv6 through a separate tap. They announce the pod's gateway: by its link-local
address, or else by one of ours, with the gateway's MAC address. Other advertisements are dropped.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from apiserver.apis.virt.places import network
from handler.network import aliases, filters, ipv6, scripts
from handler.network.binding import Interface, Link, Observed, Plan, Unsupported, Wanted, in_order, pod_link
from launcher.protocol.leases import Lease, Lease6

_ALIAS: Final = "kubevirt"
_IPV6: Final = "6"


def plan(wanted: Wanted, observed: Observed) -> Plan:
    """Return the plan that gives the guest the pod's addresses, from ``eth0`` or, if it was set up before, from its alias.

    Raises Unsupported without an address on ``eth0``, with too many routes, or if the gateway's MAC address is needed and unknown.
    """
    uplink = pod_link(wanted, observed)
    kept = _kept(observed.alias) or _of_pod(wanted, uplink, observed)
    alias = _alias(kept, f"interface {wanted.uplink} of the pod has more routes than a guest can receive by DHCP")
    mac = wanted.mac or kept.mac
    interface = Interface(
        wanted.name,
        mac,
        wanted.tap,
        wanted.model,
        in_order(wanted, [kept.lease.address] if kept.lease else [], [kept.lease6.address] if kept.lease6 else []),
        lease=kept.lease,
        lease6=kept.lease6,
        ipv4=kept.lease is not None,
    )
    return Plan(_script(wanted, observed, uplink, interface, alias), interface)


def unknown_gateway(observed: Observed) -> str:
    """Return the pod's IPv6 gateway if the first set-up needs its MAC address, because it is not link-local; else empty."""
    gateway, uplink = observed.gateway6, observed.link(network.UPLINK)
    if not gateway or uplink is None or not uplink.of_family(6) or _kept(observed.alias):
        return ""
    return "" if ipaddress.IPv6Address(gateway).is_link_local else gateway


@dataclass(frozen=True, slots=True)
class _Kept:
    mac: str
    lease: Lease | None
    lease6: Lease6 | None


def _of_pod(wanted: Wanted, uplink: Link, observed: Observed) -> _Kept:
    addresses, addresses6 = uplink.of_family(4), uplink.of_family(6)
    if not addresses and not addresses6:
        raise Unsupported(f"interface {wanted.uplink} of the pod has neither an IPv4 nor an IPv6 address")
    lease = Lease(addresses[0], network.BRIDGED_SERVER, observed.routes) if addresses else None
    lease6 = _lease6(addresses6[0], observed.gateway6, observed.gateway6_mac) if addresses6 else None
    return _Kept(uplink.mac, lease, lease6)


def _lease6(address: str, gateway: str | None, gateway_mac: str) -> Lease6:
    if not gateway:
        return Lease6(address, network.BRIDGED_ROUTER6, is_default=False)
    if ipaddress.IPv6Address(gateway).is_link_local:
        return Lease6(address, gateway)
    if not network.is_mac(gateway_mac):
        raise Unsupported(f"the pod's gateway {gateway} has no known MAC address, so the guest cannot reach it")
    return Lease6(address, network.BRIDGED_ROUTER6, gateway_mac, (network.BRIDGED_ROUTER6,))


def _alias(kept: _Kept, problem: str) -> str:
    """Return the alias for ``kept``: MAC address, IPv4 address and routes, and IPv6 as ``6>address>router>MAC address of the router``.

    Raises Unsupported with the message ``problem`` if too long.
    """
    six = kept.lease6
    told = () if six is None else (f"{_IPV6}>{six.address}>{six.router if six.is_default else ''}>{six.router_mac}",)
    return aliases.text(_ALIAS, (kept.mac, *aliases.of_lease(kept.lease), *told), problem)


def _kept(alias: str) -> _Kept | None:
    mac, *rest = aliases.parts(_ALIAS, alias) or [""]
    if not network.is_mac(mac):
        return None
    four, six = [each for each in rest if not _is_six(each)], [each for each in rest if _is_six(each)]
    try:
        lease, lease6 = aliases.lease(four), _kept6(six[0]) if six else None
    except ValueError:
        return None
    return _Kept(mac, lease, lease6) if lease or lease6 else None


def _is_six(text: str) -> bool:
    return text.startswith(f"{_IPV6}>")


def _kept6(text: str) -> Lease6:
    _, address, router, mac = text.split(">")
    if mac and not network.is_mac(mac):
        raise ValueError(mac)
    given = str(ipaddress.IPv6Interface(address))
    if mac:
        return Lease6(given, network.BRIDGED_ROUTER6, mac, (network.BRIDGED_ROUTER6,))
    return _lease6(given, str(ipaddress.IPv6Address(router)) if router else None, "")


def _script(wanted: Wanted, observed: Observed, uplink: Link, interface: Interface, alias: str) -> str:
    mac, lease, lease6 = interface.mac, interface.lease, interface.lease6
    address, address6 = (each.address.partition("/")[0] if each else "" for each in (lease, lease6))
    answered = lease6.answers[0] if lease6 and lease6.answers else ""
    bridge_mac, tap_mac = (network.derived_mac(mac, each) for each in ("bridge", "tap"))
    made = scripts.tap_and_bridge(wanted, observed, uplink.mtu, bridge_mac=bridge_mac, tap_mac=tap_mac)
    links = [wanted.bridge, wanted.tap, wanted.uplink, *([network.CONTROL_TAP] if lease6 else ())]
    return "".join(
        (
            "set -e\n",
            scripts.batch((f"link set dev {wanted.uplink} alias {alias}", *(ipv6.control_tap(observed) if lease6 else ()), *made)),
            scripts.filtered(wanted.tap, filters.table(wanted.tap), filters.bridged(wanted, mac, address, address6, answered)),
            ipv6.none(*links),
            scripts.LOW_PORTS,
            scripts.batch(_joined(wanted, uplink, interface, address)),
        )
    )


def _joined(wanted: Wanted, uplink: Link, interface: Interface, address: str) -> list[str]:
    # a bridge consumes frames to its links' addresses
    others = network.derived_mac(interface.mac, "uplink")
    lines = [f"address flush dev {wanted.uplink}"]
    if uplink.mac != others:
        lines.append(f"link set dev {wanted.uplink} address {others}")
    lines += scripts.joined(wanted)
    if interface.lease6:
        lines.append(f"link set dev {network.CONTROL_TAP} up")
    return lines + scripts.served(wanted.bridge, interface.mac, address)
