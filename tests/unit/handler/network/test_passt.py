from __future__ import annotations

import pytest

from handler.network.binding import Link, Observed, Unsupported
from tests.unit.handler.network.test_binding import a_vm, plans

INTERFACE = {"name": "lan", "type": "passt", "ports": [{"port": 22}]}
BOTH = Observed((Link("eth0", "0a:58:0a:f4:01:07", 1450, ("10.0.0.9/24", "fd00::9/64")),))


def test_passt_guest_has_all_pod_addresses_and_no_tap() -> None:
    (plan,) = plans(a_vm(INTERFACE), BOTH)
    assert (plan.interface.name, plan.interface.addresses, plan.interface.tap, plan.interface.model) == (
        "lan",
        ("10.0.0.9", "fd00::9"),
        "",
        "virtio",
    )


def test_its_address_is_the_machines_in_every_pod() -> None:
    (first,), (second,) = plans(a_vm(INTERFACE), BOTH), plans(a_vm(INTERFACE), BOTH)
    (given,) = plans(a_vm({**INTERFACE, "mac": "02-00-00-00-0E-01"}), BOTH)
    assert first.interface.mac == second.interface.mac != BOTH.links[0].mac
    assert given.interface.mac == "02:00:00:00:0e:01"


def test_passt_setup_allows_low_ports_and_ping_only() -> None:
    (plan,) = plans(a_vm(INTERFACE), BOTH)
    assert plan.script.splitlines() == [
        "set -e",
        "echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start",
        "echo 107 107 >/proc/sys/net/ipv4/ping_group_range",
    ]


@pytest.mark.parametrize("seen", [Observed(()), Observed((Link("eth0", "0a:58:0a:f4:01:07", 1450, ()),))], ids=["no link", "no address"])
def test_a_pod_without_an_address_is_told(seen: Observed) -> None:
    with pytest.raises(Unsupported, match=r"eth0"):
        plans(a_vm(INTERFACE), seen)
