from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from apiserver.apis.meta import decoding
from apiserver.apis.virt import structure
from apiserver.apis.virt.lifecycle import migration_policies as policies
from apiserver.apis.virt.lifecycle.migration_policies import COPY_SECONDS, GIB, NO_POLICY, Defaults
from apiserver.apis.virt.v1alpha1 import migration_policy, status_validation
from apiserver.registry.virt.migration_policies import MigrationPolicyStrategy
from tests import hostile

FULL: dict[str, Any] = {
    "apiVersion": "kubevirt.io/v1alpha1",
    "kind": "MigrationPolicy",
    "metadata": {"name": "slow"},
    "spec": {
        "selectors": {
            "namespaceSelector": {
                "matchLabels": {"team": "a"},
                "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["test"]}],
            },
            "virtualMachineSelector": {
                "matchLabels": {"db": "1"},
                "matchExpressions": [{"key": "size", "operator": "In", "values": ["big", "huge"]}],
            },
        },
        "bandwidth": "100Mi",
        "maxDowntimeMilliseconds": 500,
        "parallelConnections": 2,
        "allowAutoConverge": True,
        "allowPostCopy": False,
        "allowPause": True,
        "completionTimeoutPerGiB": 300,
    },
}


def a_policy(name: str, machine: dict[str, Any] | None = None, namespace: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    selectors = {"virtualMachineSelector": machine, "namespaceSelector": namespace}
    return {"metadata": {"name": name}, "spec": {"selectors": {key: each for key, each in selectors.items() if each is not None}, **spec}}


def labelled(**wanted: str) -> dict[str, Any]:
    return {"matchLabels": wanted}


def chosen(*given: dict[str, Any], namespace: dict[str, str] | None = None, machine: dict[str, str] | None = None) -> str:
    found = policies.choose(given, namespace or {}, machine or {})
    return found["metadata"]["name"] if found else ""


def causes(**spec: Any) -> list[str]:
    return [each.path for each in migration_policy.validate({"metadata": {"name": "p"}, "spec": spec})]


def test_without_a_policy_the_clusters_defaults_hold() -> None:
    assert chosen() == ""
    assert chosen(a_policy("other", labelled(size="big")), machine={"size": "small"}) == ""
    assert policies.options(NO_POLICY, 1, Defaults()) == {
        "bandwidth": "0",
        "allowAutoConverge": False,
        "allowPause": False,
        "completionTimeoutSeconds": 150,
    }
    assert policies.options(NO_POLICY, GIB, Defaults("5Mi", True, True, 7)) == {
        "bandwidth": "5Mi",
        "allowAutoConverge": True,
        "allowPause": True,
        "completionTimeoutSeconds": 7,
    }


def test_policy_overrides_defaults_with_false_and_zero_too() -> None:
    given = a_policy("p", bandwidth=0, allowAutoConverge=False, allowPause=False, completionTimeoutPerGiB=10, maxDowntimeMilliseconds=500)
    found = policies.options({**given, "spec": {**given["spec"], "parallelConnections": 2}}, 4 * GIB + 1, Defaults("5Mi", True, True, 7))
    assert found == {
        "bandwidth": "0",
        "maxDowntimeMilliseconds": 500,
        "parallelConnections": 2,
        "allowAutoConverge": False,
        "allowPause": False,
        "completionTimeoutSeconds": 50,
    }


@pytest.mark.parametrize(
    ("policy", "copied", "seconds"),
    [
        ({}, 3, 600),
        ({}, 23, 3600),
        ({}, 24, 150 + COPY_SECONDS),
        ({}, 10_000, 150 + COPY_SECONDS),
        ({"bandwidth": "64Mi"}, 1024, 150 + 2 * 16 * 1024),
        ({"completionTimeoutPerGiB": 10}, 1023, 10_240),
    ],
    ids=["few", "a little less than an hour", "an hour", "a tenant's number", "as the bandwidth asks for", "the operator's word"],
)
def test_the_sizes_of_disks_give_a_migration_an_hour_at_most(policy: dict[str, Any], copied: int, seconds: int) -> None:
    """Tenants set the sizes of blank disks."""
    found = policies.options({"spec": policy}, GIB, Defaults(), copied_bytes=copied * GIB)
    assert found["completionTimeoutSeconds"] == seconds


def test_the_hour_is_added_to_the_time_of_all_the_memory() -> None:
    found = policies.options(NO_POLICY, 2 * GIB + 1, Defaults(), copied_bytes=10_000 * GIB)
    assert found["completionTimeoutSeconds"] == 450 + COPY_SECONDS


def test_bandwidth_timeout_is_rounded_up() -> None:
    found = policies.options({"spec": {"bandwidth": "64Mi"}}, GIB, Defaults(), copied_bytes=1024 * GIB + 1)
    assert found["completionTimeoutSeconds"] == 150 + 2 * 16 * 1024 + 1


def test_machine_without_memory_gets_the_minimum_timeout() -> None:
    """150 s: the status may not contain 0."""
    assert policies.options(NO_POLICY, 0, Defaults())["completionTimeoutSeconds"] == 150


def test_most_specific_policy_applies_and_ties_break_by_name() -> None:
    everything, big = a_policy("a"), a_policy("z", labelled(size="big"))
    both = a_policy("zz", labelled(size="big"), labelled(team="x"))
    machine, namespace = {"size": "big"}, {"team": "x"}
    assert chosen(everything, big, both, machine=machine, namespace=namespace) == "zz"
    assert chosen(everything, big, both, machine=machine) == "z"
    assert chosen(everything, big, both, namespace=namespace) == "a"
    assert chosen(a_policy("c", labelled(size="big")), a_policy("b", labelled(size="big")), machine=machine) == "b"
    assert chosen({"metadata": {"name": "bare"}, "spec": {}}) == "bare"


def test_a_policy_that_is_being_deleted_holds_no_more() -> None:
    leaving = a_policy("a")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert chosen(leaving, a_policy("b")) == "b"


@pytest.mark.parametrize(
    ("expression", "labels", "holds"),
    [
        ({"operator": "In", "values": ["b", "a"]}, {"k": "a"}, True),
        ({"operator": "In", "values": ["b"]}, {"k": "a"}, False),
        ({"operator": "NotIn", "values": ["b"]}, {}, True),
        ({"operator": "Exists"}, {"k": ""}, True),
        ({"operator": "DoesNotExist"}, {"k": ""}, False),
    ],
)
def test_expressions_choose_as_kubernetes_does(expression: dict[str, Any], labels: dict[str, str], holds: bool) -> None:
    policy = a_policy("p", {"matchExpressions": [{"key": "k", **expression}]})
    assert (chosen(policy, machine=labels) == "p") is holds
    assert (chosen(a_policy("p", None, policy["spec"]["selectors"]["virtualMachineSelector"]), namespace=labels) == "p") is holds


def test_namespaces_are_asked_for_only_where_a_policy_does() -> None:
    assert not policies.asks_for_namespaces([a_policy("a"), a_policy("b", labelled(x="y")), a_policy("c", None, {})])
    assert policies.asks_for_namespaces([a_policy("a"), a_policy("b", None, labelled(x="y"))])


@given(
    st.permutations(
        [a_policy(name, labelled(**dict.fromkeys(wanted, "1"))) for name, wanted in (("a", "x"), ("b", "xy"), ("c", "xy"), ("d", ""))]
    )
)
def test_the_order_in_which_policies_are_listed_does_not_matter(given: list[dict[str, Any]]) -> None:
    assert chosen(*given, machine={"x": "1", "y": "1"}) == "b"


def test_the_full_policy_is_good_and_has_every_field() -> None:
    assert migration_policy.validate(FULL) == []
    assert structure.of_migration_policy(FULL) == ()
    present = {".".join(step for step in path if isinstance(step, str)) for path in hostile.places(FULL)}
    assert {each for each in hostile.all_fields(migration_policy.MigrationPolicy) if each} <= present


def test_structure_and_models_judge_hostile_values_alike() -> None:
    def refused(case: hostile.Case) -> bool:
        if case.value == "half a surrogate pair":
            return True
        try:
            migration_policy.MigrationPolicy.model_validate({key: value for key, value in case.object.items() if key != "metadata"})
        except ValidationError as error:
            return any(each["type"] != "extra_forbidden" for each in error.errors())
        return False

    judged = [case for case in hostile.cases(FULL) if not case.path.startswith("metadata")]
    assert len(judged) > 100
    assert [case.name for case in judged if bool(structure.of_migration_policy(case.object)) != refused(case)] == []


def test_nothing_that_a_client_sends_breaks_the_rules() -> None:
    for case in hostile.cases(FULL):
        if not case.path.startswith("metadata") and case.value != "half a surrogate pair":
            obj: Any = {**case.object, "spec": case.object.get("spec")}
            strategy = MigrationPolicyStrategy()
            decoding.read(strategy.model, obj)
            strategy.prune(obj)
            strategy.validate(obj)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"bandwidth": "0"}, []),
        ({"bandwidth": 1048576}, []),
        ({"bandwidth": "1Ti"}, []),
        ({"bandwidth": "2048Ki"}, []),
        ({"bandwidth": "1023Ki"}, ["spec.bandwidth"]),
        ({"bandwidth": "1.5Mi"}, ["spec.bandwidth"]),
        ({"bandwidth": "200M"}, ["spec.bandwidth"]),
        ({"bandwidth": "-1"}, ["spec.bandwidth"]),
        ({"bandwidth": "2Ti"}, ["spec.bandwidth"]),
        ({"maxDowntimeMilliseconds": 0}, ["spec.maxDowntimeMilliseconds"]),
        ({"maxDowntimeMilliseconds": 60_001}, ["spec.maxDowntimeMilliseconds"]),
        ({"parallelConnections": 0}, ["spec.parallelConnections"]),
        ({"parallelConnections": 5}, ["spec.parallelConnections"]),
        ({"completionTimeoutPerGiB": 0}, ["spec.completionTimeoutPerGiB"]),
        ({"completionTimeoutPerGiB": 86_401}, ["spec.completionTimeoutPerGiB"]),
        ({"completionTimeoutPerGiB": 86_400, "parallelConnections": 4, "maxDowntimeMilliseconds": 60_000}, []),
        ({"allowPostCopy": False}, []),
        ({"allowPostCopy": True}, ["spec.allowPostCopy"]),
        (
            {"bandwidth": "1", "parallelConnections": 9, "allowPostCopy": True},
            ["spec.bandwidth", "spec.parallelConnections", "spec.allowPostCopy"],
        ),
    ],
)
def test_numbers_that_libvirt_would_refuse_are_refused_here(spec: dict[str, Any], fields: list[str]) -> None:
    assert causes(**spec) == fields


@pytest.mark.parametrize(
    ("bandwidth", "said"),
    [
        ("-1", "must be 0 (no limit) or from 1Mi to 1Ti"),
        ("2Ti", "must be 0 (no limit) or from 1Mi to 1Ti"),
        ("1.5Mi", "must be whole MiB, such as 1Mi"),
        ("200M", "must be whole MiB, such as 190Mi"),
    ],
)
def test_a_bandwidth_that_is_refused_says_what_may_be(bandwidth: str, said: str) -> None:
    (error,) = MigrationPolicyStrategy().validate(a_policy("p", bandwidth=bandwidth))
    assert error.detail == said


def test_a_bandwidth_that_a_release_before_took_may_stay() -> None:
    strategy, old = MigrationPolicyStrategy(), a_policy("p", bandwidth="1.5Mi")
    assert strategy.validate_update(a_policy("p", bandwidth="1.5Mi", parallelConnections=2), old) == []
    for new in (a_policy("p", bandwidth="1.6Mi"), a_policy("p", bandwidth="1.5Mi", parallelConnections=9)):
        assert len(strategy.validate_update(new, old)) == 1


@pytest.mark.parametrize("selector", ["namespaceSelector", "virtualMachineSelector"])
@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({}, []),
        ({"matchLabels": {"a b": "c"}}, ["matchLabels"]),
        ({"matchLabels": {"a": "c" * 64}}, ["matchLabels"]),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, ["matchExpressions[0].values"]),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}, ["matchExpressions[0].values"]),
        ({"matchExpressions": [{"key": "", "operator": "Exists"}]}, ["matchExpressions[0].key", "matchExpressions[0].key"]),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["ok", "not ok"]}]}, ["matchExpressions[0].values[1]"]),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["v"] * 65}]}, ["matchExpressions[0].values"]),
        ({"matchLabels": {f"l{number}": "" for number in range(33)}}, [""]),
    ],
)
def test_selectors_are_judged_as_those_of_kubernetes(selector: str, given: dict[str, Any], fields: list[str]) -> None:
    place = f"spec.selectors.{selector}"
    found = causes(selectors={selector: given})
    assert set(found) == {f"{place}.{each}".rstrip(".") for each in fields}


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"bandwidth": "0", "completionTimeoutSeconds": 1}, []),
        ({"bandwidth": "-5"}, ["status.options.bandwidth"]),
        (
            {"maxDowntimeMilliseconds": 0, "parallelConnections": 99},
            ["status.options.maxDowntimeMilliseconds", "status.options.parallelConnections"],
        ),
        ({"completionTimeoutSeconds": 0}, ["status.options.completionTimeoutSeconds"]),
    ],
)
def test_options_of_a_status_keep_the_same_bounds(options: dict[str, Any], fields: list[str]) -> None:
    found = status_validation.validate_migration_status({"status": {"phase": "Running", "policy": "p", "options": options}}, {})
    assert [each.path for each in found] == fields


def test_options_from_a_policy_are_a_valid_status() -> None:
    status = {"phase": "Scheduling", "policy": "slow", "options": policies.options(FULL, 3 * GIB, Defaults())}
    assert status_validation.validate_migration_status({"status": status}, {}) == []
    assert status["options"] == {
        "bandwidth": "100Mi",
        "maxDowntimeMilliseconds": 500,
        "parallelConnections": 2,
        "allowAutoConverge": True,
        "allowPause": True,
        "completionTimeoutSeconds": 900,
    }


def test_a_row_of_the_table_has_a_cell_for_each_column() -> None:
    strategy = MigrationPolicyStrategy()
    now: Any = None
    assert strategy.cells(FULL, now) == ["100Mi", 300, True, True, 500, 2]
    assert len(strategy.columns()) == len(strategy.cells({"spec": {}}, now))
