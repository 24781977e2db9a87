"""The network namespace of a pod with a masqueraded guest, and the script that gets it there. Pure.

The script may be run again: what exists is left alone, and the rules are replaced in one transaction. The tap stays down and outside of the
bridge until the rules are in force, so that there is no first frame that they do not see.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt import layout, network
from handler.network import filters
from handler.network.binding import NO_FILTER, Interface, Link, Observed, Plan, Unsupported, Wanted


def plan(wanted: Wanted, observed: Observed) -> Plan:
    """Return how the guest gets behind the pod's address.

    Raises:
        Unsupported: the pod has no interface named ``eth0`` with an IPv4 address.
    """
    uplink = observed.link(wanted.uplink)
    if uplink is None:
        raise Unsupported(f"the pod has no interface {wanted.uplink}")
    addresses = tuple(each.partition("/")[0] for each in uplink.addresses if ":" not in each)
    if not addresses:
        raise Unsupported(f"interface {wanted.uplink} of the pod has no IPv4 address")
    if wrong := [each for each in wanted.ports or () if not 0 < each.port < 65536]:
        raise Unsupported(f"interface {wanted.name}: {wrong[0].port} is no port")
    interface = Interface(wanted.name, wanted.mac, wanted.tap, wanted.model, addresses)
    return Plan(_script(wanted, observed, uplink), interface)


def _script(wanted: Wanted, observed: Observed, uplink: Link) -> str:
    return f"""set -e
ip -batch - <<'END'
{_links(wanted, observed, uplink)}END
nft -f - <<'END' || {{
{filters.rules(wanted.mac, wanted.ports)}END
  nft list table netdev {filters.TABLE} >/dev/null 2>&1 || ip link set dev {network.TAP} down
  exit {NO_FILTER}
}}
{_SETTINGS}ip -batch - <<'END'
{_joined(wanted.mac)}END
"""


def _links(wanted: Wanted, observed: Observed, uplink: Link) -> str:
    lines: list[str] = []
    if observed.link(network.BRIDGE) is None:
        lines.append(f"link add {network.BRIDGE} address {network.BRIDGE_MAC} type bridge stp_state 0 forward_delay 0")
    if observed.link(network.TAP) is None:
        several = " multi_queue" if wanted.queues > 1 else ""  # QEMU has to open it the way it was made
        lines.append(f"tuntap add dev {network.TAP} mode tap user {layout.USER_ID} group {layout.USER_ID}{several}")
        lines.append(f"link set dev {network.TAP} address {network.TAP_MAC}")
    lines += [
        f"link set dev {network.BRIDGE} mtu {uplink.mtu} address {network.BRIDGE_MAC}",
        f"link set dev {network.TAP} mtu {uplink.mtu}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _joined(mac: str) -> str:
    # The neighbour is ours to say: a guest is sent to by its address before it has answered, and cannot make it another's.
    lines = (
        f"address replace {network.GATEWAY}/{network.PREFIX} dev {network.BRIDGE}",
        f"link set dev {network.TAP} master {network.BRIDGE}",
        f"link set dev {network.BRIDGE} up",
        f"link set dev {network.TAP} up",
        f"neighbour replace {network.GUEST} lladdr {mac} dev {network.BRIDGE} nud permanent",
    )
    return "".join(f"{line}\n" for line in lines)


# The shell's own words open these files inside the namespace: /proc/sys/net shows that of whoever looks. Where the kernel has no IPv6,
# there is nothing to turn off. virt-launcher serves DHCP without privileges; most container runtimes let pods have every port anyway.
_SETTINGS: Final = f"""for link in {network.BRIDGE} {network.TAP}; do
  [ ! -d /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/$link/disable_ipv6
done
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/conf/{network.BRIDGE}/route_localnet
"""
