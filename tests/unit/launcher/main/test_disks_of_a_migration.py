from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from launcher.domain.states import State
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import made_disks, messages
from launcher.protocol.made_disks import OK, MadeDisk, Offer
from tests.mounted import mount
from tests.unit.launcher.main.world import MACHINE, NAME, QUICK, RELEASE, World, state_of

FILES: dict[str, Any] = {"name": "files", "type": "ConfigMap", "source": {"name": "config"}}
SEED: dict[str, Any] = {"name": "seed", "type": "CloudInitNoCloud", "source": {"userData": "#cloud-config"}}
WITH_DISKS = dataclasses.replace(MACHINE, domain={**MACHINE.domain, "devices": {"disks": [FILES, SEED]}})
PREPARE = messages.PrepareMigrationTarget("m1", WITH_DISKS, relays_made_disks=True)
MIGRATE = messages.Migrate("m1", relays_made_disks=True)
BYTES = {"files": b"files of the source", "seed": b"seed of the source"}


@dataclasses.dataclass(frozen=True)
class Pod:
    run: Path
    made: Path
    sources: Path

    @property
    def socket(self) -> Path:
        return self.run / layout.MIGRATION_MADE_DISKS_SOCKET

    def images(self) -> dict[str, bytes]:
        return {each.name: each.read_bytes() for each in self.made.iterdir()}


@pytest.fixture
def pod(tmp_path: Path, pod_directories: Callable[..., None]) -> Iterator[Pod]:
    with tempfile.TemporaryDirectory(prefix="run") as run:  # the path of a socket is short
        found = Pod(Path(run), tmp_path / "made", tmp_path / "sources")
        (found.run / "migration").mkdir()
        found.made.mkdir()
        mount(found.sources / "files", {"key": b"of today"})
        pod_directories(RUN=found.run, MADE=found.made, SOURCES=found.sources)
        yield found


def offer_of(contents: Mapping[str, bytes]) -> bytes:
    return made_disks.encode(Offer(tuple(MadeDisk(name, len(each), hashlib.sha256(each).hexdigest()) for name, each in contents.items())))


async def sent(pod: Pod, *parts: bytes) -> str | None:
    """Send these bytes as the source; return why the target refused them, empty if it took them, None without an answer."""
    reader, writer = await asyncio.open_unix_connection(pod.socket)
    for part in parts:
        writer.write(part)
    writer.write_eof()
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return made_disks.reason(answer)


async def test_target_has_the_bytes_of_the_source(world: World, pod: Pod) -> None:
    await world.domain.handle(PREPARE)
    assert await sent(pod, offer_of(BYTES), *BYTES.values()) == ""
    assert pod.images() == {f"{name}.iso": each for name, each in BYTES.items()}
    assert {each.stat().st_mode & 0o777 for each in pod.made.iterdir()} == {0o600}


OFFERS = {
    "a missing disk": (offer_of({"files": b"1"}), b"1"),
    "another disk": (offer_of({"files": b"1", "seed": b"2", "root": b"3"}), b"123"),
    "a path": (offer_of({"../files": b"1", "seed": b"2"}), b"12"),
    "a disk twice": (offer_of({"files": b"1"}).replace(b"]", b',{"name":"files","size":1,"sha256":""}]'), b"11"),
    "an empty disk": (offer_of({"files": b"", "seed": b"2"}), b"2"),
    "a huge disk": (offer_of(BYTES).replace(b'"size":18', b'"size":9000000'), b""),
    "a negative size": (offer_of(BYTES).replace(b'"size":18', b'"size":-1'), b""),
    "wrong bytes": (offer_of(BYTES), b"x" * 37),
    "no offer": (b"{}\n", b""),
    "no JSON": (b"GET /\n", b""),
    "an endless line": (b"[" * (made_disks.MAX_LINE_BYTES * 3), b""),
}


@pytest.mark.parametrize("offer", OFFERS)
async def test_unsuitable_disks_are_refused_with_a_reason(world: World, pod: Pod, offer: str) -> None:
    await world.domain.handle(PREPARE)
    before = pod.images()
    assert await sent(pod, *OFFERS[offer])
    assert pod.images() == before
    assert await sent(pod, offer_of(BYTES), *BYTES.values()) == ""


async def test_interrupted_transfer_changes_no_disk(world: World, pod: Pod) -> None:
    await world.domain.handle(PREPARE)
    before = pod.images()
    assert await sent(pod, offer_of(BYTES), b"files of") is None
    assert pod.images() == before
    (pod.made / "files.new").write_bytes(b"left over")
    assert await sent(pod, offer_of(BYTES), *BYTES.values()) == ""
    assert pod.images() == {f"{name}.iso": each for name, each in BYTES.items()}


async def test_disks_of_a_guest_that_comes_or_runs_are_not_replaced(world: World, pod: Pod) -> None:
    await world.domain.handle(PREPARE)
    before = pod.images()
    world.hypervisor.become(NAME, State.PAUSED, "user")
    await world.until(lambda: state_of(world) == "arrived")
    assert await sent(pod, offer_of(BYTES), *BYTES.values()) == "this pod no longer expects the guest"
    await world.domain.handle(RELEASE)
    assert await sent(pod, offer_of(BYTES), *BYTES.values()) == "this pod no longer expects the guest"
    assert pod.images() == before


async def test_target_of_an_older_source_makes_the_disks(world: World, pod: Pod) -> None:
    await world.domain.handle(PREPARE)
    assert set(pod.images()) == {"files.iso", "seed.iso"}


async def test_target_needs_no_source_that_is_valid_today(world: World, pod: Pod) -> None:
    """A user has replaced the ConfigMap by one that no disk can have."""
    mount(pod.sources / "files", {"k" * 200: b""})
    await world.domain.handle(PREPARE)
    assert set(pod.images()) == {"seed.iso"}
    assert await sent(pod, offer_of(BYTES), *BYTES.values()) == ""
    assert set(pod.images()) == {"files.iso", "seed.iso"}


async def test_without_a_relay_of_made_disks_a_source_must_be_valid(world: World, pod: Pod) -> None:
    mount(pod.sources / "files", {"k" * 200: b""})
    with pytest.raises(RequestRefused, match="more than 103 characters"):
        await world.domain.handle(dataclasses.replace(PREPARE, relays_made_disks=False))
    assert not pod.socket.exists()


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


@asynccontextmanager
async def target(pod: Pod, answer: Answer) -> AsyncIterator[None]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_unix_server(serve, pod.socket)
    yield
    server.close()


async def started(world: World, pod: Pod) -> None:
    await world.domain.handle(messages.Sync(WITH_DISKS))
    for name, content in BYTES.items():
        (pod.made / f"{name}.iso").write_bytes(content)


def has_moved(world: World) -> bool:
    return any(each.startswith("migrate to") for each in world.hypervisor.calls)


async def test_source_sends_its_bytes_before_libvirt_begins(world: World, pod: Pod) -> None:
    await started(world, pod)
    heard: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        assert not has_moved(world)
        heard.extend([line, await reader.readexactly(37)])
        writer.write(OK)

    async with target(pod, take):
        await world.domain.handle(MIGRATE)
        await world.until(lambda: has_moved(world))
    assert heard == [offer_of(BYTES), b"".join(BYTES.values())]


async def hangs_up(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """End the connection at once, as virt-handler of an older version."""


async def hangs_up_after_the_offer(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.readline()


async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(made_disks.refusal("there is no room"))


async def talks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"ok" * 5000)


async def says_nothing(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize("times", [dataclasses.replace(QUICK, send=0.5)])
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (hangs_up, made_disks.UNSENT),
        (hangs_up_after_the_offer, made_disks.UNSENT),
        (refuses, "refuses the disks that were made in the guest's pod: there is no room"),
        (talks, made_disks.UNSENT),
        (says_nothing, f"{made_disks.UNSENT} within 0.5 s"),
    ],
)
async def test_guest_stays_if_the_target_does_not_take_the_disks(world: World, pod: Pod, answer: Answer, why: str) -> None:
    await started(world, pod)
    async with target(pod, answer):
        await world.domain.handle(MIGRATE)
        await world.until(lambda: state_of(world) == "failed")
    found = world.status.migration_of("m1")
    assert found is not None
    assert why in found.message
    assert not has_moved(world)
    assert world.status.domain is not None
    assert world.status.domain.state == "running"


async def test_without_a_relay_the_disks_are_unsent(world: World, pod: Pod) -> None:
    await started(world, pod)
    await world.domain.handle(MIGRATE)
    await world.until(lambda: state_of(world) == "failed")
    assert not has_moved(world)


async def test_migration_is_aborted_while_disks_are_sent(world: World, pod: Pod) -> None:
    await started(world, pod)
    async with target(pod, says_nothing):
        await world.domain.handle(MIGRATE)
        await asyncio.sleep(0.05)
        await world.domain.handle(messages.AbortMigration("m1"))
        await world.until(lambda: state_of(world) == "cancelled")
    assert not has_moved(world)


async def test_handler_of_an_older_release_relays_no_made_disks(world: World, pod: Pod) -> None:
    await started(world, pod)
    await world.domain.handle(messages.Migrate("m1"))
    await world.until(lambda: has_moved(world))


async def test_second_migration_sends_the_bytes_of_the_first_pod(world: World, pod: Pod) -> None:
    await world.domain.handle(PREPARE)
    assert await sent(pod, offer_of(BYTES), *BYTES.values()) == ""
    world.hypervisor.become(NAME, State.PAUSED, "user")
    await world.until(lambda: state_of(world) == "arrived")
    await world.domain.handle(RELEASE)
    heard = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set_result((await reader.readline(), await reader.readexactly(37)))
        writer.write(OK)

    pod.socket.unlink()
    async with target(pod, take):
        await world.domain.handle(dataclasses.replace(MIGRATE, migration_uid="m2"))
        async with asyncio.timeout(20):
            assert await heard == (offer_of(BYTES), b"".join(BYTES.values()))
        await world.until(lambda: has_moved(world))
