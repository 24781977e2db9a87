"""``macvtap`` on a further network: the guest's tap is a link on top of the CNI plugin's link. Pure.

::

    guest ── tap<hash>, a macvtap: nft, only the guest's own MAC address ── net<hash>, or what that is on itself

The link may be a macvlan of a node's card, which cannot join a bridge; a macvtap on a macvlan becomes one of the card itself. The guest has
the MAC address that virt-controller gave the CNI plugin, and the link, which the pod does not use, gets another one.

QEMU opens a macvtap by a character device that the kubelet gave the container (``handler.devices.macvtap``). The kernel chooses the lowest
free minor number, so lower ones are occupied for a moment. The link's index follows from the number, because libvirt opens
``/dev/tap<index>``.
"""

from __future__ import annotations

import re
from typing import Final

from apiserver.apis.virt.places import network
from handler.network import attached, filters, ipv6, scripts
from handler.network.binding import Interface, Link, Observed, Plan, Unsupported, Wanted

KERNEL_OPTIONS: Final = ("CONFIG_NETFILTER_EGRESS", "CONFIG_NF_TABLES_INET")
"""Needed (5.16 or newer) besides those of all filters."""
HOLDER: Final = network.MACVTAP_HOLDER
"""The link that occupies the lower numbers; links on it begin with its name."""
LOCK_SECONDS: Final = 15
_NUMBER: Final = re.compile(r"(\d{1,4}):(\d{1,3})")


def plan(wanted: Wanted, observed: Observed) -> Plan:
    """Return the plan to join the guest to a further network by a macvtap.

    Raises Unsupported if the pod has no link to it, may open no macvtap, or IPAM gave the link an address, which the guest would not get.
    """
    uplink = attached.uplink_of(wanted, observed)
    if uplink.addresses:
        raise Unsupported(
            f"interface {wanted.name}: IPAM of network {wanted.network} gives the pod's link an address, which a guest with type "
            "macvtap cannot receive: remove ipam from the network, or use type bridge"
        )
    made = Interface(wanted.name, wanted.mac, wanted.tap, wanted.model, (), is_own=False)
    return Plan(_script(wanted, observed, uplink), made, KERNEL_OPTIONS)


def number(wanted: Wanted) -> tuple[int, int]:
    """Return (major, minor) of the character device that the pod may open. Raises Unsupported if there is none."""
    found = _NUMBER.fullmatch(wanted.device)
    if found is None:
        raise Unsupported(
            f"interface {wanted.name}: its pod has no device for a macvtap, because a virt-controller of "
            "another version created it; restart the machine"
        )
    return int(found[1]), int(found[2])


def rules(wanted: Wanted) -> str:
    """Return the input of ``nft -f -`` that filters a macvtap; tap and uplink must exist."""
    name = filters.table(wanted.tap)
    return f"""table netdev {name} {{}}
delete table netdev {name}
table netdev {name} {{
  counter foreign_mac {{}}
  counter other_protocol {{}}
{filters.own_mac(wanted, "egress")}}}
table inet {name} {{}}
delete table inet {name}
table inet {name} {{
  counter to_pod {{}}
  counter from_pod {{}}
  chain to_pod {{
    type filter hook prerouting priority -500; policy accept;
    iifname "{wanted.uplink}" counter name to_pod drop
  }}
  chain from_pod {{
    type filter hook postrouting priority 500; policy accept;
    oifname "{wanted.uplink}" counter name from_pod drop
  }}
}}
"""


def _script(wanted: Wanted, observed: Observed, uplink: Link) -> str:
    silent = (f"link set dev {wanted.uplink} arp off", *scripts.another_mac(wanted, uplink))
    return "".join(
        (
            "set -e\n",
            ipv6.none(wanted.uplink),
            scripts.batch(silent),
            _made(wanted, uplink) if observed.link(wanted.tap) is None else "",
            _verified(wanted),
            scripts.filtered(wanted.tap, filters.table(wanted.tap), rules(wanted)),
            ipv6.none(wanted.tap),
            scripts.batch(
                (
                    f"link set dev {wanted.tap} mtu {uplink.mtu} allmulticast on",
                    f"link set dev {wanted.uplink} up",
                    f"link set dev {wanted.tap} up",
                )
            ),
        )
    )


def _made(wanted: Wanted, uplink: Link) -> str:
    major, minor = number(wanted)
    several = f" numtxqueues {wanted.queues} numrxqueues {wanted.queues}" if wanted.queues > 1 else ""
    link = f"name {wanted.tap} index {network.MACVTAP_INDEX + minor} address {wanted.mac} mtu {uplink.mtu}{several}"
    return f"""(
  flock -w {LOCK_SECONDS} 9
  ip link delete {HOLDER} 2>/dev/null || true
  ip tuntap add dev {HOLDER} mode tap
  trap 'ip link delete {HOLDER}' EXIT
  minor=1
  while [ $minor -lt {minor} ]; do
    [ -L /sys/dev/char/{major}:$minor ] || ip link add link {HOLDER} name {HOLDER}$minor type macvtap mode bridge
    minor=$((minor + 1))
  done
  [ ! -L /sys/dev/char/{major}:{minor} ] || {{ {_other_device(wanted)}; }}  # also of a pod that is gone: names tell them not apart
  ip link add link {wanted.uplink} {link} type macvtap mode bridge
) 9</sys/dev/char
"""


def _verified(wanted: Wanted) -> str:
    major, minor = number(wanted)
    index = network.MACVTAP_INDEX + minor
    return f"""case "$(readlink /sys/dev/char/{major}:{minor})" in
*/{wanted.tap}/macvtap/tap{index}) ;;
*) ip link delete {wanted.tap} 2>/dev/null || true
   {_other_device(wanted)};;
esac
"""


def _other_device(wanted: Wanted) -> str:
    major, minor = number(wanted)
    return f"echo 'the macvtap of the pod has another device than {major}:{minor}, which another link of the node may have' >&2; exit 1"
