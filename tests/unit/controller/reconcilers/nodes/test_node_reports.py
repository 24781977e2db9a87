from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.core.resources import LEASES, NODES
from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Promise
from apiserver.apis.virt.places import names, node_states
from apiserver.client.informer import Informer
from controller.reconcilers.nodes.node_reports import (
    INCOMPATIBLE,
    Census,
    NodeReports,
    SignsOfLife,
    Unreachable,
    protocol_of,
    trim_lease,
    unreachable_of,
)


class Elapsed:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_lease(renewed: str, node: str = "node1", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": names.handler_lease(node)}, "spec": {"renewTime": renewed, "leaseDurationSeconds": 40, **spec}}


@pytest.fixture
def elapsed() -> Elapsed:
    return Elapsed()


@pytest.fixture
def signs(elapsed: Elapsed) -> SignsOfLife:
    return SignsOfLife(elapsed)


@pytest.mark.parametrize("renewed", ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"])
def test_lease_is_valid_from_its_observed_change(signs: SignsOfLife, elapsed: Elapsed, renewed: str) -> None:
    signs.lease_seen(a_lease(renewed))
    assert signs.left("node1") == 40.0
    elapsed.now += 39
    assert signs.left("node1") == 1.0
    elapsed.now += 1
    assert signs.left("node1") == 0.0
    signs.lease_seen(a_lease("1971-01-01T00:00:00.000000Z"))
    assert signs.left("node1") == 40.0


def test_a_lease_that_changed_in_something_else_was_not_renewed(signs: SignsOfLife, elapsed: Elapsed) -> None:
    signs.lease_seen(a_lease("a"))
    elapsed.now += 30
    signs.lease_seen(a_lease("a", holderIdentity="somebody"))
    assert signs.left("node1") == 10.0
    for seconds in (60, 50):
        signs.lease_seen(a_lease("a", leaseDurationSeconds=seconds))
        assert signs.left("node1") == seconds - 30.0
    signs.lease_seen(a_lease("b", leaseDurationSeconds=None))
    assert signs.left("node1") == 40.0


def test_no_lease_holds_for_longer_than_two_minutes(signs: SignsOfLife, elapsed: Elapsed) -> None:
    signs.lease_seen(a_lease("a", leaseDurationSeconds=2**31 - 1))
    elapsed.now += 119
    assert signs.left("node1") == 1.0
    elapsed.now += 1
    assert signs.left("node1") == 0.0


def test_missing_or_deleted_lease_gives_no_time(signs: SignsOfLife) -> None:
    assert signs.left("node1") == 0.0
    signs.lease_seen(a_lease("a"))
    assert signs.left("node2") == 0.0
    signs.lease_gone(a_lease("a"))
    assert signs.left("node1") == 0.0


def test_another_sign_of_life_counts_as_long_as_a_renewal(signs: SignsOfLife, elapsed: Elapsed) -> None:
    signs.heard("node2")
    assert signs.left("node2") == 40.0
    signs.lease_seen(a_lease("a", leaseDurationSeconds=20))
    elapsed.now += 25
    signs.heard("node1")
    assert signs.left("node1") == 20.0
    elapsed.now += 19
    signs.lease_seen(a_lease("a", leaseDurationSeconds=20))
    assert signs.left("node1") == 1.0


def test_kubelet_is_unreachable_when_ready_is_unknown() -> None:
    assert node_states.kubelet_is_unreachable(None)
    assert [
        node_states.kubelet_is_unreachable({"status": {"conditions": [{"type": "Ready", "status": each}]}})
        for each in ("True", "False", "Unknown")
    ] == [
        False,
        False,
        True,
    ]


def test_of_a_lease_only_its_renewal_is_kept() -> None:
    lease = a_lease("a", holderIdentity="node1")
    lease["metadata"] |= {"namespace": "kubevirt", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "managedFields": []}
    assert trim_lease(lease) == {
        "metadata": {"name": "virt-handler-node1", "namespace": "kubevirt", "uid": "u", "resourceVersion": "7"},
        "spec": {"renewTime": "a", "leaseDurationSeconds": 40},
    }


def test_trimmed_lease_keeps_its_protocol_versions() -> None:
    for text, known in (("1", []), ("2", [INCOMPATIBLE]), ("1" * 100_000, [INCOMPATIBLE])):
        lease = a_lease("a")
        lease["metadata"]["annotations"] = {"kubevirt.io/contract-versions": text, "another": "x" * 100_000}
        assert protocol_of(trim_lease(lease)) == known
        assert len(str(trim_lease(lease))) < 400
    assert protocol_of(trim_lease(a_lease("a"))) == []


@pytest.mark.parametrize(
    ("left", "missing", "off", "unreachable"),
    [
        ({}, set(), {"node9"}, Unreachable()),
        ({}, {"node9"}, set(), Unreachable()),
        ({"node1": 3.5}, set(), {"node1"}, Unreachable(of_kubelet={"node1": 3.5})),
        ({"node1": 3.5}, {"node1"}, set(), Unreachable(of_kubelet={"node1": 3.5})),
        ({"node1": 0.0}, set(), set(), Unreachable(whole=frozenset({"node1"}))),
        ({"node1": 0.0}, set(), {"node1"}, Unreachable(whole=frozenset({"node1"}), off=frozenset({"node1"}))),
        (
            {"node1": 0.0, "node2": 0.0, "node3": 1.0},
            {"node2", "node9"},
            {"node3"},
            Unreachable(frozenset({"node1", "node2"}), {"node3": 1.0}, frozenset({"node2"}), frozenset({"node2"})),
        ),
    ],
)
def test_a_node_is_silent_when_neither_of_its_two_gives_a_sign(
    left: dict[str, float], missing: set[str], off: set[str], unreachable: Unreachable
) -> None:
    assert unreachable_of(left, missing=missing, off=off) == unreachable


def test_a_guardians_lease_says_that_its_node_is_virtual() -> None:
    no_client: Any = None
    guardians = Informer(no_client, LEASES)
    reports = NodeReports(no_client, Informer(no_client, NODES), Informer(no_client, LEASES), "ns", Elapsed(), guardians)
    for name, virtual in (("a", True), ("b", False)):
        promise = Promise(withdrawn=virtual, virtual=virtual)
        guardians.remember(guards.lease(name, "ns", promise, "2026-01-01T00:00:00.000000Z", None))
    assert [reports.is_virtual(each) for each in ("a", "b", "c")] == [True, False, False]
    assert [reports.promised_pods(each) for each in ("a", "b", "c")] == [None, frozenset(), None]


def test_census_counts_no_fenced_node(elapsed: Elapsed) -> None:
    """Otherwise the next lost node would not be fenced."""
    no_client: Any = None
    nodes, leases = Informer(no_client, NODES), Informer(no_client, LEASES)
    reports = NodeReports(no_client, nodes, leases, "kubevirt", elapsed)
    taint = {"key": node_states.OFF_TAINT, "effect": "NoExecute"}
    for name, ready, taints in (("on", "True", []), ("lost", "Unknown", []), ("fenced", "Unknown", [taint]), ("returned", "True", [taint])):
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        nodes.remember({"metadata": {"name": name}, "spec": {"taints": taints}, "status": status})
        leases.remember(a_lease("a", name))
    leases.remember(a_lease("a", "deleted"))
    assert reports.census() == Census(reporting=2, unreachable=0)
    elapsed.now += 40
    leases.remember(a_lease("b", "on"))
    leases.remember(a_lease("b", "returned"))
    assert reports.census() == Census(reporting=1, unreachable=1)
