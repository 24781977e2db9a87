import asyncio
import base64
import random
from pathlib import Path

import pytest

from apiserver.metrics.instruments import Registry
from apiserver.server.storage.storing import StorageOptions, Storing
from storage.encryption.configuration import Misconfigured
from storage.memory import MemoryStorage
from storage.port import Put, Unavailable
from tests.own_time import within
from tests.unit.controller.virtualtime import in_virtual_time

KEY = "/registry/kubevirt.io/virtualmachines/default/a"
LOCK = "/registry/claims/kubevirt.io/disk"


def configure(file: Path, *names: str, resources: str = "'*.kubevirt.io'") -> None:
    keys = ", ".join(f"{{name: {each}, secret: {base64.b64encode(random.Random(each).randbytes(32)).decode()}}}" for each in names)
    file.write_text(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
        f"resources: [{{resources: [{resources}], providers: [{{secretbox: {{keys: [{keys}]}}}}, {{identity: {{}}}}]}}]\n"
    )


async def stored(inner: MemoryStorage, key: str) -> bytes:
    entry = await inner.get(key)
    assert entry is not None
    return entry.value


async def test_objects_of_the_rules_are_encrypted_and_nothing_else(tmp_path: Path) -> None:
    configure(tmp_path / "file", "one", resources="'*.*'")
    inner = MemoryStorage()
    kept = Storing(inner, StorageOptions(encryption_provider_config=tmp_path / "file"), root="/registry/")
    for key in (KEY, LOCK, "compact_rev_key", "/registry2/kubevirt.io/virtualmachines/a"):
        await kept.storage.commit([], [Put(key, b"value")])
    assert (await stored(inner, KEY)).startswith(b"k8s:enc:secretbox:v1:one:")
    for key in (LOCK, "compact_rev_key", "/registry2/kubevirt.io/virtualmachines/a"):
        assert await stored(inner, key) == b"value"


async def test_changed_file_is_reread_and_a_bad_one_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "file"
    configure(file, "one")
    inner = MemoryStorage()
    options = StorageOptions(None, etcd_compaction_interval=0)
    assert list(Storing(inner, options, root="/registry").background()) == []
    options = StorageOptions(file, encryption_provider_config_automatic_reload=True, etcd_compaction_interval=0)
    kept = Storing(inner, options, root="/registry", file_seconds=0.01)
    registry = Registry()
    kept.register(registry)
    async with asyncio.TaskGroup() as tasks:
        (running,) = [tasks.create_task(each) for each in kept.background()]

        async def until(status: str, count: int) -> None:
            async with asyncio.timeout(5):  # too short for a reload without `file_seconds`
                while f'reloads_total{{status="{status}"}} {count}' not in registry.page().decode():
                    await asyncio.sleep(0.01)

        configure(file, "two", "one")
        await until("success", 1)
        await kept.storage.commit([], [Put(KEY, b"value")])
        assert (await stored(inner, KEY)).startswith(b"k8s:enc:secretbox:v1:two:")
        file.write_text("secret: hush: hush")
        await until("failure", 1)
        assert "hush" not in caplog.text
        await kept.storage.commit([], [Put(KEY, b"value")])
        assert (await stored(inner, KEY)).startswith(b"k8s:enc:secretbox:v1:two:")
        running.cancel()


def test_a_file_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kind: Nothing")
    with pytest.raises(Misconfigured, match="file"):
        Storing(MemoryStorage(), StorageOptions(encryption_provider_config=tmp_path / "file"), root="/registry")


@in_virtual_time
async def test_health_waits_as_long_as_the_flags_say() -> None:
    class Hanging(MemoryStorage):
        async def revision(self) -> int:
            await asyncio.sleep(3600)
            return 0

    kept = Storing(Hanging(), StorageOptions(etcd_healthcheck_timeout=0.01, etcd_readycheck_timeout=0.02), root="")
    assert not await kept.healthy()
    assert not await kept.ready()
    well = Storing(MemoryStorage(), StorageOptions(), root="")
    assert await well.healthy()
    assert await well.ready()


class Counted(MemoryStorage):
    """Counts requests for the revision; ``silent`` never answers, ``out`` answers with an error."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.silent = False
        self.out = False

    async def revision(self) -> int:
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        if self.out:
            raise Unavailable("etcd is away")
        return await super().revision()


async def test_concurrent_readiness_checks_share_one_storage_request() -> None:
    storage = Counted()
    kept = Storing(storage, StorageOptions(etcd_readycheck_timeout=0.5), root="/registry/")

    async def ask() -> list[bool]:
        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(kept.ready()) for _ in range(500)]
        return [each.result() for each in asking]

    assert (all(await ask()), storage.asked) == (True, 2), "one for the first, one for those who came meanwhile"
    storage.silent = True
    answers = await within(2, ask())
    assert (any(answers), storage.asked) == (False, 4), "no answer is older than its question"
    storage.silent = False
    assert await kept.ready()


async def test_cancelled_readiness_check_passes_its_question_on() -> None:
    storage = Counted()
    kept = Storing(storage, StorageOptions(), root="/registry/")
    assert await kept.ready()
    storage.silent = True
    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(kept.ready()) for _ in range(3)]
        for number, each in enumerate(asking[:2], 2):
            while storage.asked < number:
                await asyncio.sleep(0.01)
            each.cancel()
        storage.out, storage.silent = True, False
    assert [each.cancelled() for each in asking] == [True, True, False]
    assert not asking[2].result(), "what was true before he asked is no answer"
