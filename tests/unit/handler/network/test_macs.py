from __future__ import annotations

import hashlib

import pytest

from apiserver.apis.virt.places import network
from handler.network.binding import Unsupported
from handler.network.macs import mac_address


def test_mac_follows_from_the_machine_not_the_pod() -> None:
    one = mac_address("uid-1", "default")

    assert one == mac_address("uid-1", "default")
    assert one != mac_address("uid-2", "default")
    assert one != mac_address("uid-1", "other")
    assert int(one[:2], 16) & 0b11 == 0b10
    assert mac_address("uid-1", "default", "52-54-00-AA-BB-CC") == "52:54:00:aa:bb:cc"


@pytest.mark.parametrize(
    "given", [network.BRIDGE_MAC, network.TAP_MAC, "02-00-00-00-00-01", "ff:ff:ff:ff:ff:ff", "x; accept", "00:00:00:00:00:00"]
)
def test_an_address_that_no_guest_can_have_is_refused_here_too(given: str) -> None:
    with pytest.raises(Unsupported, match="interface default: MAC address"):
        mac_address("uid-1", "default", given)


def test_no_machine_derives_an_address_of_ours() -> None:
    """A hash that gives one of ours is hashed again."""
    plain = mac_address("uid-1", "default")
    derived = network.derived_mac("uid-1", "default", {plain})

    again = hashlib.sha256(hashlib.sha256(b"uid-1\0default").digest()).digest()
    assert derived == "02:" + again[:5].hex(":")
    assert derived == network.derived_mac("uid-1", "default", {plain})
    assert network.derived_mac("uid-1", "default", {plain, derived}) not in {plain, derived}
