from __future__ import annotations

from tests import order

SECONDS = {
    "cluster/test_claims.py": 136.0,
    "cluster/test_admission.py": 17.0,
    "host/handler/test_dhcp.py": 10.0,
    "host/launcher/test_life.py": 8.0,
    "host/launcher/test_pauses.py": 7.0,
    "component/handler/test_probes.py": 32.0,
}


def test_groups_begin_by_turn_and_the_longest_first() -> None:
    ordered = [
        "tests/cluster/test_claims.py::test_b",
        "tests/cluster/test_claims.py::test_a",
        "tests/cluster/test_admission.py::test_a",
        "tests/cluster/test_new.py::test_a",
        "tests/cluster/test_drain.py::test_a",
        "tests/host/launcher/test_pauses.py::test_a",
        "tests/host/launcher/test_life.py::test_a",
        "tests/host/handler/test_dhcp.py::test_a",
        "tests/reference_server/test_rows.py::test_a",
        "tests/component/handler/test_probes.py::test_a",
        "tests/component/handler/test_agent.py::test_a",
    ]
    mixed = [*ordered[6:], *ordered[2:5], *ordered[:2], ordered[5]]
    rank = order.rank(SECONDS)
    assert [order.group(each) for each in sorted(mixed, key=rank)] == [order.group(each) for each in ordered]
    assert [each for each in sorted(mixed, key=rank) if "claims" in each] == ordered[:2]


def test_modules_that_cannot_run_at_once_are_one_group() -> None:
    assert order.group("tests/cluster/test_drain.py::test_a") == order.group("tests/cluster/test_upgrade.py::test_b[x]")
    assert order.group("tests/host/launcher/test_life.py::test_a") != order.group("tests/host/handler/test_dhcp.py::test_a")
    assert order.group("tests/cluster/test_claims.py::test_a") != order.group("tests/cluster/test_owners.py::test_a")
