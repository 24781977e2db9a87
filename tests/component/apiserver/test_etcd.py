from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from storage.etcd.store import EtcdStorage, Settings
from tests.component.apiserver.conftest import Api, Pki, serving
from tests.component.apiserver.widgets import widget
from tests.fakes.etcd_server import EtcdServer, etcd_server

__all__ = ["etcd_server"]


async def test_two_servers_on_one_etcd_show_each_others_writes_at_once(pki: Pki, etcd_server: EtcdServer) -> None:
    def store() -> EtcdStorage:
        return EtcdStorage(Settings((etcd_server.endpoint,), prefix="/two/"))

    async with serving(pki, storage=store()) as one, serving(pki, storage=store()) as two:
        async with two.watch("") as frames:
            for i in range(30):
                made = await one.make(widget(f"w{i}", slot="only" if i == 0 else ""))
                assert (await two.get(f"w{i}")).json == made
                assert (await anext(frames))["object"] == made
        assert (await two.call("POST", "", widget("late", slot="only"))).code == 409
        assert len((await two.call("DELETE", "")).json["items"]) == 30
        assert (await one.get()).json["items"] == []


async def count_up(api: Api, acknowledged: list[int], stop: asyncio.Event) -> None:
    while not stop.is_set():
        answer = await api.get("w1")
        if answer.code != 200:
            assert answer.code in {503, 504}, answer.body
            continue
        obj = answer.json
        obj["spec"]["size"] += 1
        written = await api.call("PUT", "w1", obj)
        assert written.code in {200, 409, 503, 504}, written.body
        if written.code == 200:
            acknowledged.append(obj["spec"]["size"])


async def test_acknowledged_writes_and_watches_survive_an_etcd_kill(pki: Pki, tmp_path: Path) -> None:
    etcd = EtcdServer(tmp_path / "etcd", durable=True)
    etcd.start()
    try:
        async with serving(pki, storage=EtcdStorage(Settings((etcd.endpoint,), timeout_seconds=2))) as api:
            made = await api.make(widget(size=0))
            acknowledged: list[int] = []
            stop = asyncio.Event()
            async with api.watch(f"resourceVersion={made['metadata']['resourceVersion']}") as frames, asyncio.TaskGroup() as tasks:
                tasks.create_task(count_up(api, acknowledged, stop))
                while len(acknowledged) < 5:
                    await asyncio.sleep(0.02)
                before = len(acknowledged)
                etcd.kill()
                await asyncio.sleep(0.3)
                assert (await api.get("/livez")).code == 200
                await asyncio.to_thread(etcd.start)
                async with asyncio.timeout(20):
                    while len(acknowledged) < before + 5:
                        await asyncio.sleep(0.05)
                stop.set()
                seen = []
                async with asyncio.timeout(10):
                    while acknowledged[-1] not in seen:
                        seen.append((await anext(frames))["object"]["spec"]["size"])
            final = (await api.get("w1")).json["spec"]["size"]
    finally:
        etcd.close()
    assert final >= acknowledged[-1]
    assert acknowledged == sorted(set(acknowledged))
    assert seen == list(range(1, seen[-1] + 1))


UNANSWERABLE = ("w1", "absent", "", "?limit=1", "?fieldSelector=metadata.name=w1")


@pytest.mark.parametrize("how", ["pause", "kill"])
async def test_unanswerable_read_fails_without_a_second_request(pki: Pki, tmp_path: Path, how: str) -> None:
    """The fast path, the cache and etcd would each try, for 3, 3 and 5 s."""
    etcd = EtcdServer(tmp_path / "etcd", durable=True)
    etcd.start()
    try:
        async with serving(pki, storage=EtcdStorage(Settings((etcd.endpoint,)))) as api:
            await api.make(widget())
            for path in UNANSWERABLE:
                assert (await api.get(path)).code in {200, 404}
            if how == "pause":
                etcd.pause()
            else:
                etcd.kill()
            for path in UNANSWERABLE:
                short = await api.get(f"{path}{'&' if '?' in path else '?'}timeout=100ms")
                assert (short.code, short.json["reason"]) in {(504, "Timeout"), (503, "ServiceUnavailable")}
                refused = await api.get(path)
                assert (refused.code, refused.json["message"]) in {
                    (503, "the storage does not respond"),
                    (503, "cannot read the storage"),
                }
                assert refused.json["details"]["retryAfterSeconds"] == 1
            assert [(await api.get(f"{path}?resourceVersion=0")).code for path in ("w1", "")] == [200, 200]
            await asyncio.to_thread(etcd.resume if how == "pause" else etcd.start)
            async with asyncio.timeout(20):
                while (await api.get("w1")).code != 200:
                    await asyncio.sleep(0.05)
    finally:
        if how == "pause":
            etcd.resume()
        etcd.close()


async def test_a_hung_etcd_gives_errors_in_time_and_then_goes_on(pki: Pki, tmp_path: Path) -> None:
    etcd = EtcdServer(tmp_path / "etcd", durable=False)
    etcd.start()
    try:
        async with serving(pki, storage=EtcdStorage(Settings((etcd.endpoint,), timeout_seconds=1))) as api:
            await api.make(widget())
            assert (await api.get("w1")).code == 200
            etcd.pause()
            async with asyncio.timeout(10):
                assert (await api.get("w1")).code in {503, 504}
                assert (await api.patch("w1", {"spec": {"size": 5}})).code in {503, 504}
                assert (await api.get("w1?resourceVersion=0")).code == 200
            etcd.resume()
            async with asyncio.timeout(10):
                while (await api.get("w1")).code != 200:
                    await asyncio.sleep(0.05)
    finally:
        etcd.resume()
        etcd.close()
