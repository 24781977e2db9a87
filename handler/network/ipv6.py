"""IPv6 of the links in a pod: what ``sh`` and ``ip`` are told. Pure.

The shell's own words open the files inside the namespace: /proc/sys/net shows that of whoever looks. Where the kernel has no IPv6, there is
nothing to turn off.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.places import layout, network
from handler.network.binding import Observed

_SYSTEM: Final = "/proc/sys/net/ipv6/conf"
_BRIDGES: Final = "/proc/sys/net/bridge"


def none(*links: str) -> str:
    """Return what keeps links from having IPv6."""
    return f"""for link in {" ".join(links)}; do
  [ ! -d /proc/sys/net/ipv6 ] || echo 1 >{_SYSTEM}/$link/disable_ipv6
done
"""


def routing(uplink: str, bridge: str) -> str:
    """Return what makes the pod a router between two links, of which the bridge has no address but those that it is given.

    A router heeds no advertisements, unless told to: the pod's own network may depend on them. ``read`` fails, for it asks such files for
    single bytes, and they have no more than the first. Where bridges call the hooks of IP, an answer to the pod's own ::1 has that address
    before the kernel looks whether it may have come from another link.
    """
    return f"""for setting in addr_gen_mode=1 accept_ra=0 autoconf=0 accept_dad=0 accept_redirects=0 disable_ipv6=0; do
  echo ${{setting#*=}} >{_SYSTEM}/{bridge}/${{setting%=*}}
done
echo 1 >{_SYSTEM}/{network.CONTROL_TAP}/disable_ipv6
read heeded <{_SYSTEM}/{uplink}/accept_ra || :
[ "$heeded" != 1 ] || echo 2 >{_SYSTEM}/{uplink}/accept_ra
echo 1 >{_SYSTEM}/all/forwarding
[ ! -e {_BRIDGES}/bridge-nf-call-ip6tables ] || echo 0 >{_BRIDGES}/bridge-nf-call-ip6tables
"""


def control_tap(observed: Observed) -> list[str]:
    """Return what makes the tap by which virt-launcher speaks to the guest."""
    if observed.link(network.CONTROL_TAP) is not None:
        return []
    return [f"tuntap add dev {network.CONTROL_TAP} mode tap user {layout.USER_ID} group {layout.USER_ID}"]
