"""nft rules of a pod after its guest migrated: forward incoming traffic to the guest's new pod. Pure.

::

    client ── eth0 (the pod's address) ── dnat to the other pod, snat to the pod's own address ── eth0 ── the other pod ── guest

For a moment, Services still route to the old pod. Answers return here, because forwarded traffic has this pod's source address, also for
NetworkPolicies.

A separate, initially empty connection tracking zone includes packets of older connections: an unanswered one reaches the guest with its
next attempt, and the guest's kernel resets open ones.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from apiserver.apis.virt.places import forms, network
from handler.network.binding import Link, Observed

TABLE: Final = "kubevirt_departed"
ZONE: Final = 1
_GATEWAYS: Final = {4: network.GATEWAY, 6: network.GATEWAY6}
_FAMILIES: Final = {4: "ip", 6: "ip6"}


def may_be_a_pods(address: str) -> bool:
    """Return whether an address, from a perhaps compromised kubelet, may be a pod's: not loopback, link-local and the like."""
    return forms.pod_ip(address) is not None


def rules(observed: Observed, others: Iterable[str]) -> str:
    """Return nft's input that forwards a migrated guest's traffic to ``others``, its new pod's addresses; empty if that is impossible.

    It can be applied repeatedly.
    """
    uplink, bridge = observed.link(network.UPLINK), observed.link(network.BRIDGE)
    if uplink is None or bridge is None:
        return ""
    targets = [ipaddress.ip_address(each) for each in others if may_be_a_pods(each)]
    found = ""
    for version, family in _FAMILIES.items():
        target = next((str(each) for each in targets if each.version == version), "")
        own = [each.partition("/")[0] for each in uplink.of_family(version)]
        if target and own and target not in own and _has(bridge, _GATEWAYS[version]):
            found += _table(family, own, target)
    return found


def _has(link: Link, address: str) -> bool:
    return any(each.partition("/")[0] == address for each in link.addresses)


def _table(family: str, own: list[str], target: str) -> str:
    return f"""table {family} {TABLE} {{}}
delete table {family} {TABLE}
table {family} {TABLE} {{
  chain anew {{
    type filter hook prerouting priority -300; policy accept;
    iifname "{network.UPLINK}" ct zone set {ZONE}
  }}
  chain prerouting {{
    type nat hook prerouting priority -110; policy accept;
    iifname "{network.UPLINK}" {family} daddr {{ {", ".join(own)} }} dnat to {target}
  }}
  chain postrouting {{
    type nat hook postrouting priority 90; policy accept;
    oifname "{network.UPLINK}" {family} daddr {target} ct status dnat snat to {own[0]}
  }}
}}
"""
