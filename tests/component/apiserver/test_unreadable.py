from __future__ import annotations

import asyncio
import json

from storage.memory import MemoryStorage
from storage.port import Put
from tests.component.apiserver.conftest import Api, Pki, serving
from tests.component.apiserver.widgets import WIDGETS, widget

UNREAD = "ignoreStoreReadErrorWithClusterBreakingPotential"
KEY = f"/registry/{WIDGETS.group}/{WIDGETS.plural}/acc/bad"


async def test_undecodable_object_breaks_nothing_and_can_be_deleted(api: Api) -> None:
    for name in "ab":
        await api.make(widget(name))
    await api.storage.commit([], [Put(KEY, b'{"kind":"Widget","metadata":{"na')])
    listed = await api.get()
    assert [each["metadata"]["name"] for each in listed.json["items"]] == ["a", "b"]
    exact = await api.get(f"?resourceVersion={listed.json['metadata']['resourceVersion']}&resourceVersionMatch=Exact")
    assert [each["metadata"]["name"] for each in exact.json["items"]] == ["a", "b"]
    async with api.watch(f"resourceVersion={listed.json['metadata']['resourceVersion']}") as frames:
        assert (await api.get("a")).code == 200
        for method, path in (("GET", "bad"), ("DELETE", "bad"), ("POST", "")):
            answer = await api.call(method, path, widget("bad") if method == "POST" else None)
            assert (answer.code, answer.json["reason"]) == (500, "InternalError"), (method, answer.body)
            assert UNREAD in answer.json["message"]
        assert (await api.call("DELETE", f"bad?{UNREAD}=true&dryRun=All")).code == 422
        page = (await api.get("/metrics")).body.decode()
        assert f'apiserver_storage_decode_errors_total{{group="{WIDGETS.group}",resource="widgets"}} 1' in page
        assert (await api.call("DELETE", f"bad?{UNREAD}=true")).code == 200
        assert (await api.get("bad")).code == 404
        await api.make(widget("bad"))
        assert (await anext(frames))["type"] == "ADDED"
    readable = await api.call("DELETE", "a", {"kind": "DeleteOptions", "apiVersion": "v1", UNREAD: True})
    assert readable.code == 200


async def test_cache_that_lost_an_object_is_detected_and_reread(pki: Pki) -> None:
    async with serving(pki, storage=MemoryStorage()) as api:
        for name in "abc":
            await api.make(widget(name))
        (cache,) = api.process.assembly.caches
        cache._items.remove(KEY.replace("bad", "b"))
        assert not await cache.check()
        async with asyncio.timeout(10):
            while len((await api.get()).json["items"]) < 3:
                await asyncio.sleep(0.01)
        page = (await api.get("/metrics")).body.decode()
        assert f'apiserver_storage_consistency_checks_total{{group="{WIDGETS.group}",resource="widgets",status="failure"}} 1' in page


async def test_while_the_cache_is_wrong_reads_go_to_storage(pki: Pki) -> None:
    async with serving(pki) as api:
        for name in "abc":
            await api.make(widget(name))
        (cache,) = api.process.assembly.caches
        cache._items.remove(KEY.replace("bad", "b"))
        assert (await api.get("b")).code == 404
        cache.is_usable = False
        for query in ("", "?resourceVersion=0", "?limit=2"):
            listed = json.loads((await api.get(query)).body)
            assert [each["metadata"]["name"] for each in listed["items"]] == ["a", "b", "c"][: len(listed["items"])]
            assert len(listed["items"]) == (2 if "limit" in query else 3)
        assert (await api.get("b")).code == 200
        assert (await api.get("b?resourceVersion=0")).code == 200
        cache.is_usable = True
