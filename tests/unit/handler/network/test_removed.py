from __future__ import annotations

import re

import pytest

from apiserver.apis.virt.places import network
from apiserver.apis.virt.spec import attachments
from handler.network import removed, setup
from handler.network.binding import Wanted

VM = {
    "metadata": {"uid": "3f0e", "namespace": "default"},
    "spec": {"domain": {"devices": {"interfaces": [{"name": "default"}, {"name": "lan", "network": "lan"}]}}},
}
DEFAULT, LAN = setup.wanted(VM)
LINK = attachments.link_of_network("lan", "default/lan")


def deleted(wanted: Wanted) -> list[str]:
    (line,) = (each for each in removed.script(wanted).splitlines() if each.startswith("for link in "))
    return line.removeprefix("for link in ").removesuffix("; do").split()


def test_tap_goes_first_and_all_tables_go() -> None:
    assert deleted(DEFAULT) == [network.TAP, network.CONTROL_TAP, network.BRIDGE]
    assert deleted(LAN) == [attachments.tap("lan"), attachments.bridge("lan")]
    for wanted, families, table in (
        (DEFAULT, ("netdev", "ip", "ip6"), "kubevirt"),
        (LAN, ("netdev", "bridge", "inet"), f"kubevirt_{LAN.tap}"),
    ):
        for family in families:
            assert f"nft delete table {family} {table} " in removed.script(wanted)


def test_pod_gets_its_ipv6_loopback_back() -> None:
    assert "ip route replace local ::1/128 dev lo table local" in removed.script(DEFAULT)
    assert "::1" not in removed.script(LAN)


def test_link_is_parked_under_the_name_of_its_network() -> None:
    assert f"ip link set dev {LAN.uplink} name {LINK}" in removed.script(LAN)
    (again,) = setup.with_links([LAN], {LINK})
    assert (f"ip link set dev {LINK} down" in removed.script(again), " name " in removed.script(again)) == (True, False)
    assert "link set" not in removed.script(DEFAULT)


def test_card_of_a_plugin_has_no_parts_of_the_pods_network() -> None:
    (card,) = setup.wanted({**VM, "spec": {"domain": {"devices": {"interfaces": [{"name": "own", "type": "plugin", "plugin": "san"}]}}}})
    assert deleted(card) == [attachments.tap("own"), attachments.bridge("own")]
    assert "::1" not in removed.script(card)
    assert "link set" not in removed.script(card)


def test_interfaces_use_the_link_of_their_network_first() -> None:
    assert setup.with_links([DEFAULT, LAN], {LAN.uplink}) == (DEFAULT, LAN)
    assert [each.uplink for each in setup.with_links([DEFAULT, LAN], {LAN.uplink, LINK})] == ["eth0", LINK]


def test_coming_card_does_not_use_another_networks_link() -> None:
    advice = (
        "the pod has no network default/lan; create this NetworkAttachmentDefinition unless it exists, then migrate the machine "
        "(kubectl virt migrate) or restart it"
    )
    with pytest.raises(setup.NotInPod, match=f"^{re.escape(advice)}$"):
        setup.with_links([LAN], {LAN.uplink}, {"lan"})
    assert setup.with_links([LAN], {LINK}, {"lan"})[0].uplink == LINK
    assert setup.with_links([DEFAULT], set(), {"default"}) == (DEFAULT,)
