from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import aiohttp

from apiserver.registry.generic.listing import Position, encode_token
from storage.memory import MemoryStorage
from storage.port import Put
from tests.component.apiserver.conftest import Api, Pki, serving
from tests.component.apiserver.widgets import WIDGETS, widget

BOOKMARKED = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


async def fill(api: Api, *names: str) -> int:
    made: Any = {}
    for name in names:
        body = widget(name, color="green" if name in "bd" else "red")
        body["metadata"]["labels"] = {"letter": name}
        made = await api.make(body)
    return int(made["metadata"]["resourceVersion"])


async def names(api: Api, query: str = "") -> list[str]:
    answer = await api.get(query)
    assert answer.code == 200, answer.body
    return [each["metadata"]["name"] for each in answer.json["items"]]


async def test_a_list_has_its_kind_its_revision_and_items_in_order(api: Api) -> None:
    empty = (await api.get()).json
    assert (empty["kind"], empty["apiVersion"], empty["items"]) == ("WidgetList", WIDGETS.api_version, [])
    revision = await fill(api, "c", "a", "b")
    listed = (await api.get()).json
    assert [each["metadata"]["name"] for each in listed["items"]] == ["a", "b", "c"]
    assert all(each["kind"] == "Widget" for each in listed["items"])
    assert int(listed["metadata"]["resourceVersion"]) >= revision
    assert len((await api.get(WIDGETS.path())).json["items"]) == 3


async def test_selectors_select(api: Api) -> None:
    await fill(api, "a", "b", "c", "d")
    assert await names(api, "?labelSelector=letter in (a,b)") == ["a", "b"]
    assert await names(api, "?fieldSelector=spec.color=green,metadata.name!=b") == ["d"]
    assert await names(api, "?fieldSelector=metadata.name=c") == ["c"]
    assert await names(api, "?labelSelector=letter=a&fieldSelector=metadata.name=c") == []
    assert (await api.get("?labelSelector=a in")).code == 400
    unknown = await api.get("?fieldSelector=spec.x=1")
    assert (unknown.code, '"spec.x" is not a known field selector' in unknown.json["message"]) == (400, True)


async def test_pages_show_one_revision_whatever_happens_in_between(api: Api) -> None:
    await fill(api, "a", "b", "c", "d", "e")
    first = (await api.get("?limit=2")).json
    assert first["metadata"]["remainingItemCount"] == 3
    await api.call("DELETE", "c")
    await fill(api, "cc")
    second = (await api.get(f"?limit=2&continue={first['metadata']['continue']}")).json
    third = (await api.get(f"?limit=2&continue={second['metadata']['continue']}")).json
    assert [each["metadata"]["name"] for page in (first, second, third) for each in page["items"]] == list("abcde")
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1
    assert "continue" not in third["metadata"]
    selected = (await api.get("?limit=1&labelSelector=letter in (b,d)")).json
    assert "remainingItemCount" not in selected["metadata"]
    rest = (await api.get(f"?limit=5&labelSelector=letter in (b,d)&continue={selected['metadata']['continue']}")).json
    assert [each["metadata"]["name"] for each in rest["items"]] == ["d"]


async def test_an_expired_token_gives_one_that_goes_on_inconsistently(api: Api) -> None:
    await fill(api, "a", "b", "c")
    first = (await api.get("?limit=1")).json
    await fill(api, "d")
    await api.storage.compact(await api.storage.revision())
    expired = await api.get(f"?limit=1&continue={first['metadata']['continue']}")
    assert (expired.code, expired.json["reason"]) == (410, "Expired")
    assert await names(api, f"?continue={expired.json['metadata']['continue']}") == ["b", "c", "d"]


JUDGED = (
    ("resourceVersionMatch=Exact", 422),
    ("resourceVersion=0&resourceVersionMatch=Exact", 422),
    ("resourceVersion=0&resourceVersionMatch=NotOlderThan", 200),
    ("resourceVersion=0&resourceVersionMatch=x", 422),
    ("resourceVersion=abc", 400),
    ("resourceVersion=1", 200),
    ("limit=x", 400),
    ("limit=-1", 200),
    ("continue=x", 400),
    ("continue=x&resourceVersion=5", 400),
    ("sendInitialEvents=true", 422),
    ("foo=bar", 200),
    ("timeout=abc", 400),
    ("timeout=5s", 200),
    ("includeObject=x", 200),
    ("watch=false", 200),
    ("watch=1&sendInitialEvents=true", 422),
    ("watch=1&resourceVersionMatch=NotOlderThan", 422),
    ("watch=1&resourceVersion=abc", 400),
)


async def test_the_parameters_are_judged_as_go_judges_them(api: Api) -> None:
    answers = [(query, (await api.get(f"?{query}")).code) for query, _ in JUDGED]
    assert answers == list(JUDGED)


async def test_a_list_at_an_exact_revision_shows_the_past(api: Api) -> None:
    revision = await fill(api, "a", "b")
    await fill(api, "c")
    assert await names(api, f"?resourceVersion={revision}&resourceVersionMatch=Exact") == ["a", "b"]
    assert await names(api, f"?resourceVersion={revision}") == ["a", "b", "c"]


async def test_a_revision_of_the_future_is_a_timeout_with_its_cause(pki: Pki) -> None:
    token = encode_token(Position(99_999_999_999, "a"))
    async with serving(pki) as api:
        answers = [await api.get("?resourceVersion=99999999999"), await api.get(f"?limit=1&continue={token}")]
    for answer in answers:
        assert (answer.code, answer.json["reason"]) == (504, "Timeout")
        assert answer.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert answer.headers["Retry-After"] == "1"


async def test_delete_collection_deletes_what_is_selected(api: Api) -> None:
    await fill(api, "a", "b", "c")
    answer = await api.call(
        "DELETE",
        "?labelSelector=letter!=b",
        {"propagationPolicy": "Background"},
        Accept="application/vnd.kubernetes.protobuf,application/json",
    )
    assert [each["metadata"]["name"] for each in answer.json["items"]] == ["a", "c"]
    assert await names(api) == ["b"]


async def take(frames: Any, count: int) -> list[Any]:
    async with asyncio.timeout(30):
        return [await anext(frames) for _ in range(count)]


async def test_a_watch_tells_additions_changes_and_deletions_in_order(api: Api) -> None:
    revision = await fill(api, "a")
    async with api.watch(f"resourceVersion={revision}") as frames:
        await fill(api, "b")
        await api.patch("b", {"spec": {"size": 2}})
        await api.call("DELETE", "b")
        events = await take(frames, 3)
    assert [each["type"] for each in events] == ["ADDED", "MODIFIED", "DELETED"]
    revisions = [int(each["object"]["metadata"]["resourceVersion"]) for each in events]
    assert revisions == sorted(set(revisions))
    assert events[2]["object"]["spec"]["size"] == 2


async def test_a_watch_list_ends_its_beginning_with_the_bookmark(api: Api) -> None:
    revision = await fill(api, "b", "a")
    async with api.watch(BOOKMARKED) as frames:
        first = await take(frames, 3)
        await fill(api, "c")
        live = await take(frames, 1)
    assert [(each["type"], each["object"]["metadata"].get("name")) for each in first] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("BOOKMARK", None),
    ]
    assert first[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert first[2]["object"]["kind"] == "Widget"
    assert int(first[2]["object"]["metadata"]["resourceVersion"]) >= revision
    assert live[0]["object"]["metadata"]["name"] == "c"


async def test_a_watch_without_revision_begins_with_what_there_is(api: Api) -> None:
    await fill(api, "a", "b")
    for query in ("", "resourceVersion=0"):
        async with api.watch(query) as frames:
            assert [each["object"]["metadata"]["name"] for each in await take(frames, 2)] == ["a", "b"]
    async with api.watch("sendInitialEvents=false&resourceVersionMatch=NotOlderThan") as frames:
        await fill(api, "c")
        assert (await take(frames, 1))[0]["object"]["metadata"]["name"] == "c"


async def test_objects_enter_and_leave_a_selected_watch(api: Api) -> None:
    await fill(api, "a")
    async with api.watch("labelSelector=letter=x") as frames:
        await api.patch("a", {"metadata": {"labels": {"letter": "x"}}})
        await api.patch("a", {"metadata": {"labels": {"letter": "y"}}})
        entered, left = await take(frames, 2)
    assert (entered["type"], left["type"]) == ("ADDED", "DELETED")
    assert left["object"]["metadata"]["labels"]["letter"] == "x"
    assert int(left["object"]["metadata"]["resourceVersion"]) > int(entered["object"]["metadata"]["resourceVersion"])


async def test_a_watch_from_a_forgotten_revision_gets_one_error_event(pki: Pki) -> None:
    storage = MemoryStorage()
    for _ in range(3):
        await storage.commit([], [Put("/elsewhere", b"")])
    await storage.compact(await storage.revision())
    async with serving(pki, storage=storage) as api, api.watch("resourceVersion=1") as frames:
        events = [each async for each in frames]
    assert [(each["type"], each["object"]["code"], each["object"]["reason"]) for each in events] == [("ERROR", 410, "Expired")]
    assert events[0]["object"]["message"].startswith("too old resource version: 1 (")


class Outliving(MemoryStorage):
    async def close(self) -> None:
        return


async def test_a_watch_goes_on_from_before_the_server_started(pki: Pki) -> None:
    storage = Outliving()
    async with serving(pki, storage=storage) as api:
        first = await fill(api, "a")
        await fill(api, "b", "c")
    async with serving(pki, storage=storage) as api, api.watch(f"resourceVersion={first}") as frames:
        assert [(await anext(frames))["object"]["metadata"]["name"] for _ in range(2)] == ["b", "c"]
        await fill(api, "d")
        assert (await anext(frames))["object"]["metadata"]["name"] == "d"


async def test_a_watch_by_name_or_selector_hears_what_it_asked_for(api: Api) -> None:
    revision = await fill(api, "a", "b", "c", "d")
    queries = ("fieldSelector=metadata.name=b", "labelSelector=letter=b", "fieldSelector=spec.color=green", "labelSelector=letter in (b,d)")
    for query in queries:
        async with api.watch(f"{query}&resourceVersion={revision}") as later, api.watch(query) as initial:
            expected = ["b", "d"] if "green" in query or "in (" in query else ["b"]
            assert [(await anext(initial))["object"]["metadata"]["name"] for _ in expected] == expected
            for name in "abcd":
                changed = await api.patch(name, {"metadata": {"annotations": {"for": query}}})
                assert changed.code == 200
            for frames in (initial, later):
                assert [(await anext(frames))["object"]["metadata"]["name"] for _ in expected] == expected


async def test_watch_ends_after_its_timeout_with_a_last_bookmark(api: Api) -> None:
    revision = await fill(api, "a")
    async with api.watch(f"resourceVersion={revision}&timeoutSeconds=1&allowWatchBookmarks=") as frames:
        events = [each async for each in frames]
    assert [each["type"] for each in events] == ["BOOKMARK"]


async def test_a_watch_ends_cleanly_when_the_server_stops(pki: Pki) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=pki.client("developer"))) as session:
        async with serving(pki) as api:
            response = await session.get(f"{api.url}{api.path}?watch=1")
        async with asyncio.timeout(30):
            assert await response.read() == b""


async def test_tables_and_metadata_alone_in_lists_and_watches(api: Api) -> None:
    await fill(api, "a")
    table = (await api.get(Accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json")).json
    assert (table["kind"], [each["name"] for each in table["columnDefinitions"]]) == ("Table", ["Name", "Size", "Color", "Age"])
    row = table["rows"][0]
    assert row["cells"][:3] == ["a", 1, "red"]
    assert row["cells"][3].endswith("s")
    assert (row["object"]["kind"], "spec" in row["object"]) == ("PartialObjectMetadata", False)
    whole = (await api.get("a?includeObject=Object", Accept="application/json;as=Table;v=v1;g=meta.k8s.io")).json
    assert whole["rows"][0]["object"]["spec"]["size"] == 1
    bare = (await api.get("a?includeObject=None", Accept="application/json;as=Table;v=v1;g=meta.k8s.io")).json
    assert bare["rows"][0]["object"] is None
    wanted = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    accept = f"application/vnd.kubernetes.protobuf;{wanted},application/json;{wanted},application/json"
    partial = (await api.get(Accept=accept)).json
    assert (partial["kind"], sorted(partial["items"][0])) == ("PartialObjectMetadataList", ["apiVersion", "kind", "metadata"])
    async with api.watch("", Accept="application/json;as=Table;v=v1;g=meta.k8s.io") as frames:
        await fill(api, "b")
        first, second = await take(frames, 2)
    assert (first["object"]["columnDefinitions"] is not None, second["object"]["columnDefinitions"]) == (True, None)
    async with api.watch(BOOKMARKED, Accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1") as frames:
        assert {each["object"]["kind"] for each in await take(frames, 3)} == {"PartialObjectMetadata"}
    async with api.watch(BOOKMARKED, Accept="application/json;as=Table;v=v1;g=meta.k8s.io") as frames:
        bookmark = (await take(frames, 3))[2]["object"]
    assert (list(bookmark["metadata"]), bookmark["columnDefinitions"]) == (["resourceVersion"], None)
    assert bookmark["rows"][0]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_watches_of_every_form_get_the_same_counted_events(api: Api) -> None:
    partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    forms: list[tuple[str, dict[str, str]]] = [
        ("", {}), ("", {}), ("labelSelector=app=a", {}), ("fieldSelector=metadata.name=a", {}), ("", {"Accept": partial}),
        ("", {"Accept": table}), ("", {"Accept": table}),
    ]  # fmt: skip
    revision = (await api.get()).json["metadata"]["resourceVersion"]
    counted = sent_events((await api.get("/metrics")).body)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(api.watch(f"resourceVersion={revision}&{query}", **given)) for query, given in forms]
        socket = await stack.enter_async_context(api.session.ws_connect(f"{api.url}{api.path}?watch=1&resourceVersion={revision}"))
        body = widget("a")
        body["metadata"]["labels"] = {"app": "a"}
        await api.make(body)
        for size in range(2, 6):
            await api.patch("a", {"spec": {"size": size}})
        told = [await take(frames, 5) for frames in streams]
        told.append([json.loads((await socket.receive()).data) for _ in range(5)])
    assert [[each["type"] for each in one] for one in told] == [["ADDED"] + ["MODIFIED"] * 4] * 8
    revisions = [[each["object"]["metadata"]["resourceVersion"] for each in one] for one in told]
    assert revisions == [revisions[0]] * 8
    assert told[0] == told[1] == told[2] == told[3] == told[7]
    assert [each["object"]["kind"] for each in told[4]] == ["PartialObjectMetadata"] * 5
    for one in told[5:7]:
        assert [each["object"]["columnDefinitions"] is None for each in one] == [False, True, True, True, True]
        assert [each["object"]["rows"][0]["cells"][1] for each in one] == [1, 2, 3, 4, 5]
    assert sent_events((await api.get("/metrics")).body) - counted == 40


def sent_events(metrics: bytes) -> float:
    names = ("apiserver_watch_events_total{", "apiserver_watch_events_sizes_count{")
    lines = [line for line in metrics.decode().splitlines() if 'resource="widgets"' in line]
    counts = {sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)) for name in names}
    assert len(counts) == 1
    return counts.pop()


async def test_a_client_that_asks_for_what_we_do_not_write_gets_406(api: Api) -> None:
    for accept in ("text/html", "application/vnd.kubernetes.protobuf"):
        answer = await api.get("", Accept=accept)
        assert (answer.code, answer.json["reason"]) == (406, "NotAcceptable")
    stream = await api.get("?watch=1", Accept="application/yaml")
    assert (stream.code, b"reason: NotAcceptable" in stream.body) == (406, True)
    yaml = await api.get(Accept="application/yaml")
    assert yaml.body.startswith(b"kind: WidgetList")


def open_watches(metrics: bytes) -> float:
    lines = [
        line for line in metrics.decode().splitlines() if line.startswith("apiserver_longrunning_requests{") and 'verb="WATCH"' in line
    ]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def test_a_client_that_goes_away_ends_its_watch(api: Api) -> None:
    async with api.watch(""):
        assert open_watches((await api.get("/metrics")).body) == 1
    async with asyncio.timeout(30):
        while open_watches((await api.get("/metrics")).body):
            await asyncio.sleep(0.02)


async def test_client_that_does_not_read_delays_no_other(api: Api) -> None:
    body = widget("big")
    body["metadata"]["annotations"] = {"a": "x" * 100_000}
    made = await api.make(body)
    query = f"resourceVersion={made['metadata']['resourceVersion']}"
    async with api.session.get(f"{api.url}{api.path}?watch=1&{query}") as stalled, api.watch(query) as frames:
        for i in range(60):
            await api.patch("big", {"spec": {"size": i + 2}})
        async with asyncio.timeout(10):
            sizes = [(await anext(frames))["object"]["spec"]["size"] for _ in range(60)]
        assert sizes == list(range(2, 62))
        assert stalled.status == 200


async def test_interrupted_watch_never_reports_an_older_revision(api: Api) -> None:
    body = widget("big")
    body["metadata"]["annotations"] = {"a": "x" * 100_000}
    made = await api.make(body)
    query = f"resourceVersion={made['metadata']['resourceVersion']}&allowWatchBookmarks=true&timeoutSeconds=2"
    async with api.session.get(f"{api.url}{api.path}?watch=1&{query}", read_bufsize=1 << 16) as slow:
        for i in range(80):
            await api.patch("big", {"spec": {"size": i + 2}})
        await asyncio.sleep(2)
        told = await slow.read()
    revisions = [int(json.loads(line)["object"]["metadata"]["resourceVersion"]) for line in told.splitlines()]
    assert len(revisions) > 2
    assert revisions == sorted(revisions)


async def test_legacy_watch_path_shows_only_the_authorized_object(api: Api) -> None:
    await api.make(widget("w1"))
    await api.make(widget("w2"))
    base = f"/apis/{WIDGETS.group}/{WIDGETS.version}/watch"

    async def names(path: str, query: str = "") -> list[str]:
        answer = await api.get(f"{base}{path}?timeoutSeconds=1{query}")
        assert answer.code == 200, answer.body
        return [json.loads(line)["object"]["metadata"]["name"] for line in answer.body.splitlines()]

    async with asyncio.TaskGroup() as tasks:
        one = tasks.create_task(names("/namespaces/acc/widgets/w2"))
        same = tasks.create_task(names("/namespaces/acc/widgets/w2", "&fieldSelector=metadata.name%3Dw2"))
        both = tasks.create_task(names("/namespaces/acc/widgets"))
        everywhere = tasks.create_task(names("/widgets"))
    assert (one.result(), same.result(), both.result(), everywhere.result()) == (["w2"], ["w2"], ["w1", "w2"], ["w1", "w2"])
    for selector in ("metadata.name%3Dw1", "metadata.name", "metadata.namespace%3Dacc", "nosuch%3Dx"):
        assert (await api.get(f"{base}/namespaces/acc/widgets/w2?fieldSelector={selector}")).code == 400, selector
    for method, path in (("GET", "/widgets/w1"), ("GET", "/namespaces/acc/widgets/w1/status"), ("GET", "/namespaces/acc/widgets/w1/tap")):
        assert (await api.call(method, base + path)).code == 404, path
    assert (await api.call("DELETE", f"{base}/namespaces/acc/widgets/w1")).code == 405
    assert (await api.get("w1")).code == 200
