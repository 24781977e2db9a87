from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from apiserver.apis.meta.errors import Forbidden, InternalError
from apiserver.apis.meta.users import User
from apiserver.client.rest import Client, TransportError
from apiserver.endpoints import requestinfo
from apiserver.endpoints.filters.authorization import AllowAll, Delegated, forbidden, review_spec

PATH = "/apis/example.com/v1/namespaces/a/widgets"
ALICE = User("alice", ("team",), "u1", {"scopes": ("x",)})
GET = requestinfo.parse("GET", f"{PATH}/x", {})


@dataclass
class Kube:
    allowed: Any = True
    failures: list[Exception] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def create(self, resource: Any, review: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(review["spec"])
        if self.failures:
            raise self.failures.pop(0)
        return {"status": {"allowed": self.allowed, "reason": "says the test"}}


@dataclass
class World:
    now: float = 100.0
    codes: list[str] = field(default_factory=list)

    def answered(self, code: str, seconds: float) -> None:
        self.codes.append(code)


def made(kube: Kube, world: World, **more: Any) -> Delegated:
    return Delegated(cast("Client", kube), world.answered, pause_seconds=0.001, now=lambda: world.now, **more)


@pytest.mark.parametrize("allowed", [True, False])
async def test_an_answer_holds_for_ten_seconds(*, allowed: bool) -> None:
    kube, world = Kube(allowed), World()
    authorizer = made(kube, world)
    assert authorizer.known(ALICE, GET) is None
    assert (await authorizer.decide(ALICE, GET)).allowed is allowed
    world.now += 9.9
    known = authorizer.known(ALICE, GET)
    assert known is not None
    assert (known.allowed, known.reason) == (allowed, "says the test")
    world.now += 0.2
    assert authorizer.known(ALICE, GET) is None
    await authorizer.decide(ALICE, GET)
    assert len(kube.asked) == 2
    assert world.codes == ["201", "201"]


async def test_yes_and_no_have_lifetimes_of_their_own() -> None:
    kube, world = Kube(allowed=False), World()
    authorizer = made(kube, world, seconds=(60, 1))
    await authorizer.decide(ALICE, GET)
    world.now += 1.1
    assert authorizer.known(ALICE, GET) is None
    kube.allowed = True
    await authorizer.decide(ALICE, GET)
    world.now += 59
    assert authorizer.known(ALICE, GET) is not None


async def test_an_answer_is_for_one_user_and_one_request_only() -> None:
    kube, world = Kube(), World()
    authorizer = made(kube, world)
    await authorizer.decide(ALICE, GET)
    assert authorizer.known(User("alice", ("team",), "u1", {"scopes": ("x",)}), GET) is not None
    for another in (
        User("bob", ("team",), "u1", {"scopes": ("x",)}),
        User("alice", (), "u1", {"scopes": ("x",)}),
        User("alice", ("team",), "u2", {"scopes": ("x",)}),
        User("alice", ("team",), "u1", {"scopes": ("y",)}),
        User("alice", ("team",), "u1"),
    ):
        assert authorizer.known(another, GET) is None
    for other in (
        requestinfo.parse("GET", f"{PATH}/y", {}),
        requestinfo.parse("GET", f"{PATH}/x/status", {}),
        requestinfo.parse("PUT", f"{PATH}/x", {}),
        requestinfo.parse("GET", "/apis/example.com/v1/namespaces/b/widgets/x", {}),
        requestinfo.parse("GET", "/apis/example.com/v2/namespaces/a/widgets/x", {}),
        requestinfo.parse("GET", PATH, {"labelSelector": "a=b"}),
        requestinfo.parse("GET", PATH, {"fieldSelector": "metadata.name=x"}),
        requestinfo.parse("GET", f"{PATH[:5]}", {}),
    ):
        assert authorizer.known(ALICE, other) is None


async def test_decisions_for_overlong_requests_are_not_cached() -> None:
    kube, world = Kube(), World()
    authorizer = made(kube, world)
    long = requestinfo.parse("GET", PATH, {"labelSelector": "a=" + "b" * 10_001})
    await authorizer.decide(ALICE, long)
    assert authorizer.known(ALICE, long) is None


async def test_of_8192_answers_the_least_recently_used_goes_first() -> None:
    kube, world = Kube(), World()
    authorizer = made(kube, world)
    objects = [requestinfo.parse("GET", f"{PATH}/{each}", {}) for each in range(8193)]
    for each in objects[:8192]:
        await authorizer.decide(ALICE, each)
    assert authorizer.known(ALICE, objects[0]) is not None
    await authorizer.decide(ALICE, objects[8192])
    assert [number for number, each in enumerate(objects) if authorizer.known(ALICE, each) is None] == [1]


async def test_kube_apiserver_is_asked_again_when_it_cannot_answer() -> None:
    kube, world = Kube(failures=[TransportError("gone"), InternalError("etcd")]), World()
    assert (await made(kube, world).decide(ALICE, GET)).allowed
    assert world.codes == ["<error>", "500", "201"]


async def test_authorization_fails_after_five_tries() -> None:
    kube, world = Kube(failures=[TransportError("gone")] * 9), World()
    with pytest.raises(InternalError, match="ask kube-apiserver whether alice may"):
        await made(kube, world).decide(ALICE, GET)
    assert len(kube.asked) == 5


async def test_a_refusal_of_the_review_itself_is_not_repeated() -> None:
    kube, world = Kube(failures=[Forbidden("you may not ask")] * 9), World()
    with pytest.raises(InternalError):
        await made(kube, world).decide(ALICE, GET)
    assert len(kube.asked) == 1


def test_selectors_are_part_of_the_question() -> None:
    query = {"fieldSelector": "metadata.name=x,spec.a!=b", "labelSelector": "app in (a,b),!gone,tier=front"}
    attributes = review_spec(ALICE, requestinfo.parse("GET", PATH, query))["resourceAttributes"]
    assert attributes["name"] == "x"
    assert attributes["fieldSelector"] == {
        "requirements": [
            {"key": "metadata.name", "operator": "In", "values": ["x"]},
            {"key": "spec.a", "operator": "NotIn", "values": ["b"]},
        ]
    }
    by_key = {each["key"]: each for each in attributes["labelSelector"]["requirements"]}
    assert by_key["app"]["operator"] == "In"
    assert sorted(by_key["app"]["values"]) == ["a", "b"]
    assert by_key["gone"] == {"key": "gone", "operator": "DoesNotExist"}
    assert by_key["tier"] == {"key": "tier", "operator": "In", "values": ["front"]}


def test_the_question_names_the_whole_user() -> None:
    spec = review_spec(ALICE, GET)
    assert (spec["user"], spec["groups"], spec["uid"], spec["extra"]) == ("alice", ["team"], "u1", {"scopes": ["x"]})
    assert review_spec(ALICE, requestinfo.parse("GET", "/metrics", {}))["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}


def test_review_of_user_without_uid_and_extra_omits_both() -> None:
    assert review_spec(User("bob", ()), requestinfo.parse("GET", "/metrics", {})) == {
        "user": "bob",
        "groups": [],
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


@pytest.mark.parametrize(
    "query",
    [{"labelSelector": "a in ("}, {"fieldSelector": "a"}, {"labelSelector": "a=b", "fieldSelector": "a"}, {"labelSelector": ""}, {}],
)
def test_empty_or_unreadable_selectors_narrow_no_review(query: dict[str, str]) -> None:
    attributes = review_spec(ALICE, requestinfo.parse("GET", PATH, query))["resourceAttributes"]
    assert not {"labelSelector", "fieldSelector"} & set(attributes)


async def test_masters_and_health_checks_are_allowed_without_review() -> None:
    kube, world = Kube(allowed=False), World()
    authorizer, master = made(kube, world), User("root", ("team", "system:masters"))
    assert (await authorizer.decide(master, GET)).allowed
    assert (await authorizer.decide_anew(master, GET)).allowed
    assert (await authorizer.decide(ALICE, requestinfo.parse("GET", "/healthz", {}))).allowed
    assert kube.asked == []
    assert not (await authorizer.decide(ALICE, requestinfo.parse("GET", "/healthz/etcd", {}))).allowed
    assert not (await authorizer.decide_anew(ALICE, requestinfo.parse("GET", "/healthz", {}))).allowed


async def test_cached_decision_expires_and_can_be_refreshed() -> None:
    kube, world = Kube(), World()
    authorizer = made(kube, world)
    await authorizer.decide(ALICE, GET)
    kube.allowed = False
    assert (await authorizer.decide(ALICE, GET)).allowed
    assert not (await authorizer.decide_anew(ALICE, GET)).allowed
    known = authorizer.known(ALICE, GET)
    assert known is not None
    assert not known.allowed
    world.now += 10
    assert authorizer.known(ALICE, GET) is None


@pytest.mark.parametrize("allowed", [None, "true", 1, {"allowed": True}])
async def test_only_a_true_allows(allowed: Any) -> None:
    assert not (await made(Kube(allowed), World()).decide(ALICE, GET)).allowed


@pytest.mark.parametrize(("more", "remembered"), [(0, True), (1, False)])
async def test_ten_thousand_characters_are_remembered_and_no_more(more: int, *, remembered: bool) -> None:
    authorizer = made(Kube(), World())
    short = requestinfo.parse("GET", PATH, {"labelSelector": "a="})
    texts = (short.verb, short.path, short.group, short.version, short.namespace, short.resource, short.label_selector)
    info = requestinfo.parse("GET", PATH, {"labelSelector": "a=" + "b" * (10_000 - sum(map(len, texts)) + more)})
    await authorizer.decide(ALICE, info)
    assert (authorizer.known(ALICE, info) is not None) is remembered


async def test_an_answer_for_one_selector_or_path_is_none_for_another() -> None:
    authorizer = made(Kube(), World())
    for path, query, other in (
        (PATH, {"labelSelector": "a=b"}, {"labelSelector": "a=c"}),
        (PATH, {"fieldSelector": "spec.a=b"}, {"fieldSelector": "spec.a=c"}),
        (PATH, {"labelSelector": "a=b"}, {}),
    ):
        await authorizer.decide(ALICE, requestinfo.parse("GET", path, query))
        assert authorizer.known(ALICE, requestinfo.parse("GET", path, other)) is None
    await authorizer.decide(ALICE, requestinfo.parse("GET", "/metrics", {}))
    assert authorizer.known(ALICE, requestinfo.parse("GET", "/logs", {})) is None


async def test_for_development_everyone_may_everything() -> None:
    assert (await AllowAll().decide(ALICE, GET)).allowed
    assert (await AllowAll().decide_anew(ALICE, GET)).allowed


@pytest.mark.parametrize(
    ("path", "reason", "words"),
    [
        ("/metrics", "", 'forbidden: User "alice" cannot get path "/metrics"'),
        ("/metrics", "no", 'forbidden: User "alice" cannot get path "/metrics": no'),
        (
            f"{PATH}/x/status",
            "",
            'widgets.example.com "x" is forbidden: User "alice" cannot get resource "widgets/status" in API group "example.com" '
            'in the namespace "a"',
        ),
        (
            "/apis/example.com/v1/nodes",
            "no",
            'nodes.example.com is forbidden: User "alice" cannot list resource "nodes" in API group "example.com" at the cluster scope: no',
        ),
    ],
)
def test_a_refusal_has_the_words_of_gos(path: str, reason: str, words: str) -> None:
    assert str(forbidden(ALICE, requestinfo.parse("GET", path, {}), reason)) == words
