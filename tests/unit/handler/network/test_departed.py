from __future__ import annotations

import pytest

from apiserver.apis.virt.places import network
from handler.network import departed
from handler.network.binding import Link, Observed

POD, POD6 = "10.244.0.5", "fd00:10::5"
OTHER, OTHER6 = "10.244.1.9", "fd00:10::1:9"
GATEWAYS = (f"{network.GATEWAY}/24", f"{network.GATEWAY6}/128")


def a_pod(addresses: tuple[str, ...] = (f"{POD}/24", f"{POD6}/64"), gateways: tuple[str, ...] = GATEWAYS) -> Observed:
    return Observed((Link("eth0", "", 1500, addresses), Link(network.BRIDGE, network.BRIDGE_MAC, 1500, gateways)))


def translations(rules: str) -> list[str]:
    return [line.strip() for line in rules.splitlines() if "dnat to" in line or "snat to" in line]


def test_each_family_leads_to_the_address_of_its_own() -> None:
    assert translations(departed.rules(a_pod(), (OTHER6, OTHER))) == [
        f'iifname "eth0" ip daddr {{ {POD} }} dnat to {OTHER}',
        f'oifname "eth0" ip daddr {OTHER} ct status dnat snat to {POD}',
        f'iifname "eth0" ip6 daddr {{ {POD6} }} dnat to {OTHER6}',
        f'oifname "eth0" ip6 daddr {OTHER6} ct status dnat snat to {POD6}',
    ]


def test_all_pod_addresses_are_forwarded_to_the_first_target() -> None:
    assert translations(departed.rules(a_pod((f"{POD}/24", "10.244.0.6/24")), (OTHER, "10.244.1.10"))) == [
        f'iifname "eth0" ip daddr {{ {POD}, 10.244.0.6 }} dnat to {OTHER}',
        f'oifname "eth0" ip daddr {OTHER} ct status dnat snat to {POD}',
    ]


@pytest.mark.parametrize(
    ("observed", "others"),
    [
        (a_pod(), ()),
        (a_pod((f"{POD}/24",)), (OTHER6,)),
        (a_pod(), (POD, POD6)),
        (a_pod(gateways=(f"{network.BRIDGED_SERVER}/32",)), (OTHER,)),
        (a_pod(gateways=(f"{network.GATEWAY6}/128",)), (OTHER,)),
        (a_pod(gateways=("10.0.0.1/24",)), (OTHER,)),
        (Observed((Link("eth0", "", 1500, (f"{POD}/24",)),)), (OTHER,)),
        (Observed((Link(network.BRIDGE, "", 1500, GATEWAYS),)), (OTHER,)),
    ],
    ids=[
        "no address",
        "none of the family",
        "its own",
        "the guest has the pod's place",
        "of the other family",
        "another gateway",
        "no guest",
        "no network",
    ],
)
def test_where_nothing_can_be_passed_on_there_are_no_rules(observed: Observed, others: tuple[str, ...]) -> None:
    assert departed.rules(observed, others) == ""


def test_the_rules_are_replaced_in_one_transaction() -> None:
    lines = departed.rules(a_pod(), (OTHER, OTHER6)).splitlines()
    for family in ("ip", "ip6"):
        position = lines.index(f"table {family} {departed.TABLE} {{}}")
        assert lines[position + 1 : position + 3] == [f"delete table {family} {departed.TABLE}", f"table {family} {departed.TABLE} {{"]


@pytest.mark.parametrize(
    "address",
    """ |x|10.0.0.0/8|0.0.0.0|127.0.0.1|169.254.169.254|224.0.0.1|255.255.255.255|240.0.0.1|::|::1|fe80::1|fe80::1%eth0|fd00::1%eth0|ff02::1
    ::ffff:127.0.0.1|::ffff:10.0.0.1|10.0.0.1; drop|fd00:ec2::254|fd20:ce::254|100.100.100.200|168.63.129.16|0.1.2.3
    64:ff9b::a9fe:a9fe|2002:a9fe:a9fe::1""".replace("\n    ", "|").split("|"),
)
def test_nothing_is_passed_on_to_what_no_pod_has(address: str) -> None:
    """A hostile node reports its pod's address."""
    assert not departed.may_be_a_pods(address)
    assert departed.rules(a_pod(), (address,)) == ""


@pytest.mark.parametrize("address", [OTHER, OTHER6, "192.168.3.4", "100.64.0.9", "8.8.8.8", "2001:db8::5", "fd00:ec3::254"])
def test_every_address_that_a_pod_can_have_will_do(address: str) -> None:
    assert departed.may_be_a_pods(address)
