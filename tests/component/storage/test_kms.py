import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.encryption.ciphers import Chain, Undecryptable
from storage.encryption.configuration import Misconfigured, parse
from storage.encryption.kms import envelope
from storage.encryption.kms.envelope import Envelope
from storage.encryption.kms.service import Service
from storage.encryption.store import EncryptedStorage
from storage.memory import MemoryStorage
from storage.port import Put, Unavailable
from tests.encryption.program import Kubernetes
from tests.fakes.kms import FakeKms

KEY = "/registry/kubevirt.io/virtualmachines/default/a"


def configuration(socket: Path) -> str:
    return (
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
        "resources:\n- resources: ['*.*']\n"
        f"  providers: [{{kms: {{apiVersion: v2, name: one, endpoint: 'unix://{socket}', timeout: 1s}}}}]\n"
    )


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "kms.sock"


@pytest.fixture
async def kms(socket: Path) -> AsyncIterator[FakeKms]:
    fake = FakeKms()
    async with fake.serving(socket):
        yield fake


def made(socket: Path) -> tuple[Chain, Envelope]:
    rules = parse(configuration(socket))
    return rules.chain("kubevirt.io", "virtualmachines"), rules.services[0]


async def test_service_is_called_once_per_seed(kms: FakeKms, socket: Path) -> None:
    chain, writer = made(socket)
    await writer.look()
    store = EncryptedStorage(MemoryStorage(), lambda _: chain)
    for number in range(20):
        await store.commit([], [Put(f"a{number}", b"value %d" % number)])
    other, reader = made(socket)
    store.use(lambda _: other)
    page = await store.range("a")
    assert sorted(entry.value for entry in page.entries) == sorted(b"value %d" % number for number in range(20))
    assert all(entry.stale for entry in page.entries)
    await reader.look()
    assert not any(entry.stale for entry in (await store.range("a")).entries)
    assert kms.decrypted == ["1"]
    writer.service.close()
    reader.service.close()


async def test_new_service_key_makes_values_stale_but_readable(kms: FakeKms, socket: Path) -> None:
    chain, provider = made(socket)
    await provider.look()
    old = chain.seal(b"value", KEY.encode())
    kms.key_id = "2"
    assert chain.unseal(old, KEY.encode()) == (b"value", False)
    await provider.look()
    assert chain.unseal(old, KEY.encode()) == (b"value", True)
    new = chain.seal(b"value", KEY.encode())
    assert chain.unseal(new, KEY.encode()) == (b"value", False)
    with pytest.raises(Undecryptable):
        chain.unseal(new, KEY.encode() + b"b")
    provider.service.close()


async def test_service_outage_allows_reads_and_three_minutes_of_writes(kms: FakeKms, socket: Path) -> None:
    now = 0.0
    provider = Envelope("one", Service(str(socket), 1.0), lambda: now)
    chain = Chain((provider,), (provider,))
    with pytest.raises(Unavailable):
        chain.seal(b"value", b"a")
    await provider.look()
    stored = chain.seal(b"value", b"a")
    kms.down = True
    with pytest.raises(Unavailable):
        await provider.look()
    now = envelope.WRITE_SECONDS - 1
    chain.seal(b"value", b"a")
    now = envelope.WRITE_SECONDS
    with pytest.raises(Unavailable, match="is unhealthy"):
        chain.seal(b"value", b"a")
    assert not provider.is_well
    assert chain.unseal(stored, b"a") == (b"value", False)
    stranger, other = made(socket)
    store = EncryptedStorage(MemoryStorage(), lambda _: stranger)
    await store._inner.commit([], [Put("a", stored)])
    with pytest.raises(Unavailable):
        await store.get("a")
    kms.down = False
    entry = await store.get("a")
    assert entry is not None
    assert entry.value == b"value"
    other.service.close()
    provider.service.close()


async def test_lost_service_key_makes_one_value_undecryptable(kms: FakeKms, socket: Path) -> None:
    chain, provider = made(socket)
    await provider.look()
    inner = MemoryStorage()
    await EncryptedStorage(inner, lambda _: chain).commit([], [Put("lost", b"value")])
    kms.key_id, kms.keys = "2", {"2"}
    another, reader = made(socket)
    await reader.look()
    store = EncryptedStorage(inner, lambda _: another)
    await store.commit([], [Put("good", b"value")])
    values = {entry.key: entry.value for entry in (await store.range("")).entries}
    assert values["good"] == b"value"
    assert values["lost"].startswith(b"k8s:enc:kms:v2:one:")
    provider.service.close()
    reader.service.close()


@pytest.mark.parametrize("wrong", ["healthz", "id", "long id"])
async def test_a_service_that_is_not_well_is_not_used(kms: FakeKms, socket: Path, wrong: str) -> None:
    kms.healthz, kms.key_id = {"healthz": ("ill", "1"), "id": ("ok", ""), "long id": ("ok", "x" * 2000)}[wrong]
    _, provider = made(socket)
    with pytest.raises(ValueError, match=r"ill|name"):
        await provider.look()
    assert not provider.is_well
    provider.service.close()


async def test_loop_survives_a_malformed_answer(kms: FakeKms, socket: Path) -> None:
    kms.is_malformed = True
    _, provider = made(socket)
    with pytest.raises(Unavailable, match="Status of the key management service: "):
        await provider.look()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        loop = tasks.create_task(provider.run(well_seconds=0.01, ill_seconds=0.01))
        await asyncio.sleep(0.05)
        kms.is_malformed = False
        while not provider.is_well:
            await asyncio.sleep(0.01)
        loop.cancel()


async def test_without_a_socket_it_is_an_outage(tmp_path: Path) -> None:
    _, provider = made(tmp_path / "nothing")
    with pytest.raises(Unavailable):
        await provider.look()


async def test_a_watch_waits_for_the_service(kms: FakeKms, socket: Path) -> None:
    chain, provider = made(socket)
    await provider.look()
    inner = MemoryStorage()
    await EncryptedStorage(inner, lambda _: chain).commit([], [Put("a", b"value")])
    another, reader = made(socket)
    kms.down = True
    reading = EncryptedStorage(inner, lambda _: another, again_seconds=0.01)
    async with asyncio.timeout(30), reading.watch("", after=1) as batches:
        asyncio.get_running_loop().call_later(0.05, setattr, kms, "down", False)
        change = (await anext(batches)).changes[0]
    assert change.entry is not None
    assert change.entry.value == b"value"
    provider.service.close()
    reader.service.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("apiVersion: v1, name: a, endpoint: 'unix:///a'", "v2"),
        ("apiVersion: v2, name: 'a:b', endpoint: 'unix:///a'", "name"),
        ("apiVersion: v2, name: a, endpoint: 'tcp://a'", "endpoint"),
        ("apiVersion: v2, name: a, endpoint: 'unix:///a', timeout: 0s", "timeout"),
        ("apiVersion: v2, name: a, endpoint: 'unix:///a', cachesize: 5", "cachesize"),
    ],
)
def test_a_wrong_configuration_is_refused(settings: str, message: str) -> None:
    file = (
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
        f"resources: [{{resources: ['*.*'], providers: [{{kms: {{{settings}}}}}]}}]\n"
    )
    with pytest.raises(Misconfigured, match=message):
        parse(file)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_each_side_reads_what_the_other_wrote(kms: FakeKms, socket: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(configuration(socket))
    chain, provider = made(socket)
    await provider.look()

    def beside() -> None:
        with Kubernetes(tmp_path / "config.yaml") as kubernetes:
            for size in (0, 1, 2500):
                ours = chain.seal(b"{" + bytes(size), KEY.encode())
                assert kubernetes.decrypt("virtualmachines.kubevirt.io", KEY, ours) == (b"{" + bytes(size), False)
                theirs.append(kubernetes.encrypt("virtualmachines.kubevirt.io", KEY, b"{" + bytes(size)))

    theirs: list[bytes] = []
    await asyncio.to_thread(beside)
    for each, size in zip(theirs, (0, 1, 2500), strict=True):
        await chain.fetch(each)
        assert chain.unseal(each, KEY.encode()) == (b"{" + bytes(size), False)
    provider.service.close()
