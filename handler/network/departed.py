"""The nft rules of a pod whose guest has moved on: what still comes to the pod is passed on to the pod in which the guest is. Pure.

::

    somebody ── eth0 (the pod's address) ── dnat to the other pod, snat to the pod's own address ── eth0 ── the other pod ── guest

Services know for a moment yet the pod that the guest has left. Everything is passed on, by whichever port: the other pod's rules say which
ports are the guest's. What is passed on comes from this pod's address, so the answers come back here, and NetworkPolicies judge it as what
this pod sends.

All that arrives from now on is in a connection tracking zone of its own, in which nothing is known yet. So a connection that began before
is a new one, and gets the new translation: one that was not answered reaches the guest with its next try, and one that was open is reset
by the guest's kernel, which knows it by another address.
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
    """Return whether a text is an address to which a pod's connections may be passed on: none of the node's or of the link's own.

    A kubelet says which address its pod has, and may be in a stranger's hands.
    """
    return forms.pod_ip(address) is not None


def rules(observed: Observed, others: Iterable[str]) -> str:
    """Return the input of ``nft -f -``; empty where nothing can be passed on. It may be given again.

    Args:
        observed: the pod's network; of each family, what is passed on is what a masqueraded guest had.
        others: addresses of the pod in which the guest is.
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
