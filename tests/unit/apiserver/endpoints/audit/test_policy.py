"""AUD-01: the rule of an audit policy that applies to a request."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.users import User
from apiserver.endpoints import requestinfo
from apiserver.endpoints.audit.policy import Level, Stage, parse

PATH = "/apis/example.com/v1/namespaces/a/widgets"
ALICE = User("alice", ("team", "system:authenticated"))


def policy(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more}


@pytest.mark.parametrize(
    ("rule", "method", "path", "matches"),
    [
        ({}, "GET", PATH, True),
        ({"users": ["alice"]}, "GET", PATH, True),
        ({"users": ["bob"]}, "GET", PATH, False),
        ({"userGroups": ["others", "team"]}, "GET", PATH, True),
        ({"userGroups": ["others"]}, "GET", PATH, False),
        ({"verbs": ["list"]}, "GET", PATH, True),
        ({"verbs": ["get"]}, "GET", PATH, False),
        ({"namespaces": ["a"]}, "GET", PATH, True),
        ({"namespaces": ["b"]}, "GET", PATH, False),
        ({"namespaces": [""]}, "GET", "/apis/example.com/v1/widgets", True),
        ({"namespaces": ["a"]}, "GET", "/metrics", False),
        ({"resources": [{"group": "example.com"}]}, "GET", PATH, True),
        ({"resources": [{"group": "*", "resources": ["widgets"]}]}, "GET", PATH, True),
        ({"resources": [{"group": "other.com", "resources": ["widgets"]}]}, "GET", PATH, False),
        ({"resources": [{"group": "example.com", "resources": ["widgets"]}]}, "GET", f"{PATH}/x/status", False),
        ({"resources": [{"group": "example.com", "resources": ["widgets/status"]}]}, "GET", f"{PATH}/x/status", True),
        ({"resources": [{"group": "example.com", "resources": ["widgets/*"]}]}, "GET", f"{PATH}/x/status", True),
        ({"resources": [{"group": "example.com", "resources": ["*/status"]}]}, "GET", f"{PATH}/x/status", True),
        ({"resources": [{"group": "example.com", "resources": ["*"]}]}, "GET", f"{PATH}/x/status", True),
        ({"resources": [{"group": "example.com", "resources": ["widgets"], "resourceNames": ["x"]}]}, "GET", f"{PATH}/x", True),
        ({"resources": [{"group": "example.com", "resources": ["widgets"], "resourceNames": ["y"]}]}, "GET", f"{PATH}/x", False),
        ({"resources": [{"group": "example.com"}]}, "GET", "/metrics", False),
        ({"nonResourceURLs": ["/metrics"]}, "GET", "/metrics", True),
        ({"nonResourceURLs": ["/health*"]}, "GET", "/healthz", True),
        ({"nonResourceURLs": ["*"]}, "GET", "/version", True),
        ({"nonResourceURLs": ["/metrics"]}, "GET", "/version", False),
        ({"nonResourceURLs": ["*"]}, "GET", PATH, False),
    ],
)
def test_a_rule_matches_as_in_go(rule: dict[str, Any], method: str, path: str, *, matches: bool) -> None:
    parsed = parse(policy({"level": "Metadata", **rule}))
    verdict = parsed.verdict(ALICE, requestinfo.parse(method, path, {}))
    assert (verdict.level is Level.METADATA) == matches


def test_the_first_rule_that_matches_decides_and_stages_add_up() -> None:
    parsed = parse(
        policy(
            {"level": "None", "verbs": ["watch"]},
            {"level": "Request", "omitStages": ["RequestReceived"], "omitManagedFields": False},
            {"level": "RequestResponse"},
            omitStages=["Panic"],
            omitManagedFields=True,
        )
    )
    watch = requestinfo.parse("GET", PATH, {"watch": "1"})
    assert parsed.verdict(ALICE, watch).level is Level.NONE
    verdict = parsed.verdict(ALICE, requestinfo.parse("GET", PATH, {}))
    assert verdict.level is Level.REQUEST
    assert verdict.omit_stages == {Stage.REQUEST_RECEIVED, Stage.PANIC}
    assert not verdict.omit_managed_fields


def test_what_no_rule_matches_is_not_recorded() -> None:
    assert parse(policy({"level": "Metadata", "users": ["bob"]})).verdict(ALICE, requestinfo.parse("GET", PATH, {})).level is Level.NONE


def test_a_verdict_is_of_one_user() -> None:
    parsed = parse(policy({"level": "Metadata", "users": ["alice"]}))
    info = requestinfo.parse("GET", PATH, {})
    assert parsed.verdict(ALICE, info).level is Level.METADATA
    assert parsed.verdict(User("bob"), info).level is Level.NONE


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"kind": "Policy"}, "kind Policy in audit.k8s.io/v1"),
        (policy(), "rules: Required"),
        (policy({"level": "Everything"}), r"rules\[0\].level"),
        (policy({}), r"rules\[0\].level"),
        (policy({"level": "None", "nonResourceURLs": ["metrics"]}), "must begin with '/'"),
        (policy({"level": "None", "nonResourceURLs": ["/a*b"]}), "last character"),
        (policy({"level": "None", "nonResourceURLs": ["/a"], "namespaces": ["b"]}), "cannot apply to both"),
        (policy({"level": "None", "resources": [{"group": "apps/v1"}]}), "group: 'apps/v1'"),
        (policy({"level": "None", "resources": [{"group": "apps", "resourceNames": ["x"]}]}), "requires at least one resource"),
        (policy({"level": "None", "omitStages": ["Later"]}), "allowed stages"),
        (policy({"level": "None", "user": ["x"]}), "no such field"),
        (policy({"level": "None", "users": "x"}), "no list of strings"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_field(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(document)
