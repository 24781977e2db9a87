from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, nullcontext

import pytest

from apiserver.apis.meta.errors import NotFound, TooManyRequests
from apiserver.apis.meta.users import User
from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.endpoints.verbs.streamlimits import DEFAULTS, OpenStreams, StreamLimits, holder_of, refusal, token_of

STREAM = ("example.test", "widgets", "ns", "w1", "console")
LIMITS = StreamLimits(max_streams=10, max_streams_per_user=5, max_streams_per_user_and_object=2)


def asked(name: str = "w1", subresource: str = "console", namespace: str = "ns") -> RequestInfo:
    path = f"/apis/example.test/v1/namespaces/{namespace}/widgets/{name}/{subresource}"
    return RequestInfo(
        "GET", path, "get", True, "example.test", "v1", namespace=namespace, resource="widgets", subresource=subresource, name=name
    )


@pytest.mark.parametrize(
    ("limits", "everyone", "of_holder", "of_object", "expected"),
    [
        (LIMITS, 0, 0, 0, ""),
        (LIMITS, 9, 4, 1, ""),
        (LIMITS, 9, 4, 2, '2 of your streams to console of widgets "w1" are open on this server, and 2 is the limit'),
        (LIMITS, 9, 5, 0, "5 of yours are open on this server, and 5 is the limit"),
        (LIMITS, 10, 0, 0, "10 are open on this server, and 10 is the limit"),
        (LIMITS, 11, 6, 3, "3 of your streams to console"),
        (StreamLimits(0, 0, 0), 10**6, 10**6, 10**6, ""),
        (StreamLimits(1, 0, 0), 1, 0, 0, "1 are open"),
    ],
)
def test_stream_beyond_a_limit_is_refused(limits: StreamLimits, everyone: int, of_holder: int, of_object: int, expected: str) -> None:
    found = refusal(limits, everyone, of_holder, of_object, STREAM)
    assert expected in found
    assert bool(found) is bool(expected)


@pytest.mark.parametrize(
    ("name", "holder"),
    [
        ("alice", "alice"),
        ("system:serviceaccount:shop:one", "system:serviceaccount:shop:*"),
        ("system:serviceaccount:shop:two", "system:serviceaccount:shop:*"),
        ("system:serviceaccount:other:one", "system:serviceaccount:other:*"),
        ("system:anonymous", "system:anonymous"),
        ("oidc:system:serviceaccount:shop:one", "oidc:system:serviceaccount:shop:one"),
    ],
)
def test_service_accounts_of_one_namespace_are_one_holder(name: str, holder: str) -> None:
    assert holder_of(User(name)) == holder


def test_holder_token_is_stable_and_hides_the_name() -> None:
    assert token_of("alice") == token_of("alice") != token_of("bob")
    assert "alice" not in token_of("alice")


async def test_share_raises_only_the_limit_per_object() -> None:
    streams, user = OpenStreams(LIMITS), User("alice")
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(streams.one(user, asked(subresource="portforward"), 2))
        with pytest.raises(TooManyRequests, match="4 is the limit"):
            await stack.enter_async_context(streams.one(user, asked(subresource="portforward"), 2))
        await stack.enter_async_context(streams.one(user, asked("w2", "portforward"), 2))
        with pytest.raises(TooManyRequests, match="5 of yours are open"):
            await stack.enter_async_context(streams.one(user, asked("w3", "portforward"), 2))


async def test_each_limit_counts_what_it_says() -> None:
    streams = OpenStreams(LIMITS)

    async def can_open(user: str, info: RequestInfo) -> bool:
        try:
            async with streams.one(User(user), info):
                return True
        except TooManyRequests as error:
            return not error.details.retry_after_seconds

    async with AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(streams.one(User("alice"), asked()))
        assert not await can_open("alice", asked())
        assert await can_open("alice", asked("w2"))
        assert await can_open("alice", asked(subresource="vnc"))
        assert await can_open("alice", asked(namespace="other"))
        assert await can_open("bob", asked())
        for name in ("w2", "w3", "w4"):
            await held.enter_async_context(streams.one(User("alice"), asked(name)))
        assert not await can_open("alice", asked("w9"))
        for account in range(5):
            await held.enter_async_context(streams.one(User(f"system:serviceaccount:ns:{account}"), asked(f"w{account}")))
        assert not await can_open("system:serviceaccount:ns:9", asked("w9"))
        assert len(streams) == 10
        assert not await can_open("carol", asked())
    assert (len(streams), dict(streams._holders)) == (0, {})
    assert not streams._objects, "of what was open once nothing is kept"
    assert await can_open("carol", asked())


def test_default_stream_limits_fit_the_pods_memory() -> None:
    """A flooded stream takes up to 1 MiB, of a pod's 512."""
    assert 0 < DEFAULTS.max_streams_per_user_and_object < DEFAULTS.max_streams_per_user < DEFAULTS.max_streams <= 256


@pytest.mark.parametrize("error", [None, NotFound("gone"), OSError("broken"), asyncio.CancelledError()], ids=repr)
async def test_a_stream_counts_until_its_end_whatever_that_is(error: BaseException | None) -> None:
    streams = OpenStreams(LIMITS)

    async def serve() -> None:
        async with streams.one(User("alice"), asked()):
            assert len(streams) == 1
            if error is not None:
                raise error

    with pytest.raises(type(error)) if error is not None else nullcontext():
        await serve()
    assert (len(streams), dict(streams._holders)) == (0, {})


async def test_a_refused_stream_is_not_counted() -> None:
    streams = OpenStreams(StreamLimits(1, 0, 0))
    async with streams.one(User("alice"), asked()):
        for _ in range(3):
            with pytest.raises(TooManyRequests):
                await streams.one(User("bob"), asked()).__aenter__()
        assert len(streams) == 1
    async with streams.one(User("bob"), asked()):
        assert dict(streams._holders) == {"bob": 1}
