"""IPv6 settings of links in a pod, for ``sh`` and ``ip``. Pure.

The shell opens the files inside the namespace, because /proc/sys/net shows the reader's. A kernel without IPv6 needs no settings.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.places import layout, network
from handler.network.binding import Observed

_SYSTEM: Final = "/proc/sys/net/ipv6/conf"
_BRIDGES: Final = "/proc/sys/net/bridge"


def none(*links: str) -> str:
    """Return the script that disables IPv6 on links."""
    return f"""for link in {" ".join(links)}; do
  [ ! -d /proc/sys/net/ipv6 ] || echo 1 >{_SYSTEM}/$link/disable_ipv6
done
"""


def routing(uplink: str, bridge: str) -> str:
    """Return the script that makes the pod a router between two links; the bridge gets no automatic addresses.

    ``uplink`` still takes router advertisements, which a router's kernel ignores by default. If bridges call IP hooks, an answer to the
    pod's own ::1 gets that destination before the kernel checks its link.
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
    """Return the ``ip`` command that makes the tap between virt-launcher and the guest; none if it exists."""
    if observed.link(network.CONTROL_TAP) is not None:
        return []
    return [f"tuntap add dev {network.CONTROL_TAP} mode tap user {layout.USER_ID} group {layout.USER_ID}"]
