from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict
from typing import Any

import pytest

from handler.network import binding, bindings, setup
from handler.network.binding import Link, Observed, Plan, Unsupported

LINKS: list[dict[str, Any]] = [
    {
        "ifname": "eth0",
        "address": "0a:58:0a:f4:01:07",
        "mtu": 1450,
        "addr_info": [
            {"family": "inet", "local": "10.0.0.9", "prefixlen": 24, "scope": "global"},
            {"family": "inet6", "local": "fd00::9", "prefixlen": 64, "scope": "global"},
            {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
            {"family": "inet6", "local": "fd00::a", "prefixlen": 64, "scope": "global", "dynamic": True},
            {"family": "inet6", "local": "fd00::b", "prefixlen": 64, "scope": "global", "tentative": True, "dadfailed": True},
        ],
    },
    {"ifname": "lo"},
]
EMPTY = Observed((Link("eth0", "0a:58:0a:f4:01:07", 1450, ("10.0.0.9/24",)),))


def a_vm(*interfaces: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"uid": "3f0e"}, "spec": {"domain": {"devices": {"interfaces": list(interfaces)}}}}


def plans(vm: dict[str, Any], observed: Observed) -> tuple[Plan, ...]:
    return tuple(bindings.plan(each, observed) for each in setup.wanted(vm))


def test_links_of_a_namespace_are_parsed() -> None:
    assert binding.observe(LINKS) == Observed(
        (Link("eth0", "0a:58:0a:f4:01:07", 1450, ("10.0.0.9/24", "fd00::9/64")), Link("lo", "", binding.DEFAULT_MTU, ()))
    )


def test_network_plans_are_plain_data() -> None:
    vm = a_vm({"name": "lan", "type": "masquerade", "mac": "52-54-00-AA-BB-CC"})
    (wanted,), (plan,) = setup.wanted(vm), plans(vm, EMPTY)
    for each in (wanted, EMPTY, plan):
        json.dumps(asdict(each))
    assert (wanted.name, wanted.mac, wanted.tap) == (plan.interface.name, plan.interface.mac, plan.interface.tap)


@pytest.mark.parametrize(("address", "first"), [("10.0.0.9", False), ("fd00::9", True), (None, False)])
def test_the_pods_first_address_says_which_family_comes_first(address: str | None, first: bool) -> None:
    (wanted,) = setup.wanted({**a_vm({"name": "a"}), "status": {"podIP": address}})
    assert wanted.ipv6_first == first


@pytest.mark.parametrize("kind", ["masquerade", "bridge", "passt"])
@pytest.mark.parametrize("first", ["10.0.0.9", "fd00::9"])
def test_first_pod_address_stays_first_after_status_writes(kind: str, first: str) -> None:
    """``podIP`` decides first; afterwards the first address of the binding does."""
    both = Observed((dataclasses.replace(EMPTY.links[0], addresses=("10.0.0.9/24", "fd00::9/64")),))
    vm = {**a_vm({"name": "a", "type": kind, **({"ports": []} if kind == "passt" else {})}), "status": {"podIP": first}}
    for _ in range(2):
        (plan,) = plans(vm, both)
        assert plan.interface.addresses[0] == first
        assert set(plan.interface.addresses) == {"10.0.0.9", "fd00::9"}
        vm = {**vm, "status": {"podIP": plan.interface.addresses[0]}}


def test_a_machine_without_interfaces_wants_no_network() -> None:
    assert setup.wanted(a_vm()) == ()
    assert plans(a_vm(), Observed(())) == ()


@pytest.mark.parametrize(
    ("interfaces", "said"),
    [
        ([{"name": "a"}, {"name": "b"}], "only one interface"),
        ([{"name": "a", "type": "carrier-pigeon"}], "interface a: type carrier-pigeon is not supported"),
        ([{"name": "a", "mac": "02:00:00:00:00:01"}], "interface a: MAC address"),
    ],
)
def test_unsupported_interfaces_are_reported_before_any_change(interfaces: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        plans(a_vm(*interfaces), EMPTY)
