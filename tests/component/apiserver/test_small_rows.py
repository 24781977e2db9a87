from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import aiohttp
import pytest

from apiserver.apis.meta.objects import Object
from apiserver.endpoints.verbs.reading import MOST, TURN_SECONDS
from apiserver.server import running
from apiserver.server.running import Kinds
from storage.memory import MemoryStorage
from tests.component.apiserver.conftest import NAMESPACE, Api, Pki, flags
from tests.component.apiserver.test_lists import open_watches
from tests.component.apiserver.widgets import OLD_WIDGETS, WIDGETS, OldWidgetStrategy, WidgetStrategy, widget

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@asynccontextmanager
async def api_of(pki: Pki, url: str, storage: MemoryStorage) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=pki.client("developer"))) as session:
        yield Api(url, session, WidgetStrategy(), storage)


def owned(*owners: dict[str, Any]) -> dict[str, Any]:
    made = widget()
    made["metadata"]["ownerReferences"] = list(owners)
    return made


async def test_cre_10_duplicate_owners_are_merged_with_a_warning(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"}
    answer = await api.call("POST", "", owned(owner, owner, {**owner, "uid": "2"}))
    assert [each["uid"] for each in answer.json["metadata"]["ownerReferences"]] == ["1", "2"]
    (warning,) = answer.headers.getall("Warning")
    assert "duplicate entries" in warning
    assert warning.endswith('observed: 1"') or "observed" not in warning


async def test_del_03_and_07_waiting_deletes_are_202_bad_options_422(api: Api) -> None:
    held = widget()
    held["metadata"]["finalizers"] = ["a.b/c"]
    await api.make(held)
    for query in ("propagationPolicy=x", "dryRun=x", "propagationPolicy=Orphan&orphanDependents=true"):
        assert (await api.call("DELETE", f"w1?{query}")).code == 422, query
    assert (await api.call("DELETE", "w1", {"orphanDependents": False})).code == 202


async def test_lst_11_list_shows_earlier_writes(api: Api) -> None:
    async def one(number: int) -> bool:
        await api.make(widget(f"q{number}"))
        return any(each["metadata"]["name"] == f"q{number}" for each in (await api.get()).json["items"])

    for first in range(0, 60, 10):
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(one(number)) for number in range(first, first + 10)]
        assert all(each.result() for each in asked)


async def test_wch_08_watch_without_initial_events_starts_with_changes(api: Api) -> None:
    await api.make(widget())
    query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    answer = await api.get(f"?{query}")
    assert (answer.code, answer.body) == (200, b"")


async def test_tbl_04_and_05_statuses_and_protobuf_are_no_tables(api: Api) -> None:
    await api.make(widget())
    assert (await api.get("nope", Accept=TABLE)).json["kind"] == "Status"
    assert (await api.get("", Accept="application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io")).code == 406
    deleted = (await api.call("DELETE", "w1", None, Accept=TABLE)).json
    assert (deleted["kind"], deleted["status"]) == ("Status", "Success")


async def test_sub_09_and_req_10_unknown_subresources_are_404(api: Api) -> None:
    await api.make(widget())
    unknown = await api.get("w1/nosuch")
    assert (unknown.code, unknown.json["kind"]) == (404, "Status")
    path = f"/apis/{WIDGETS.group}/v1/watch/namespaces/{NAMESPACE}/widgets?timeoutSeconds=1"
    assert b'"type":"ADDED"' in (await api.get(path)).body


async def test_agg_10_discovery_has_short_names(api: Api) -> None:
    main = next(each for each in (await api.get("/apis/example.test/v1")).json["resources"] if each["name"] == "widgets")
    assert (main["shortNames"], main["singularName"], main["categories"]) == (["wd"], "widget", ["toys"])


class Unlucky(WidgetStrategy):
    drawn: Iterator[str] = iter(())

    def prepare_for_create(self, obj: Object) -> None:
        if "generateName" in obj["metadata"]:
            obj["metadata"]["name"] = next(self.drawn, obj["metadata"]["name"])


@pytest.mark.parametrize("strategy", [Unlucky()])
async def test_cre_08_taken_generated_name_is_redrawn_a_few_times(api: Api, strategy: Unlucky) -> None:
    await api.make(widget("a-taken"))
    body = {**widget(), "metadata": {"generateName": "a-"}}
    strategy.drawn = iter(["a-taken", "a-taken", "a-free"])
    assert (await api.make(body))["metadata"]["name"] == "a-free"
    strategy.drawn = iter(["a-taken"] * 100)
    answer = await api.call("POST", "", body)
    assert len(list(strategy.drawn)) > 50
    assert (answer.code, answer.json["reason"], answer.headers["Retry-After"]) == (409, "AlreadyExists", "1")
    long = await api.make({**widget(), "metadata": {"generateName": "b" * 70}})
    assert re.fullmatch(r"b{58}[a-z0-9]{5}", long["metadata"]["name"])


async def test_dry_01_a_collection_is_deleted_on_trial(api: Api) -> None:
    for name in "ab":
        await api.make(widget(name))
    for query in ("?dryRun=All", "?dryRun=All&labelSelector=!x"):
        shown = await api.call("DELETE", query)
        assert (shown.code, len(shown.json["items"])) == (200, 2)
    assert len((await api.get()).json["items"]) == 2
    assert (await api.call("DELETE", "?dryRun=Some")).code == 422


async def test_del_06_a_collection_is_deleted_page_by_page(api: Api) -> None:
    for name in "abc":
        await api.make(widget(name))
    first = (await api.call("DELETE", "?limit=2")).json
    assert ([each["metadata"]["name"] for each in first["items"]], first["kind"]) == (["a", "b"], "WidgetList")
    rest = (await api.call("DELETE", f"?limit=2&continue={first['metadata']['continue']}")).json
    assert ([each["metadata"]["name"] for each in rest["items"]], "continue" in rest["metadata"]) == (["c"], False)
    held = widget("held")
    held["metadata"]["finalizers"] = ["a.b/c"]
    await api.make(held)
    (marked,) = (await api.call("DELETE", "", {"propagationPolicy": "Foreground"})).json["items"]
    assert marked["metadata"]["name"] == "held"
    finalizers = (await api.get("held")).json["metadata"]["finalizers"]
    assert sorted(finalizers) == ["a.b/c", "foregroundDeletion"]


async def test_lst_05_what_is_too_old_is_told_in_gos_words(api: Api) -> None:
    for name in "abc":
        await api.make(widget(name))
    first = (await api.get("?limit=1")).json["metadata"]
    await api.make(widget("d"))
    await api.storage.compact(await api.storage.revision())
    page = (await api.get(f"?limit=1&continue={first['continue']}")).json
    assert page["message"].startswith("The provided continue parameter is too old to display a consistent list result. You can start a new")
    assert page["message"].endswith("modified, or deleted between the time the first chunk was returned and now may show up in the list.")
    exact = (await api.get(f"?resourceVersion={first['resourceVersion']}&resourceVersionMatch=Exact")).json
    assert (exact["code"], exact["reason"]) == (410, "Expired")
    assert exact["message"].startswith("The resourceVersion for the provided list is too old")


async def test_lst_07_page_of_a_given_revision_is_exact(api: Api) -> None:
    await api.make(widget("a"))
    revision = (await api.make(widget("b")))["metadata"]["resourceVersion"]
    await api.call("DELETE", "a")
    page = (await api.get(f"?limit=1&resourceVersion={revision}")).json
    assert ([each["metadata"]["name"] for each in page["items"]], page["metadata"]["resourceVersion"]) == (["a"], revision)
    recent = (await api.get(f"?limit=1&resourceVersion={revision}&resourceVersionMatch=NotOlderThan")).json
    assert [each["metadata"]["name"] for each in recent["items"]] == ["b"]
    token = page["metadata"]["continue"]
    for match in ("Exact", "NotOlderThan"):
        assert (await api.get(f"?limit=1&continue={token}&resourceVersionMatch={match}")).code == 422, match
    assert (await api.get("?shardSelector=x")).code == 200, "LST-12: an alpha parameter is one that nobody knows"


async def test_wch_05_bookmarks_are_sent_while_idle(api: Api) -> None:
    api.process.assembly.watches.bookmark_seconds = 0.05
    made = await api.make(widget())
    async with api.watch(f"resourceVersion={made['metadata']['resourceVersion']}&allowWatchBookmarks=true") as frames:
        async with asyncio.timeout(30):
            first, second = await anext(frames), await anext(frames)
    assert (first["type"], second["type"]) == ("BOOKMARK", "BOOKMARK")
    assert (first["object"]["kind"], first["object"]["apiVersion"]) == ("Widget", WIDGETS.api_version)
    assert set(first["object"]["metadata"]) == {"resourceVersion"}
    assert int(first["object"]["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    async with api.watch(f"resourceVersion={made['metadata']['resourceVersion']}&timeoutSeconds=1") as frames:
        assert [each async for each in frames] == [], "nobody asked for them"


class Counting(OldWidgetStrategy):
    shown = 0

    def downgrade(self, obj: Object) -> Object:
        self.shown += 1
        return super().downgrade(obj)


async def test_wch_17_event_is_encoded_once_for_all_watches(pki: Pki) -> None:
    hub, storage = WidgetStrategy(), MemoryStorage()
    old = Counting(hub)
    async with (
        running.running(flags(pki), lambda _: Kinds((hub, old)), storage) as (host, port),
        api_of(pki, f"https://{host}:{port}", storage) as api,
    ):
        while (await api.get("/readyz")).code != 200:
            await asyncio.sleep(0.01)
        await _encoded_once(api, old)


async def _encoded_once(api: Api, old: Counting) -> None:
    made = await api.make(widget())
    query = f"{OLD_WIDGETS.path(NAMESPACE)}?watch=1&timeoutSeconds=4&resourceVersion={made['metadata']['resourceVersion']}"
    partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    async with asyncio.TaskGroup() as tasks:
        whole = [tasks.create_task(api.get(query)) for _ in range(10)]
        small = [tasks.create_task(api.get(query, Accept=partial)) for _ in range(10)]
        while open_watches((await api.get("/metrics")).body) < 20:
            await asyncio.sleep(0.02)
        before = old.shown
        for size in range(2, 12):
            await api.patch("w1", {"spec": {"size": size}})
    for watches in (whole, small):
        bodies = {each.result().body for each in watches}
        assert [len(each.splitlines()) for each in bodies] == [10]
    assert old.shown - before == 2 * 10


async def test_sub_08_verbs_support_dry_run_and_are_published(api: Api) -> None:
    await api.make(widget())
    tried = await api.call("PUT", "w1/paint?dryRun=All", {})
    assert (tried.code, tried.json["spec"]["color"]) == (200, "green")
    assert "color" not in (await api.get("w1")).json["spec"]
    resources = {each["name"]: each for each in (await api.get("/apis/example.test/v1")).json["resources"]}
    for name in ("widgets/paint", "widgets/twin"):
        assert (resources[name]["kind"], "get" in resources[name]["verbs"]) == ("Widget", False)


async def test_neg_08_cbor_is_neither_read_nor_written(api: Api) -> None:
    assert (await api.get("", Accept="application/cbor")).code == 406
    assert (await api.get("?watch=1", Accept="application/cbor-seq")).code == 406
    assert (await api.call("POST", "", b"\xa0", Content_Type="application/cbor")).code == 415
    assert (await api.get("", Accept="application/cbor, application/json;q=0.5")).json["kind"] == "WidgetList"


async def test_dbg_01_nothing_of_the_process_is_shown(api: Api) -> None:
    for path in ("/debug/pprof/", "/debug/pprof/profile", "/debug/flags/v"):
        assert (await api.get(path)).code == 404, path


async def test_shd_01_stopping_server_is_unready_but_serves_on(pki: Pki) -> None:
    storage, leave = MemoryStorage(), asyncio.Event()
    address: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        given = flags(pki, "--shutdown-delay-duration=3s")
        async with running.running(given, lambda _: Kinds((WidgetStrategy(),)), storage) as found:
            address.set_result(found)
            await leave.wait()

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(serve())
        host, port = await address
        async with api_of(pki, f"https://{host}:{port}", storage) as api:
            while (await api.get("/readyz")).code != 200:
                await asyncio.sleep(0.01)
            leave.set()
            while (unready := await api.get("/readyz")).code == 200:
                await asyncio.sleep(0.01)
            assert "[-]shutdown failed" in unready.body.decode()
            assert (await api.call("POST", "", widget())).code == 201
            assert ((await api.get("w1")).code, (await api.get("/livez")).code) == (200, 200)


class Noting(WidgetStrategy):
    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.seen: list[int] = []

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        self.seen.append(self.turns)
        return super().cells(obj, now)

    async def others(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


class Slow(Noting):
    def cells(self, obj: Object, now: datetime) -> list[Any]:
        time.sleep(TURN_SECONDS)
        return super().cells(obj, now)


@pytest.mark.parametrize("strategy", [Noting()])
async def test_long_table_is_built_in_pieces_while_others_are_served(api: Api, strategy: Noting) -> None:
    count = 3 * MOST
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(api.make(widget(f"w{number:03}", size=number)))
    partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

    async with asyncio.TaskGroup() as tasks:
        busy = tasks.create_task(strategy.others())
        table, small = [(await api.get("", Accept=each)).json for each in (TABLE, partial)]
        yaml = await api.get("", Accept=TABLE.replace("json", "yaml"))
        busy.cancel()
    assert max(Counter(strategy.seen[:count]).values()) <= MOST
    for whole, accept, part in ((table, TABLE, "rows"), (small, partial, "items")):
        pages, page, token = list[Any](), {}, ""
        while len(pages) < 3:
            page = (await api.get(f"?limit={MOST}&continue={token}", Accept=accept)).json
            token = page["metadata"].get("continue", "")
            pages.append(page[part])
        assert [len(each) for each in pages] == [MOST] * 3
        for row in (*whole[part], *(row for each in pages for row in each)):
            row.get("cells", [""]).pop()
        assert [row for each in pages for row in each] == whole[part]
        assert whole.keys() == page.keys()
    assert (yaml.code, yaml.body.count(b"\n- cells:")) == (200, count)
    empty = (await api.get("?labelSelector=no", Accept=TABLE)).json
    assert (empty["rows"], empty["columnDefinitions"][0]["name"]) == ([], "Name")


@pytest.mark.parametrize("strategy", [Slow()])
@pytest.mark.parametrize(
    ("method", "query"),
    [("GET", ""), ("DELETE", "?dryRun=All"), ("GET", "?watch=1&timeoutSeconds=1"), ("GET", "?watch=1&timeoutSeconds=1&labelSelector=!no")],
)
async def test_rows_that_take_long_are_made_in_a_turn_each(api: Api, strategy: Slow, method: str, query: str) -> None:
    count = 20
    for number in range(count):
        await api.make(widget(f"w{number:02}"))
    strategy.seen.clear()
    async with asyncio.TaskGroup() as tasks:
        busy = tasks.create_task(strategy.others())
        answer = await api.call(method, query, Accept=TABLE)
        busy.cancel()
    assert answer.code == 200
    assert len(strategy.seen) == len(set(strategy.seen)) == count
    assert len(re.findall(rb'"cells"', answer.body)) == count
