from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from apiserver.apis.core.resources import CONFIG_MAPS
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, name_of
from apiserver.client.backoff import Backoff
from apiserver.client.informer import TURN_SECONDS, Informer
from apiserver.client.rest import Client
from tests.fakes.kubeapi import FakeAPI

PATH = "/api/v1/configmaps"


def a_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


async def eventually(claim: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not claim():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def following(api: FakeAPI, **options: Any) -> AsyncIterator[Informer]:
    async with api.serving() as config, Client(config, user_agent="test") as client:
        informer = Informer(client, CONFIG_MAPS, backoff=Backoff(0.01, 0.05), **options)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(informer.run())
            try:
                yield informer
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running


def same(informer: Informer, api: FakeAPI) -> bool:
    def versions(objects: list[Object]) -> dict[str, str]:
        return {name_of(each): each["metadata"]["resourceVersion"] for each in objects}

    return versions(informer.list()) == versions(api.all(PATH))


@pytest.mark.parametrize("streaming_lists", [True, False], ids=["streaming list", "list and watch"])
async def test_an_informer_holds_what_the_server_has_and_follows_it(streaming_lists: bool) -> None:
    api = FakeAPI()
    api.streaming_lists = streaming_lists
    for number in range(3):
        await api.put(PATH, a_map(f"m{number}"))
    async with following(api) as informer:
        async with asyncio.timeout(20):
            await informer.synced.wait()
        assert same(informer, api)
        await api.put(PATH, a_map("m3"))
        await api.put(PATH, a_map("m0", changed="yes"))
        await api.remove(PATH, "default", "m1")
        await eventually(lambda: same(informer, api))
        assert informer.get("default", "m0") is not None
        assert informer.get("default", "m1") is None


@pytest.mark.parametrize("streaming_lists", [True, False], ids=["streaming list", "list and watch"])
async def test_indexing_of_listed_objects_yields_to_other_tasks(streaming_lists: bool) -> None:
    api = FakeAPI()
    api.streaming_lists = streaming_lists
    objects, turns = 20, 0
    for number in range(objects):
        await api.put(PATH, a_map(f"m{number}"))
    seen: list[int] = []

    def slow(obj: Object) -> list[str]:
        seen.append(turns)
        time.sleep(TURN_SECONDS)
        return [name_of(obj)]

    async with following(api, indexers={"name": slow}) as informer:
        while not informer.synced.is_set():
            turns += 1
            await asyncio.sleep(0)
    assert len(seen) == len(set(seen)) == objects


async def test_a_cut_watch_goes_on_where_it_was_without_a_new_list() -> None:
    api = FakeAPI()
    await api.put(PATH, a_map("m0"))
    async with following(api) as informer:
        await informer.synced.wait()
        await api.cut()
        await api.put(PATH, a_map("m1"))
        await eventually(lambda: same(informer, api))
        resumed = [query for _, _, query in api.requests[1:]]
        assert resumed
        assert all("resourceVersion" in query and "sendInitialEvents" not in query for query in resumed)


async def test_deletion_with_a_lost_event_is_reported_after_410() -> None:
    api = FakeAPI()
    await api.put(PATH, a_map("kept"))
    await api.put(PATH, a_map("lost"))
    gone: list[str] = []
    async with following(api) as informer:
        informer.subscribe(lambda old, new: gone.append(name_of(old or {})) if new is None else None)
        await informer.synced.wait()
        api.drop_events(on=True)
        await api.remove(PATH, "default", "lost")
        await api.put(PATH, a_map("unseen"))
        api.drop_events(on=False)
        await api.expire()
        await eventually(lambda: same(informer, api))
        assert gone == ["lost"]


async def test_namesake_created_during_an_outage_is_delete_and_add() -> None:
    api = FakeAPI()
    first = await api.put(PATH, a_map("m"))
    seen: list[tuple[Any, Any]] = []
    async with following(api) as informer:
        await informer.synced.wait()
        informer.subscribe(lambda old, new: seen.append((old and old["metadata"]["uid"], new and new["metadata"]["uid"])))
        api.drop_events(on=True)
        await api.remove(PATH, "default", "m")
        second = await api.put(PATH, a_map("m"))
        api.drop_events(on=False)
        await api.expire()
        await eventually(lambda: same(informer, api))
        one, two = first["metadata"]["uid"], second["metadata"]["uid"]
        assert seen == [(None, one), (one, None), (None, two)]


async def test_repeated_and_reordered_events_change_nothing() -> None:
    api = FakeAPI()
    api.repeat_events(on=True)
    async with following(api) as informer:
        await informer.synced.wait()
        for number in range(5):
            await api.put(PATH, a_map("m", number=str(number)))
            await api.put(PATH, a_map("other", number=str(number)))
        await api.remove(PATH, "default", "other")
        await api.put(PATH, a_map("last"))
        await eventually(lambda: informer.get("default", "last") is not None)
        assert same(informer, api)


async def test_a_server_that_is_away_at_first_is_waited_for() -> None:
    api = FakeAPI()
    api.refusals = [
        errors.ServiceUnavailable("no endpoints"),
        errors.NotFound("the server could not find the requested resource"),
        errors.Forbidden("not yet bound"),
        web.Response(status=502, text="bad gateway"),
    ]
    await api.put(PATH, a_map("m"))
    async with following(api) as informer:
        async with asyncio.timeout(20):
            await informer.synced.wait()
        assert same(informer, api)


async def test_a_server_that_ignores_streaming_lists_gets_a_list() -> None:
    class Ignorant(FakeAPI):
        async def _watch(self, request: web.Request, collection: str, namespace: str) -> web.StreamResponse:
            if "sendInitialEvents" in request.query:
                request = request.clone(rel_url=request.rel_url.without_query_params("sendInitialEvents"))
            return await super()._watch(request, collection, namespace)

    api = Ignorant()
    await api.put(PATH, a_map("m"))
    async with following(api, initial_idle_seconds=0.1) as informer:
        async with asyncio.timeout(20):
            await informer.synced.wait()
        assert same(informer, api)


async def test_a_watch_that_falls_silent_is_opened_again() -> None:
    api = FakeAPI()
    async with following(api, idle_seconds=0.2):
        async with asyncio.timeout(30):
            while sum("watch" in query for _, _, query in api.requests) < 3:
                await asyncio.sleep(0.05)


async def test_an_index_follows_changes() -> None:
    api = FakeAPI()
    await api.put(PATH, a_map("m", colour="red"))
    async with following(api, indexers={"colour": lambda obj: [obj["data"]["colour"]] if "colour" in obj["data"] else []}) as informer:
        await informer.synced.wait()
        assert [name_of(each) for each in informer.by_index("colour", "red")] == ["m"]
        await api.put(PATH, a_map("m", colour="blue"))
        await eventually(lambda: same(informer, api))
        assert list(informer.by_index("colour", "red")) == []
        assert [name_of(each) for each in informer.by_index("colour", "blue")] == ["m"]


async def test_a_write_of_our_own_is_known_before_its_event() -> None:
    api = FakeAPI()
    await api.put(PATH, a_map("m"))
    told: list[str] = []
    async with following(api) as informer:
        await informer.synced.wait()
        api.drop_events(on=True)
        written = await api.put(PATH, a_map("m", by="us"))
        api.drop_events(on=False)
        informer.subscribe(lambda _, new: told.append((new or {})["metadata"]["resourceVersion"]))
        informer.remember(written)
        informer.remember(written)
        assert same(informer, api)
        assert len(told) == 2


async def test_an_old_answer_does_not_bring_back_what_was_deleted() -> None:
    api = FakeAPI()
    async with following(api) as informer:
        await informer.synced.wait()
        written = await api.put(PATH, a_map("m"))
        await eventually(lambda: same(informer, api))
        await api.remove(PATH, "default", "m")
        await eventually(lambda: same(informer, api))
        informer.remember(written)
        assert informer.list() == []


@pytest.mark.parametrize("streaming_lists", [True, False], ids=["streaming list", "list and watch"])
async def test_no_object_ends_an_informer(streaming_lists: bool) -> None:
    api = FakeAPI()
    api.streaming_lists = streaming_lists

    def strange(name: str) -> dict[str, Any]:
        return {**a_map(name), "data": ["no", "map"]}

    def trim(obj: Object) -> Object:
        return {**obj, "data": {key: value for key, value in obj["data"].items() if key != "long"}}

    def told(_: Object | None, new: Object | None) -> None:
        heard.append(str(new["data"].get("colour")) if new is not None else "")

    heard: list[str] = []
    await api.put(PATH, strange("first"))
    await api.put(PATH, a_map("second", colour="red"))
    async with following(api, trim=trim, indexers={"colour": lambda obj: [obj["data"]["colour"]]}) as informer:
        informer.subscribe(told)
        async with asyncio.timeout(20):
            await informer.synced.wait()
        await api.put(PATH, strange("third"))
        await api.put(PATH, a_map("fourth", colour="red"))
        await eventually(lambda: same(informer, api))
        assert heard == ["red", "red"]
        assert [name_of(each) for each in informer.by_index("colour", "red")] == ["fourth", "second"]
        assert informer.faults >= 6
        nameless: dict[str, Any] = {"metadata": {"name": ["x"]}, "data": {}}
        informer.remember(nameless)
        await api.remove(PATH, "default", "third")
        await eventually(lambda: same(informer, api))
        assert len(informer) == 3
