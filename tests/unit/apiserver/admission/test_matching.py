"""Requests match webhooks, policies and bindings as in ``webhook/generic`` and ``policy/matching`` of ``k8s.io/apiserver``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from apiserver.admission.matching import Matching, matches, selects
from apiserver.admission.namespaces import Namespaces
from apiserver.apis.meta.errors import InternalError, NotFound, ServiceUnavailable, StatusError
from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.admission import Attributes
from tests.fakes.admission import asking
from tests.fakes.versions import OneVersion

V1 = Resource("g.test", "v1", "things", "Thing")
V2 = Resource("g.test", "v2", "things", "Thing")
RACKS = Resource("g.test", "v1", "racks", "Rack", namespaced=False)
ALL = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
OLD = {**ALL, "apiVersions": ["v1"]}
NEW = {**ALL, "apiVersions": ["v2"]}
TEAM_A = {"matchLabels": {"team": "a"}}
TEAM_B = {"matchLabels": {"team": "b"}}
BROKEN = {"matchExpressions": [{"key": "team", "operator": "Near"}]}


class _Namespaces:
    def __init__(self, error: StatusError | None = None) -> None:
        self._error = error

    async def get(self, name: str) -> Object:
        if self._error is not None:
            raise self._error
        return {"metadata": {"name": name, "labels": {"team": "a"}}}


class _Versions(OneVersion):
    def equivalents(self, resource: Resource) -> Sequence[Resource]:
        return (V1, V2) if resource in (V1, V2) else (resource,)

    def shown(self, obj: HubObject, target: Resource) -> Object:
        raise AssertionError("whoever matches converts nothing")


def namespaces(error: StatusError | None = None) -> Namespaces:
    return cast(Namespaces, _Namespaces(error))


def request(resource: Resource = V1, name: str = "t", labels: Any = None, old: Any = None, namespace: str = "ns") -> Attributes:
    before = None if old is None else {"metadata": {"name": name, "labels": old}}
    where = namespace if resource.namespaced else ""
    return asking("UPDATE", resource, "", where, name, obj={"metadata": {"name": name, "labels": labels}}, old=before)


def webhook(**given: Any) -> Matching:
    return Matching.of_webhook({"rules": [ALL], **given})


def policy(**given: Any) -> Matching:
    return Matching.of_resources({"resourceRules": [ALL], **given})


async def found(matching: Matching, attributes: Attributes, error: StatusError | None = None) -> Resource | None:
    return await matches(matching, attributes, namespaces(error), _Versions())


ABSENT, UNKNOWN = NotFound('namespaces "ns" not found'), ServiceUnavailable("cannot read namespace ns for admission: gone")


@pytest.mark.parametrize("read", [webhook, policy])
@pytest.mark.parametrize(("selector", "error"), [(TEAM_A, ABSENT), (TEAM_A, UNKNOWN), (BROKEN, None)])
async def test_object_selector_mismatch_hides_namespace_errors(read: Any, selector: Object, error: StatusError) -> None:
    matching = read(namespaceSelector=selector, objectSelector=TEAM_B)

    assert not await selects(matching, request(labels={"team": "a"}), namespaces(error))
    assert await found(matching, request(labels={"team": "a"}), error) is None


@pytest.mark.parametrize("read", [webhook, policy])
@pytest.mark.parametrize(
    ("selector", "error", "told"), [(TEAM_A, ABSENT, NotFound), (TEAM_A, UNKNOWN, InternalError), (BROKEN, None, InternalError)]
)
async def test_namespace_errors_are_raised_when_the_rest_matches(read: Any, selector: Object, error: StatusError, told: type) -> None:
    matching = read(namespaceSelector=selector, objectSelector=TEAM_B)

    with pytest.raises(told):
        await selects(matching, request(labels={"team": "b"}), namespaces(error))
    with pytest.raises(told):
        await found(matching, request(labels={"team": "b"}), error)


async def test_of_two_errors_the_namespaces_is_told() -> None:
    with pytest.raises(NotFound):
        await selects(webhook(namespaceSelector=TEAM_A, objectSelector=BROKEN), request(), namespaces(ABSENT))
    with pytest.raises(InternalError, match="selector"):
        await selects(webhook(namespaceSelector=TEAM_A, objectSelector=BROKEN), request(), namespaces())


async def test_an_error_of_what_the_rules_leave_out_is_not_told() -> None:
    assert await found(policy(resourceRules=[{**ALL, "resources": ["racks"]}], objectSelector=BROKEN), request()) is None
    assert await found(policy(excludeResourceRules=[ALL], objectSelector=BROKEN), request()) is None


@pytest.mark.parametrize(
    ("labels", "old", "expected"),
    [
        ({"team": "a"}, None, True),
        ({"team": "b"}, {"team": "a"}, True),
        ({"team": "a"}, {"team": "b"}, True),
        ({"team": "b"}, {"team": "b"}, False),
        (None, None, False),
        ("misshapen", {"team": "a"}, True),
        (["misshapen"], None, False),
    ],
)
async def test_the_new_object_or_the_old_one_has_to_match(labels: Any, old: Any, expected: bool) -> None:
    assert await selects(webhook(objectSelector=TEAM_A), request(labels=labels, old=old), namespaces()) is expected


async def test_namespace_labels_decide_except_for_cluster_objects() -> None:
    assert await selects(webhook(namespaceSelector=TEAM_A), request(), namespaces())
    assert not await selects(webhook(namespaceSelector=TEAM_B), request(), namespaces())
    assert await selects(webhook(namespaceSelector=TEAM_B), request(RACKS), namespaces(ABSENT))
    assert await selects(webhook(namespaceSelector=BROKEN), request(RACKS), namespaces())
    assert await selects(webhook(), request(), namespaces(ABSENT))


@pytest.mark.parametrize(
    ("given", "rules", "wanted"),
    [
        ({}, [NEW], V2),
        ({"matchPolicy": "Equivalent"}, [NEW], V2),
        ({"matchPolicy": None}, [NEW], V2),
        ({"matchPolicy": "Exact"}, [NEW], None),
        ({"matchPolicy": "Exact"}, [NEW, OLD], V1),
        ({}, [NEW, OLD], V1),
        ({}, [{**NEW, "operations": ["CREATE"]}], None),
        ({}, [{**NEW, "scope": "Cluster"}], None),
        ({}, [{**NEW, "scope": "Namespaced"}], V2),
    ],
)
async def test_equivalent_versions_count_unless_exact_ones_are_wanted(given: Object, rules: list[Object], wanted: Resource | None) -> None:
    hook, other = webhook(rules=rules, **given), policy(resourceRules=rules, **given)

    assert hook.named("UPDATE", V1, "", (V1, V2)) == wanted
    assert other.named("UPDATE", V1, "", (V1, V2)) == wanted
    assert await found(other, request()) == wanted


async def test_policy_without_rules_matches_all_and_webhook_none() -> None:
    assert Matching.of_webhook({}).named("UPDATE", V1, "", (V1, V2)) is None
    assert Matching.of_resources(None).named("UPDATE", V1, "", (V1, V2)) == V1
    assert await found(Matching.of_resources({}), request()) == V1


async def test_a_rule_may_be_for_some_names_and_an_index_asks_for_any() -> None:
    named = policy(resourceRules=[{**NEW, "resourceNames": ["t"]}])

    assert named.named("UPDATE", V1, "", (V1, V2)) == V2
    assert await found(named, request(name="t")) == V2
    assert await found(named, request(name="u")) is None


@pytest.mark.parametrize(
    ("excluded", "given", "expected"),
    [
        (ALL, {}, None),
        ({**ALL, "resourceNames": ["u"]}, {}, V1),
        ({**ALL, "resourceNames": ["t"]}, {}, None),
        (NEW, {}, None),
        (NEW, {"matchPolicy": "Exact"}, V1),
    ],
)
async def test_excluded_rules_apply_to_equivalent_versions(excluded: Object, given: Object, expected: Resource | None) -> None:
    assert await found(policy(excludeResourceRules=[excluded], **given), request()) == expected
