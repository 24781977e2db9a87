"""``bridge`` on a further network: a bridge in the pod joins the guest's tap with the CNI plugin's link. Pure.

::

    guest ── tap<hash> ── bridge k6t-<hash> ── net<hash>: the network of a NetworkAttachmentDefinition
               │                                            └ nft, on the bridge itself: nothing is for the pod
               └ nft: only the guest's own MAC address, and with IPAM its IPv4 address

The guest has the MAC address that virt-controller gave the CNI plugin, which may enforce it. The link gets another one, because a bridge
consumes frames to its links' addresses. An IPv4 address from IPAM becomes the guest's by DHCP (``addressed``), which stays in the pod, and
a filter limits the guest to it. Other addresses are not filtered.

Without the filter on the bridge, the pod's kernel would answer ARP for the pod's own address, and forward frames into the cluster.
"""

from __future__ import annotations

from apiserver.apis.virt.places import network
from handler.network import addressed, filters, ipv6, scripts
from handler.network.binding import Interface, Link, Observed, Plan, Unsupported, Wanted
from launcher.protocol.leases import Lease


def plan(wanted: Wanted, observed: Observed) -> Plan:
    """Return the plan to join the guest to a further network. Raises Unsupported without a link to it, or with too many routes."""
    uplink = uplink_of(wanted, observed)
    lease = addressed.lease(uplink, observed.further_routes.get(uplink.name, ()), observed.aliases.get(uplink.name, ""))
    addresses = (lease.address.partition("/")[0],) if lease is not None else ()
    interface = Interface(wanted.name, wanted.mac, wanted.tap, wanted.model, addresses, is_own=False, lease=lease)
    return Plan(_script(wanted, observed, uplink, lease), interface)


def uplink_of(wanted: Wanted, observed: Observed) -> Link:
    """Return the pod's link to a further network. Raises Unsupported if there is none."""
    uplink = observed.link(wanted.uplink)
    if uplink is None:
        from apiserver.apis.virt.spec import attachments  # importing it takes longer than all other imports together

        raise Unsupported(
            f"interface {wanted.name}: the pod has no link {wanted.uplink} to network {wanted.network}: install a CNI plugin on this "
            f"node that reads the pod annotation {attachments.ANNOTATION}, such as Multus"
        )
    return uplink


def plan_card(wanted: Wanted, observed: Observed) -> Plan:
    """Return a plan without commands for a node's network card that the guest gets (SR-IOV): its CNI plugin did everything."""
    del observed
    return Plan("", Interface(wanted.name, wanted.mac, "", "", (), is_own=False))


def rules(wanted: Wanted) -> str:
    """Return nft's input for a guest on a further network's bridge, without an address from IPAM; tap and bridge must exist."""
    name = filters.table(wanted.tap)
    return f"""table netdev {name} {{}}
delete table netdev {name}
table netdev {name} {{
  counter foreign_mac {{}}
  counter other_protocol {{}}
  counter to_pod {{}}
{filters.own_mac(wanted, "ingress")}  chain pod {{
    type filter hook ingress device "{wanted.bridge}" priority -500; policy drop;
    counter name to_pod drop
  }}
}}
"""


def _script(wanted: Wanted, observed: Observed, uplink: Link, lease: Lease | None) -> str:
    bridge_mac, tap_mac = (network.derived_mac(wanted.mac, each) for each in ("bridge", "tap"))
    made = scripts.tap_and_bridge(wanted, observed, uplink.mtu, bridge_mac=bridge_mac, tap_mac=tap_mac)
    address = lease.address.partition("/")[0] if lease is not None else ""
    kept = (f"link set dev {wanted.uplink} alias {addressed.alias(wanted.network, lease)}",) if lease is not None else ()
    return "".join(
        (
            "set -e\n",
            scripts.batch((*kept, *made)),
            scripts.filtered(
                wanted.tap, filters.table(wanted.tap), filters.bridged(wanted, wanted.mac, address) if address else rules(wanted)
            ),
            ipv6.none(wanted.bridge, wanted.tap, wanted.uplink),
            scripts.LOW_PORTS if address else "",
            scripts.batch((*_joined(wanted, uplink), *(scripts.served(wanted.bridge, wanted.mac, address) if address else ()))),
        )
    )


def _joined(wanted: Wanted, uplink: Link) -> list[str]:
    return [f"address flush dev {wanted.uplink}", *scripts.another_mac(wanted, uplink), *scripts.joined(wanted)]
