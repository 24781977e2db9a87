"""``passt``: a process of virt-launcher relays the guest's connections with sockets of the pod. Pure.

::

    guest ── virtio card ── passt, in the pod's container ── sockets at the pod's addresses ── eth0

The guest gets the link's addresses. virt-handler allows the pod's user low ports and echo requests.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.places import layout
from handler.network import scripts
from handler.network.binding import Interface, Observed, Plan, Unsupported, Wanted, in_order, pod_link


def plan(wanted: Wanted, observed: Observed) -> Plan:
    """Return the plan to connect the guest by passt. Raises Unsupported if the pod's link is missing or has no address."""
    uplink = pod_link(wanted, observed)
    addresses = in_order(wanted, uplink.of_family(4), uplink.of_family(6))
    if not addresses:
        raise Unsupported(f"interface {wanted.uplink} of the pod has no address")
    return Plan(_SCRIPT, Interface(wanted.name, wanted.mac, "", wanted.model, addresses))


_SCRIPT: Final = f"""set -e
{scripts.LOW_PORTS}echo {layout.USER_ID} {layout.USER_ID} >/proc/sys/net/ipv4/ping_group_range
"""
