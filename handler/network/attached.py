"""``bridge`` on a further network: a bridge in the pod joins the guest's tap with the link that the nodes' CNI plugin made. Pure.

::

    guest ── tap<hash> ── bridge k6t-<hash> ── net<hash>: the network of a NetworkAttachmentDefinition
               └ nft: only the guest's own MAC address      └ nft, on the bridge itself: nothing is for the pod

The guest is on the network's own layer 2. Its MAC address is the one that virt-controller told the CNI plugin, which may hold the link to
it; the link gets another one, because a bridge takes what is sent to the addresses of its links for itself. Addresses that the plugin gave
to the link are taken from it.

The pod is no part of that network: without the filter on the bridge, its kernel would answer ARP there for the pod's own address, and
forward what others there send to the bridge's MAC address into the cluster.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt import attachments, layout, network
from handler.network.binding import NO_FILTER, Interface, Link, Observed, Plan, Unsupported, Wanted

_RESERVED_GROUP: Final = "01:80:c2:00:00:00-01:80:c2:00:00:0f"
"""For bridges alone (IEEE 802.1Q, table 8-1): a guest that spoke spanning tree could take the network for itself."""


def plan(wanted: Wanted, observed: Observed) -> Plan:
    """Return how the guest gets onto the network.

    Raises:
        Unsupported: the pod has no link to it.
    """
    uplink = observed.link(wanted.uplink)
    if uplink is None:
        raise Unsupported(
            f"interface {wanted.name}: the pod has no link {wanted.uplink} to network {wanted.network}: this node needs a CNI plugin that "
            f"heeds the annotation {attachments.ANNOTATION} of pods, such as Multus"
        )
    return Plan(_script(wanted, observed, uplink), Interface(wanted.name, wanted.mac, wanted.tap, wanted.model, (), wanted.network))


def plan_card(wanted: Wanted, observed: Observed) -> Plan:
    """Return what there is to do for a card of the node: nothing, its CNI plugin has told it the MAC address; QEMU opens no tap."""
    del observed
    return Plan("", Interface(wanted.name, wanted.mac, "", "", (), wanted.network))


def table(tap: str) -> str:
    """Return the name of nft's table for the guest's tap."""
    return f"kubevirt_{tap}"


def rules(wanted: Wanted) -> str:
    """Return the input of ``nft -f -``; tap and bridge must exist."""
    name = table(wanted.tap)
    return f"""table netdev {name} {{}}
delete table netdev {name}
table netdev {name} {{
  counter foreign_mac {{}}
  counter other_protocol {{}}
  counter to_pod {{}}
  chain guest {{
    type filter hook ingress device "{wanted.tap}" priority -500; policy accept;
    ether saddr != {wanted.mac} counter name foreign_mac drop
    ether daddr {_RESERVED_GROUP} counter name other_protocol drop
  }}
  chain pod {{
    type filter hook ingress device "{wanted.bridge}" priority -500; policy drop;
    counter name to_pod drop
  }}
}}
"""


def _script(wanted: Wanted, observed: Observed, uplink: Link) -> str:
    return f"""set -e
ip -batch - <<'END'
{_links(wanted, observed, uplink)}END
nft -f - <<'END' || {{
{rules(wanted)}END
  nft list table netdev {table(wanted.tap)} >/dev/null 2>&1 || ip link set dev {wanted.tap} down
  exit {NO_FILTER}
}}
for link in {wanted.bridge} {wanted.tap} {wanted.uplink}; do
  [ ! -d /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/$link/disable_ipv6
done
ip -batch - <<'END'
{_joined(wanted, uplink)}END
"""


def _links(wanted: Wanted, observed: Observed, uplink: Link) -> str:
    lines: list[str] = []
    own = network.derived_mac(wanted.mac, "bridge")
    if observed.link(wanted.bridge) is None:
        lines.append(f"link add {wanted.bridge} address {own} type bridge stp_state 0 forward_delay 0")
    if observed.link(wanted.tap) is None:
        several = " multi_queue" if wanted.queues > 1 else ""  # QEMU has to open it the way it was made
        lines.append(f"tuntap add dev {wanted.tap} mode tap user {layout.USER_ID} group {layout.USER_ID}{several}")
        lines.append(f"link set dev {wanted.tap} address {network.derived_mac(wanted.mac, 'tap')}")
    lines += [
        f"link set dev {wanted.bridge} mtu {uplink.mtu} address {own}",
        f"link set dev {wanted.tap} mtu {uplink.mtu}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _joined(wanted: Wanted, uplink: Link) -> str:
    lines = [f"address flush dev {wanted.uplink}"]
    if uplink.mac == wanted.mac:
        lines.append(f"link set dev {wanted.uplink} address {network.derived_mac(wanted.mac, 'uplink')}")
    lines += [f"link set dev {each} master {wanted.bridge}" for each in (wanted.uplink, wanted.tap)]
    lines += [f"link set dev {each} up" for each in (wanted.bridge, wanted.uplink, wanted.tap)]
    return "".join(f"{line}\n" for line in lines)
