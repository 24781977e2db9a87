from __future__ import annotations

import pytest

from apiserver.apis.virt.places import network
from apiserver.apis.virt.v1alpha1.domain.interfaces import Interface


@pytest.mark.parametrize("mac", ["52:54:00:c0:ff:ee", "52:54:00:C0:FF:EE", "52-54-00-c0-ff-ee", "02:00:00:00:00:03", "00:00:00:00:00:01"])
def test_a_guest_may_have_any_unicast_address(mac: str) -> None:
    assert network.mac_problem(mac) == ""


@pytest.mark.parametrize(
    ("mac", "problem"),
    [
        ("02:00:00:00:00:01", "is reserved for the guest's gateway"),
        ("02-00-00-00-00-01", "is reserved for the guest's gateway"),
        ("02:00:00:00:00:02", "is reserved for the guest's gateway or the node's side of the link"),
        ("ff:ff:ff:ff:ff:ff", "must be a unicast address"),
        ("01:80:c2:00:00:00", "must be a unicast address"),
        ("33-33-00-00-00-01", "must be a unicast address"),
        ("00:00:00:00:00:00", "not all zeros"),
        ("", "must be six pairs"),
        ("02:00:00:00:00", "must be six pairs"),
        ("02:00:00:00:00:01:02", "must be six pairs"),
        ("02:00:00:00:00:0g", "must be six pairs"),
        ("02:00:00:00:00:03\n", "must be six pairs"),
        ("02:00:00:00:00:03 accept", "must be six pairs"),
        ("٠٢:00:00:00:00:03", "must be six pairs"),
    ],
)
def test_a_guest_may_have_no_address_that_is_ours_or_nobodys(mac: str, problem: str) -> None:
    assert problem in network.mac_problem(mac)


def test_own_macs_are_reserved_and_the_documented_one_is_not() -> None:
    assert {network.BRIDGE_MAC, network.TAP_MAC} == network.RESERVED_MACS
    assert network.mac_problem(network.EXAMPLE_MAC) == ""
    assert network.EXAMPLE_MAC in str(Interface.model_fields["mac"].description)


def test_an_address_on_every_link_follows_from_a_mac_address() -> None:
    assert network.link_local("52-54-00-C0-FF-EE") == "fe80::5054:ff:fec0:ffee"
