from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from apiserver.apis.meta.users import User
from apiserver.client.rest import Client, TransportError
from apiserver.endpoints import requestinfo
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.filters import withdrawing
from apiserver.endpoints.filters.authentication import Authenticator, Trust
from apiserver.endpoints.filters.authorization import Delegated
from apiserver.endpoints.filters.withdrawing import Anew, Withdrawing
from apiserver.endpoints.http.heads import Fields, Head
from apiserver.endpoints.http.messages import Request
from apiserver.endpoints.http.upgrade import End
from tests.unit.controller.virtualtime import run

PATH = "/apis/kubevirt.io/v1alpha1/namespaces/a/virtualmachines"
VERBS = ("get", "create")
MINUTE = 60.0


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Kube:
    rule: Callable[[dict[str, Any]], bool] = lambda _: True
    away: Callable[[], bool] = lambda: False
    seconds: float = 0.0
    asked: list[dict[str, Any]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def create(self, resource: Any, review: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(review["spec"])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        allowed = self.rule(review["spec"])
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.at_once -= 1
        if self.away():
            raise TransportError("nobody is there")
        return {"status": {"allowed": allowed}}


class Carrier:
    peer = "127.0.0.1:1"
    certificate = None
    tls = None


def stream(*headers: tuple[str, str], name: str = "vm", token: str = "alice") -> RequestContext:
    carrier: Any = Carrier()
    fields = Fields([("Host", "h"), ("Authorization", f"Bearer {token}"), *headers])
    path = f"{PATH}/{name}/console"
    return RequestContext(Request(Head("GET", path, fields, old=False), carrier), requestinfo.parse("GET", path, {}), "id")


def made(kube: Kube, review: Callable[[str], User | None] = User, **timing: Any) -> Withdrawing:
    async def reviewed(token: str) -> User | None:
        return review(token)

    authenticator = Authenticator(trust=Trust(), now=lambda: datetime(2026, 11, 22, tzinfo=UTC), review=reviewed)
    # Cached answers, here for an hour, must not count.
    authorizer = Delegated(cast("Client", kube), seconds=(3600.0, 3600.0), now=now)
    return Withdrawing(authenticator, authorizer, **timing)


async def ended(judging: Withdrawing, context: RequestContext | None = None) -> tuple[float, End]:
    end = await judging.withdrawn(context or stream(), VERBS)
    return now(), end


def attribute(spec: dict[str, Any], name: str) -> str:
    return str(spec.get("resourceAttributes", {}).get(name, ""))


@pytest.mark.parametrize("lost", ["get", "create"])
@pytest.mark.parametrize("at", [0.0, 1.0, 19.0, 29.0, 31.0, 1234.5])
@pytest.mark.parametrize("seconds", [0.0, 0.5, 9.0])
def test_stream_ends_within_a_minute_of_losing_either_right(lost: str, at: float, seconds: float) -> None:
    kube = Kube(lambda spec: now() < at or attribute(spec, "verb") != lost, seconds=seconds)

    when, end = run(ended(made(kube)))

    assert at <= when < at + MINUTE
    assert end == (1008, f"your permission to {lost} virtualmachines/console was revoked")
    assert len(end.reason.encode()) <= 123
    asked = {tuple(attribute(each, key) for key in ("namespace", "resource", "subresource", "name")) for each in kube.asked}
    assert asked == {("a", "virtualmachines", "console", "vm")}


def test_stream_ends_in_a_minute_with_answers_shared_by_many() -> None:
    lost_at = 200.0
    kube = Kube(lambda _: now() < lost_at, seconds=0.2)

    async def many() -> list[float]:
        judging = made(kube)
        async with asyncio.TaskGroup() as tasks:
            return [(await each)[0] for each in [tasks.create_task(ended(judging)) for _ in range(500)]]

    times = run(many())

    assert lost_at <= min(times)
    assert max(times) < lost_at + MINUTE
    # Answers serve all streams for SHARED_SECONDS: 500 streams cause no more reviews than a few.
    assert len(kube.asked) <= 2 * (lost_at + MINUTE) / withdrawing.SHARED_SECONDS


def test_streams_of_many_machines_bound_concurrent_reviews() -> None:
    kube = Kube(lambda _: now() < 300, seconds=0.1)

    async def many() -> list[float]:
        judging = made(kube)
        async with asyncio.TaskGroup() as tasks:
            streams = [tasks.create_task(ended(judging, stream(name=f"vm{number}"))) for number in range(500)]
            return [(await each)[0] for each in streams]

    times = run(many())

    assert max(times) < 300 + MINUTE
    assert 1 < kube.most_at_once <= 16
    assert len(kube.asked) <= 2 * 500 * (max(times) / withdrawing.CHECK_SECONDS[0])


def test_streams_that_were_opened_together_do_not_ask_together() -> None:
    async def many() -> list[float]:
        judging = made(Kube(lambda _: False))
        async with asyncio.TaskGroup() as tasks:
            streams = [tasks.create_task(ended(judging, stream(name=f"vm{number}"))) for number in range(100)]
            return [(await each)[0] for each in streams]

    times = run(many())

    assert max(times) - min(times) > 5
    assert len(set(times)) > 50


def test_intervals_add_up_to_a_minute_and_six_in_an_outage() -> None:
    assert withdrawing.SHARED_SECONDS + withdrawing.CHECK_SECONDS[1] + withdrawing.ANSWER_SECONDS < MINUTE
    assert withdrawing.UNANSWERED_SECONDS + withdrawing.CHECK_SECONDS[1] + withdrawing.ANSWER_SECONDS <= 6 * MINUTE


def test_an_answer_tells_of_the_moment_when_it_was_asked_for() -> None:
    kube = Kube(away=lambda: now() > 90, seconds=9.5)  # reviewed from 20 to 39 s and from 59 to 78 s, not from 98 s on

    when, end = run(ended(made(kube, check_seconds=(20.0, 20.0))))

    assert (when, end.reason) == (59.0 + 339.0, "for 339 s your permission could not be checked: connect again")


def test_stream_survives_an_outage_and_ends_after_it() -> None:
    kube = Kube(lambda _: now() < 150, away=lambda: 100 < now() < 350)

    when, end = run(ended(made(kube)))

    assert 350 <= when < 350 + MINUTE
    assert end.code == 1008


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_stream_without_any_review_answer_ends_after_minutes(seconds: float) -> None:
    kube = Kube(away=lambda: True, seconds=seconds)

    when, end = run(ended(made(kube)))

    assert withdrawing.UNANSWERED_SECONDS <= when < withdrawing.UNANSWERED_SECONDS + MINUTE
    assert end.code == 1001
    assert "could not be checked" in end.reason


def test_many_streams_waiting_for_a_silent_server_end_in_time() -> None:
    async def many() -> list[tuple[float, End]]:
        judging = made(Kube(seconds=10_000))
        async with asyncio.TaskGroup() as tasks:
            streams = [tasks.create_task(ended(judging, stream(name=f"vm{number}"))) for number in range(200)]
            return [await each for each in streams]

    found = run(many())

    assert {end.code for _, end in found} == {1001}
    assert max(when for when, _ in found) < withdrawing.UNANSWERED_SECONDS + MINUTE


def test_a_token_that_is_worth_nothing_any_more_ends_its_stream() -> None:
    async def scene() -> tuple[float, End]:
        return await ended(made(Kube(), lambda token: User(token) if now() < 100 else None))

    when, end = run(scene())

    assert 100 <= when < 100 + MINUTE
    assert end == (3000, "your credential is no longer valid")


def test_groups_that_a_token_has_lost_do_not_count() -> None:
    def review(token: str) -> User:
        return User(token, ("operators",) if now() < 100 else ())

    kube = Kube(lambda spec: "operators" in spec["groups"])

    when, end = run(ended(made(kube, review)))

    assert 100 <= when < 100 + MINUTE
    assert end.code == 1008


def test_lost_impersonation_right_ends_the_stream() -> None:
    kube = Kube(lambda spec: now() < 100 or not attribute(spec, "verb").startswith("impersonate"))

    when, end = run(ended(made(kube), stream(("Impersonate-User", "bob"))))

    assert 100 <= when < 100 + MINUTE
    assert end == (1008, "your permission to impersonate was revoked")


def test_the_rights_are_those_of_whom_the_user_acts_as() -> None:
    kube = Kube(lambda spec: now() < 100 or spec["user"] == "alice")

    when, end = run(ended(made(kube), stream(("Impersonate-User", "bob"), ("Impersonate-Group", "g"))))

    assert when < 100 + MINUTE
    assert end.code == 1008
    assert {tuple(each["groups"]) for each in kube.asked if each["user"] == "bob"} == {("g", "system:authenticated")}


def test_masters_keep_their_streams_without_a_question() -> None:
    async def scene() -> None:
        judging = made(Kube(lambda _: False), lambda token: User(token, ("system:masters",)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await judging.withdrawn(stream(), VERBS)

    run(scene())


def test_leaving_during_a_review_does_not_hold_up_others() -> None:
    kube = Kube(lambda _: False, seconds=5.0)

    async def scene() -> bool:
        anew = Anew(Delegated(cast("Client", kube), now=now))
        user, info = User("alice"), requestinfo.parse("GET", f"{PATH}/vm/console", {})
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(anew.decide(user, info))
            second = tasks.create_task(anew.decide(user, info))
            await asyncio.sleep(1)
            first.cancel()
            async with asyncio.timeout(10):
                return (await second).allowed

    assert not run(scene())
    assert len(kube.asked) == 2
