from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from apiserver.apis.meta.errors import BadRequest, Forbidden
from apiserver.apis.meta.users import User
from apiserver.endpoints import requestinfo
from apiserver.endpoints.filters.authorization import Decision
from apiserver.endpoints.filters.impersonation import Impersonation, wants
from apiserver.endpoints.http.heads import Fields, Head
from apiserver.endpoints.http.messages import Request
from apiserver.endpoints.requestinfo import RequestInfo

GET = requestinfo.parse("GET", "/apis/example.com/v1/namespaces/a/widgets/x", {})
ALICE = User("alice", ("system:authenticated",))
Asked = tuple[str, str, str, str, str, str]


@dataclass
class Rules:
    allowed: set[Asked]
    asked: list[Asked] = field(default_factory=list)

    def known(self, user: User, info: RequestInfo) -> Decision | None:
        return None

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        question = (info.verb, info.group, info.resource, info.subresource, info.namespace, info.name)
        self.asked.append(question)
        return Decision(question in self.allowed, "")


class Carrier:
    peer = "127.0.0.1:1"
    certificate = None


def request(*headers: tuple[str, str]) -> Request:
    carrier: Any = Carrier()
    return Request(Head("GET", "/", Fields([("Host", "h"), *headers]), old=False), carrier)


async def act(rules: Rules, *headers: tuple[str, str], user: User = ALICE) -> User | None:
    return await Impersonation(rules)(request(*headers), user, GET)


def legacy(resource: str, name: str, *, group: str = "", subresource: str = "", namespace: str = "") -> Asked:
    return ("impersonate", group, resource, subresource, namespace, name)


async def test_a_user_with_groups_uid_and_extra_needs_each_of_them() -> None:
    headers = (
        ("Impersonate-User", "bob"), ("Impersonate-Group", "g1"), ("Impersonate-Group", "g2"), ("Impersonate-Uid", "u"),
        ("Impersonate-Extra-Example.com%2fScopes", "a"), ("Impersonate-Extra-Example.com%2fScopes", "b"),
    )  # fmt: skip
    needed = [
        legacy("users", "bob"),
        legacy("uids", "u", group="authentication.k8s.io"),
        legacy("groups", "g1"),
        legacy("groups", "g2"),
        legacy("userextras", "a", group="authentication.k8s.io", subresource="example.com/scopes"),
        legacy("userextras", "b", group="authentication.k8s.io", subresource="example.com/scopes"),
    ]
    found = await act(Rules(set(needed)), *headers)
    assert found is not None
    assert found == User("bob", ("g1", "g2", "system:authenticated"), "u", {"example.com/scopes": ("a", "b")})
    for each in needed:
        with pytest.raises(Forbidden):
            await act(Rules(set(needed) - {each}), *headers)


async def test_a_service_account_is_one_and_has_its_groups() -> None:
    found = await act(Rules({legacy("serviceaccounts", "robot", namespace="ops")}), ("Impersonate-User", "system:serviceaccount:ops:robot"))
    assert found is not None
    assert found.groups == ("system:serviceaccounts", "system:serviceaccounts:ops", "system:authenticated")


async def test_anonymous_is_unauthenticated() -> None:
    found = await act(Rules({legacy("users", "system:anonymous")}), ("Impersonate-User", "system:anonymous"))
    assert found is not None
    assert found.groups == ("system:unauthenticated",)


async def test_constrained_impersonation_needs_both_verbs() -> None:
    on = ("impersonate-on:user-info:get", "example.com", "widgets", "", "a", "x")
    who = ("impersonate:user-info", "authentication.k8s.io", "users", "", "", "bob")
    found = await act(Rules({on, who}), ("Impersonate-User", "bob"))
    assert found == User("bob", ("system:authenticated",))
    for each in (on, who):
        with pytest.raises(Forbidden):
            await act(Rules({each}), ("Impersonate-User", "bob"))


async def test_a_node_is_impersonated_by_its_own_agent() -> None:
    agent = User("system:serviceaccount:ops:agent", (), "", {"authentication.kubernetes.io/node-name": ("n1",)})
    on = ("impersonate-on:associated-node:get", "example.com", "widgets", "", "a", "x")
    who = ("impersonate:associated-node", "authentication.k8s.io", "nodes", "", "", "*")
    found = await act(Rules({on, who}), ("Impersonate-User", "system:node:n1"), user=agent)
    assert found == User("system:node:n1", ("system:nodes", "system:authenticated"))
    with pytest.raises(Forbidden):
        await act(Rules({on, who}), ("Impersonate-User", "system:node:n2"), user=agent)


async def test_constrained_impersonation_grants_no_masters_group() -> None:
    rules = Rules({
        ("impersonate-on:user-info:get", "example.com", "widgets", "", "a", "x"),
        ("impersonate:user-info", "authentication.k8s.io", "users", "", "", "bob"),
        ("impersonate:user-info", "authentication.k8s.io", "groups", "", "", "system:masters"),
    })  # fmt: skip
    with pytest.raises(Forbidden, match="system:masters group is not allowed"):
        await act(rules, ("Impersonate-User", "bob"), ("Impersonate-Group", "system:masters"))


async def test_refused_impersonation_names_the_user_only() -> None:
    rules = Rules({("impersonate-on:user-info:get", "example.com", "widgets", "", "a", "x")})
    with pytest.raises(Forbidden) as refused:
        await act(rules, ("Impersonate-User", "bob"), ("Impersonate-Group", "system:masters"))
    assert (refused.value.details.kind, refused.value.details.name) == ("users", "bob")


async def test_many_groups_may_be_allowed_at_once() -> None:
    groups = [("Impersonate-Group", f"g{each}") for each in range(5)]
    rules = Rules({
        ("impersonate-on:user-info:get", "example.com", "widgets", "", "a", "x"),
        ("impersonate:user-info", "authentication.k8s.io", "users", "", "", "bob"),
        ("impersonate:user-info", "authentication.k8s.io", "groups", "", "", "*"),
    })  # fmt: skip
    assert await act(rules, ("Impersonate-User", "bob"), *groups) is not None


async def test_groups_without_a_user_are_a_bad_request() -> None:
    with pytest.raises(BadRequest, match="without impersonating a user"):
        await act(Rules(set()), ("Impersonate-Group", "g"))


async def test_requests_without_impersonation_are_not_reviewed() -> None:
    rules = Rules(set())
    assert await act(rules, ("Accept", "x")) is None
    assert rules.asked == []
    assert not wants(request(("Accept", "x")))
    assert wants(request(("impersonate-uid", "x")))
