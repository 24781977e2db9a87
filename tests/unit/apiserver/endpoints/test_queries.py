from __future__ import annotations

import pytest

from apiserver.apis.meta.errors import BadRequest, Invalid
from apiserver.endpoints import queries
from apiserver.registry.generic.options import NOBODY, DeleteOptions


@pytest.mark.parametrize(
    ("text", "true"), [(None, False), ("", True), ("true", True), ("True", True), ("1", True), ("x", True), ("0", False), ("False", False)]
)
def test_any_value_but_false_and_zero_is_true(text: str | None, *, true: bool) -> None:
    assert queries.truth(text) is true


@pytest.mark.parametrize("text", ["x", "1.5", "1_0", "9" * 30])
def test_numbers_are_decimal(text: str) -> None:
    with pytest.raises(BadRequest):
        queries.integer({"limit": text}, "limit")


def test_the_body_of_a_delete_wins_over_the_query() -> None:
    body = {
        "kind": "DeleteOptions",
        "propagationPolicy": "Orphan",
        "preconditions": {"uid": "u"},
        "dryRun": ["All"],
        "gracePeriodSeconds": 0,
    }
    given = queries.delete_options({"propagationPolicy": "Foreground"}, [], body)
    assert given == DeleteOptions(policy="Orphan", uid="u", dry_run=True, has_preconditions=True, grace_period_seconds=0)


def test_admission_sees_exactly_the_given_delete_options() -> None:
    shown = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    assert queries.delete_options({}, [], {}).to_json() == shown
    assert queries.delete_options({"gracePeriodSeconds": "5"}, [], {}).to_json() == shown | {"gracePeriodSeconds": 5}
    said = {"gracePeriodSeconds": 0, "preconditions": {}}
    assert queries.delete_options({}, [], said).to_json() == shown | said


@pytest.mark.parametrize("given", [{"gracePeriodSeconds": 0}, {"preconditions": {}}])
def test_unread_deletion_allows_no_other_option(given: dict[str, object]) -> None:
    with pytest.raises(Invalid, match=f"cannot be set together with .{next(iter(given))}"):
        queries.delete_options({}, [], {"ignoreStoreReadErrorWithClusterBreakingPotential": True} | given)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"kind": "Pod"}, BadRequest),
        ({"kind": {}}, BadRequest),
        ({"kind": ["DeleteOptions"]}, BadRequest),
        ({"preconditions": ["uid"]}, BadRequest),
        ({"preconditions": {"uid": 5}}, BadRequest),
        ({"dryRun": "All"}, BadRequest),
        ({"gracePeriodSeconds": True}, BadRequest),
        ({"dryRun": ["Some"]}, Invalid),
        ({"propagationPolicy": "x"}, Invalid),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, Invalid),
    ],
)
def test_wrong_delete_options_are_refused(body: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        queries.delete_options({}, [], body)


def test_wrong_write_options_are_refused_together() -> None:
    query = {"fieldValidation": "x", "fieldManager": "m" * 129, "force": "true"}
    with pytest.raises(Invalid) as refused:
        queries.write_options(query, ["Some"], NOBODY, kind="PatchOptions")
    assert {each.field for each in refused.value.details.causes} == {"dryRun", "fieldValidation", "fieldManager", "force"}


def test_a_timeout_is_a_go_duration_within_the_limit() -> None:
    assert queries.timeout({}, 60) == 60
    assert queries.timeout({"timeout": "1m30s"}, 60) == 60
    assert queries.timeout({"timeout": "500ms"}, 60) == 0.5
    assert queries.timeout({"timeout": "0"}, 60) == 60
    with pytest.raises(BadRequest):
        queries.timeout({"timeout": "soon"}, 60)
