from __future__ import annotations

import asyncio
import base64
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from apiserver.server.options import Times
from storage.etcd.store import EtcdStorage, Settings
from storage.port import Delete, Entry, Put
from tests.component.apiserver.conftest import NAMESPACE, Api, Pki, serving
from tests.component.apiserver.widgets import widget
from tests.fakes.etcd_server import EtcdServer, etcd_server
from tests.fakes.kms import FakeKms
from tests.own_time import within
from tests.ports import free_port

__all__ = ["etcd_server"]

QUICK = Times(files=0.05, kms=(0.05, 0.05))
PREFIX = f"/registry/example.test/widgets/{NAMESPACE}/"


@pytest.fixture
async def etcd(etcd_server: EtcdServer) -> Any:
    storage = EtcdStorage(Settings((etcd_server.endpoint,)))
    while (page := await storage.range("", limit=100)).entries:
        await storage.commit([], [Delete(entry.key) for entry in page.entries])
    yield storage
    await storage.close()


def client(etcd_server: EtcdServer) -> EtcdStorage:
    return EtcdStorage(Settings((etcd_server.endpoint,)))


async def entry_of(etcd: EtcdStorage, name: str) -> Entry:
    entry = await etcd.get(PREFIX + name)
    assert entry is not None
    return entry


async def test_sto_01_keys_and_values_are_those_of_gos_servers(pki: Pki, etcd_server: EtcdServer, etcd: EtcdStorage) -> None:
    async with serving(pki, storage=client(etcd_server)) as api:
        made = await api.make(widget("w1"))
        keys = [entry.key for entry in (await etcd.range("/")).entries]
        assert f"{PREFIX}w1" in keys
        value = json.loads((await entry_of(etcd, "w1")).value)
    assert (value["apiVersion"], value["kind"]) == ("example.test/v1", "Widget")
    assert value["metadata"]["uid"] == made["metadata"]["uid"]
    assert not {"resourceVersion", "selfLink"} & value["metadata"].keys()
    del made["metadata"]["resourceVersion"]
    assert value == made


async def test_sto_02_no_update_is_lost_however_many_write_at_once(pki: Pki, etcd_server: EtcdServer, etcd: EtcdStorage) -> None:
    async with serving(pki, storage=client(etcd_server)) as api, serving(pki, storage=client(etcd_server)) as other:
        await api.make(widget("w1", size=0))

        async def count(api: Api, times: int) -> None:
            done = 0
            while done < times:
                obj = (await api.get("w1")).json
                obj["spec"]["size"] += 1
                answer = await api.call("PUT", "w1", obj)
                assert answer.code in {200, 409}, answer.body
                done += answer.code == 200

        async with asyncio.TaskGroup() as tasks:
            for number in range(10):
                tasks.create_task(count(other if number % 2 else api, 15))
        assert (await other.get("w1")).json["spec"]["size"] == 150


async def test_sto_03_resource_versions_are_etcds_revisions(pki: Pki, etcd_server: EtcdServer, etcd: EtcdStorage) -> None:
    async with serving(pki, storage=client(etcd_server)) as api:
        made = await api.make(widget("w1"))
        assert int(made["metadata"]["resourceVersion"]) == (await entry_of(etcd, "w1")).mod_revision
        now = int((await api.get()).json["metadata"]["resourceVersion"])
        assert now >= (await entry_of(etcd, "w1")).mod_revision
        async with api.watch(f"resourceVersion={now}") as frames:
            await api.call("DELETE", "w1")
            async with asyncio.timeout(20):
                while (frame := await anext(frames))["type"] != "DELETED":
                    pass
        revision = await etcd.revision()
        assert int(frame["object"]["metadata"]["resourceVersion"]) == revision


async def test_sto_05_compaction_key_exists_and_history_is_removed(
    pki: Pki, etcd_server: EtcdServer, etcd: EtcdStorage
) -> None:  # fmt: skip
    async with serving(pki, "--etcd-compaction-interval=100ms", storage=client(etcd_server)) as api:
        made = await api.make(widget("w1"))
        async with asyncio.timeout(10):
            while (await api.get(f"?resourceVersionMatch=Exact&resourceVersion={made['metadata']['resourceVersion']}")).code != 410:
                await api.patch("w1", {"spec": {"size": random.randint(2, 1000)}})
        entry = await etcd.get("compact_rev_key")
        assert entry is not None
        assert int(entry.value) > int(made["metadata"]["resourceVersion"])


def configure(file: Path, *names: str) -> None:
    keys = ", ".join(f"{{name: {each}, secret: {base64.b64encode(random.Random(each).randbytes(32)).decode()}}}" for each in names)
    written = file.with_suffix(".new")
    written.write_text(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
        f"resources: [{{resources: ['*.example.test'], providers: [{{aesgcm: {{keys: [{keys}]}}}}]}}]\n"
    )
    written.replace(file)


async def until_reloaded(api: Api, times: int) -> None:
    wanted = f'apiserver_encryption_config_controller_automatic_reloads_total{{status="success"}} {times}\n'
    async with asyncio.timeout(10):
        while wanted not in (await api.get("/metrics")).body.decode():
            await asyncio.sleep(0.02)


async def test_sto_06_key_rotation_needs_no_restart_and_noop_rewrites(
    pki: Pki, etcd_server: EtcdServer, etcd: EtcdStorage, tmp_path: Path
) -> None:
    file = tmp_path / "encryption.yaml"
    configure(file, "old")
    flags = (f"--encryption-provider-config={file}", "--encryption-provider-config-automatic-reload")
    async with serving(pki, *flags, storage=client(etcd_server), times=QUICK) as api:
        made = await api.make(widget("w1"))
        await api.make(widget("w2"))
        assert (await entry_of(etcd, "w1")).value.startswith(b"k8s:enc:aesgcm:v1:old:")
        unchanged = (await api.call("PUT", "w1", made)).json
        assert unchanged["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

        configure(file, "new", "old")
        await until_reloaded(api, 1)
        assert (await api.get("w1")).json == made
        renewed = (await api.call("PUT", "w1", made)).json
        assert int(renewed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
        assert (await entry_of(etcd, "w1")).value.startswith(b"k8s:enc:aesgcm:v1:new:")
        again = (await api.call("PUT", "w1", renewed)).json
        assert again == renewed
        assert (await api.patch("w2", {})).code == 200
        assert (await entry_of(etcd, "w2")).value.startswith(b"k8s:enc:aesgcm:v1:new:")

        configure(file, "new")
        await until_reloaded(api, 2)
        assert {item["metadata"]["name"] for item in (await api.get()).json["items"]} == {"w1", "w2"}
    async with serving(pki, *flags, storage=client(etcd_server), times=QUICK) as api:
        assert {item["metadata"]["name"] for item in (await api.get()).json["items"]} == {"w1", "w2"}


async def test_sto_06_08_undecryptable_objects_are_reported(
    pki: Pki, etcd_server: EtcdServer, etcd: EtcdStorage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "encryption.yaml"
    configure(file, "lost")
    flags = (f"--encryption-provider-config={file}", "--encryption-provider-config-automatic-reload")
    async with serving(pki, *flags, storage=client(etcd_server), times=QUICK) as api:
        await api.make(widget("w1"))
    configure(file, "other")
    async with serving(pki, *flags, storage=client(etcd_server), times=QUICK) as api:
        await api.make(widget("w2"))
        assert [item["metadata"]["name"] for item in (await api.get()).json["items"]] == ["w2"]
        assert (await api.get("w2")).code == 200
        assert (await api.get("w1")).code in {404, 500}
        assert "Cannot decrypt a stored value" in caplog.text
        assert base64.b64encode(random.Random("other").randbytes(32)).decode() not in caplog.text
        metrics = (await api.get("/metrics")).body.decode()
        assert "apiserver_storage_decryption_failures_total 0" not in metrics
        configure(file, "other", "lost")
        await until_reloaded(api, 1)
        async with asyncio.timeout(10):
            while len((await api.get()).json["items"]) != 2:
                await asyncio.sleep(0.02)
        assert (await api.get("w1")).code == 200


async def test_sto_06_kms_takes_over_rotates_and_fails_harmlessly(
    pki: Pki, etcd_server: EtcdServer, etcd: EtcdStorage, tmp_path: Path
) -> None:
    file, kms = tmp_path / "encryption.yaml", FakeKms()
    configure(file, "old")
    flags = (f"--encryption-provider-config={file}", "--encryption-provider-config-automatic-reload")
    async with serving(pki, *flags, storage=client(etcd_server), times=QUICK) as api:
        made = await api.make(widget("w1"))
        provider = f"{{kms: {{apiVersion: v2, name: one, endpoint: 'unix://{tmp_path}/kms.sock'}}}}"
        file.write_text(file.read_text().replace("providers: [", f"providers: [{provider}, "))
        await asyncio.sleep(0.2)  # without the service nothing changes
        await api.make(widget("w2"))
        assert (await entry_of(etcd, "w2")).value.startswith(b"k8s:enc:aesgcm:v1:old:")
        async with kms.serving(tmp_path / "kms.sock"):
            await until_reloaded(api, 1)
            made = (await api.call("PUT", "w1", made)).json
            first = (await entry_of(etcd, "w1")).value
            assert first.startswith(b"k8s:enc:kms:v2:one:")
            assert (await api.call("PUT", "w1", made)).json == made
            kms.key_id = "2"
            async with asyncio.timeout(10):
                while (await api.call("PUT", "w1", made)).json == made:
                    await asyncio.sleep(0.02)
            assert (await entry_of(etcd, "w1")).value != first
            assert (await api.get("/readyz")).code == 200
        assert {item["metadata"]["name"] for item in (await api.get()).json["items"]} == {"w1", "w2"}


async def test_sto_06_a_moved_value_is_refused(pki: Pki, etcd_server: EtcdServer, etcd: EtcdStorage, tmp_path: Path) -> None:
    file = tmp_path / "encryption.yaml"
    configure(file, "one")
    async with serving(pki, f"--encryption-provider-config={file}", storage=client(etcd_server)) as api:
        await api.make(widget("w1"))
        await etcd.commit([], [Put(f"{PREFIX}thief", (await entry_of(etcd, "w1")).value)])
        assert [item["metadata"]["name"] for item in (await api.get()).json["items"]] == ["w1"]


async def test_sto_09_dead_endpoint_is_skipped_and_size_reported(pki: Pki, etcd_server: EtcdServer) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    storage = EtcdStorage(Settings((dead, etcd_server.endpoint)))
    async with serving(pki, "--etcd-db-metric-poll-interval=50ms", storage=storage) as api:
        assert (await api.get()).code == 200
        verbose = (await api.get("/readyz?verbose")).body.decode()
        assert "[+]etcd ok\n[+]etcd-readiness ok" in verbose
        async with asyncio.timeout(20):
            while 'apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} ' not in (await api.get("/metrics")).body.decode():
                await asyncio.sleep(0.05)


async def test_sto_09_hung_etcd_makes_the_server_unready_in_time(pki: Pki, tmp_path: Path) -> None:
    etcd = EtcdServer(tmp_path / "etcd", durable=False)
    etcd.start()
    flags = ("--etcd-readycheck-timeout=200ms", "--etcd-healthcheck-timeout=200ms")
    try:
        async with serving(pki, *flags, storage=EtcdStorage(Settings((etcd.endpoint,), timeout_seconds=2))) as api:
            etcd.pause()
            answer = await within(2, api.get("/readyz?verbose"))
            assert answer.code == 500
            assert "[-]etcd-readiness failed" in answer.body.decode()
            assert (await api.get("/livez")).code == 200
            etcd.resume()
            async with asyncio.timeout(10):
                while (await api.get("/readyz")).code != 200:
                    await asyncio.sleep(0.05)
    finally:
        etcd.close()


async def test_sto_10_what_one_replica_wrote_the_other_reads_at_once(pki: Pki, etcd_server: EtcdServer, etcd: EtcdStorage) -> None:
    async with serving(pki, storage=client(etcd_server)) as one, serving(pki, storage=client(etcd_server)) as two:

        async def both(begin: int) -> None:
            for number in range(begin, 300, 3):
                writer, reader = (one, two) if number % 2 else (two, one)
                made = await writer.make(widget(f"w{number}"))
                assert (await reader.get(f"w{number}")).json == made

        async with asyncio.TaskGroup() as tasks:
            for begin in range(3):
                tasks.create_task(both(begin))


async def test_sto_12_an_object_too_large_for_etcd_is_a_clear_413(pki: Pki, etcd_server: EtcdServer) -> None:
    async with serving(pki, storage=client(etcd_server)) as api:
        obj = widget("big")
        obj["spec"]["parts"] = [{"name": "x" * 2_000_000}]
        body = io.BytesIO(json.dumps(obj).encode())

        async def post() -> tuple[int, Any]:
            async with api.session.post(api.url + api.path, data=body, headers={"Content-Type": "application/json"}) as answer:
                return answer.status, await answer.json()

        code, status = await within(5, post())
        assert (code, status["reason"]) == (413, "RequestEntityTooLarge"), status
        assert "too large" in status["message"]
        assert (await api.get("big")).code == 404
