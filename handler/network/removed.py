"""The script that removes a card's tap, bridge and filters from its pod, after its guest gave it back. Pure.

The tap goes first, so no frame passes unfiltered. The link of a further network stays, down, for a later card of that network.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.places import network
from apiserver.apis.virt.spec import attachments
from handler.network import filters
from handler.network.binding import Wanted

_FAMILIES_OF_POD: Final = ("netdev", "ip", "ip6")
_FAMILIES_OF_FURTHER: Final = ("netdev", "bridge", "inet")


def script(wanted: Wanted) -> str:
    """Return the script for ``sh`` in the pod's namespace that removes a card's tap, bridge and filters. Idempotent."""
    is_pods = wanted.tap == network.TAP
    links = (wanted.tap, network.CONTROL_TAP, wanted.bridge) if is_pods else (wanted.tap, wanted.bridge)
    families = _FAMILIES_OF_POD if is_pods else _FAMILIES_OF_FURTHER
    rest = _LOOPBACK6 if is_pods else _parked(wanted) if wanted.network else ""
    tables = "".join(f"nft delete table {each} {filters.table(wanted.tap)} 2>/dev/null || :\n" for each in families)
    return f"""set -e
exists() {{
  ip link show dev "$1" >/dev/null 2>&1
}}
for link in {" ".join(links)}; do
  ! exists $link || ip link delete dev $link
done
{tables}{rest}"""


def _parked(wanted: Wanted) -> str:
    name = attachments.link_of_network(wanted.name, wanted.network)
    renamed = "" if name == wanted.uplink else f"  ip link set dev {wanted.uplink} name {name}\n"
    return f"""if exists {wanted.uplink}; then
  ip link set dev {wanted.uplink} down
{renamed}fi
"""


_LOOPBACK6: Final = "[ ! -d /proc/sys/net/ipv6 ] || ip route replace local ::1/128 dev lo table local 2>/dev/null || :\n"
"""Undoes masquerade's move of the route to the bridge."""
