from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors, objects, times
from apiserver.apis.virt.lifecycle import departure
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.rest import Client
from apiserver.kubectl import access, following, migrations, watching
from apiserver.kubectl.access import Access, Selection
from apiserver.kubectl.messages import Failure
from apiserver.kubectl.migrations import Waiting
from tests.component.test_kubectl_virt import ROOT, until
from tests.fakes.aggregating import AggregatingAPI
from tests.fakes.kubeapi import FakeAPI

TYPE = {"apiVersion": "kubevirt.io/v1alpha1"}
VM = {**TYPE, "kind": "VirtualMachine", "metadata": {"name": "web"}, "spec": {"domain": {"memory": {"guest": "64Mi"}}}}
PROGRESS = {"totalBytes": 1 << 26, "processedBytes": 1 << 25, "remainingBytes": 1 << 25, "bytesPerSecond": 1 << 20, "iteration": 1}
WAIT = Waiting(wait=True, seconds=60)


@dataclass
class World:
    client: Client
    kubeconfig: Path

    async def load(self) -> Access:
        return await access.load(Selection(kubeconfig=str(self.kubeconfig), namespace="ns"))

    async def write(self, resource: Any, name: str, **changes: Any) -> dict[str, Any]:
        while True:
            found = await self.client.get(resource, name, "ns")
            status = {**(found.get("status") or {}), **changes}
            try:
                written: dict[str, Any] = await self.client.update(resource, {**found, "status": status}, subresource="status")
            except errors.Conflict:
                continue
            return written

    async def migration(self) -> dict[str, Any]:
        async with asyncio.timeout(90):
            while not (found := await self.client.page(MIGRATIONS, "ns", field_selector="spec.selector.name=web", limit=2)):
                await asyncio.sleep(0.02)
        (only,) = found
        return dict(only)

    async def let_go(self, name: str) -> None:
        while True:
            found = await self.client.get(MIGRATIONS, name, "ns")
            metadata = {**found["metadata"], "finalizers": []}
            try:
                await self.client.update(MIGRATIONS, {**found, "metadata": metadata})
            except errors.Conflict:
                continue
            return


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AggregatingAPI().aggregating(tmp_path) as ours, Client(ours, user_agent="test") as client:
        await client.create(VIRTUAL_MACHINES, VM, "ns")
        made = World(client, tmp_path / "kubeconfig")
        await made.write(VIRTUAL_MACHINES, "web", phase="Running", attempt=1, nodeName="a", podName="p")
        yield made


@asynccontextmanager
async def running(command: Awaitable[int]) -> AsyncIterator[asyncio.Task[int | str]]:

    async def run() -> int | str:
        try:
            return await command
        except Failure as failure:
            return str(failure)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(run())
        yield task
        task.cancel()


async def test_a_migration_is_shown_until_the_guest_has_moved(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    async with asyncio.timeout(60), running(migrations.migrate("web", world.load, WAIT)) as command:
        name = objects.name_of(await world.migration())
        await world.write(MIGRATIONS, name, phase="Scheduling", message="pod q was created")
        await world.write(MIGRATIONS, name, phase="Running", message="", progress=PROGRESS)
        await until(lambda: "Running: 50% of 64Mi, 1Mi/s" in printed(capsys), 20)
        row = await world.client.get(MIGRATIONS, name, "ns")
        assert row["status"]["progress"] == PROGRESS
        await world.write(
            MIGRATIONS, name, phase="Succeeded", message="the guest moved to node b", progress={**PROGRESS, "downtimeMilliseconds": 45}
        )
        assert await command == 0
    lines = printed(capsys).splitlines()
    assert lines[0] == f"migration.kubevirt.io/{name} created"
    assert lines[-1].startswith(f"migration.kubevirt.io/{name}: the guest moved to node b, with the guest paused for 45 ms")
    assert "Scheduling: pod q was created" in lines


@pytest.mark.parametrize("waiting", [WAIT, Waiting()], ids=["waits", "goes"])
async def test_a_migration_has_the_priority_that_it_is_given(world: World, waiting: Waiting) -> None:
    async with asyncio.timeout(60), running(migrations.migrate("web", world.load, waiting, {"priority": -5})) as command:
        made = await world.migration()
        assert made["spec"]["priority"] == -5
        await world.write(MIGRATIONS, objects.name_of(made), phase="Failed", message="no way")
        assert await command == (0 if not waiting.wait else f"error: migration {objects.name_of(made)} failed: no way")


async def test_final_figures_are_awaited_after_the_end(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    async with asyncio.timeout(60), running(migrations.migrate("web", world.load, WAIT)) as command:
        name = objects.name_of(await world.migration())
        await world.write(MIGRATIONS, name, phase="Running", progress=PROGRESS)
        await world.write(MIGRATIONS, name, phase="Succeeded", message="the guest moved to node b")
        await world.write(MIGRATIONS, name, progress={**PROGRESS, "downtimeMilliseconds": 45})
        assert await command == 0
    assert "with the guest paused for 45 ms" in printed(capsys).splitlines()[-1]


_PRINTED: weakref.WeakKeyDictionary[pytest.CaptureFixture[str], str] = weakref.WeakKeyDictionary()


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    _PRINTED[capsys] = _PRINTED.get(capsys, "") + capsys.readouterr().out
    return _PRINTED[capsys]


@pytest.mark.parametrize(("phase", "said"), [("Failed", "failed: no way"), ("Cancelled", "was cancelled: no way")])
async def test_unsuccessful_migration_says_why(world: World, phase: str, said: str) -> None:
    async with asyncio.timeout(60), running(migrations.migrate("web", world.load, WAIT)) as command:
        name = objects.name_of(await world.migration())
        await world.write(MIGRATIONS, name, phase=phase, message="no way")
        assert await command == f"error: migration {name} {said}"


async def test_timed_out_migration_continues_and_can_be_cancelled(world: World) -> None:
    with pytest.raises(
        Failure, match=r"timed out waiting for migration web-\S+, which continues; cancel it with: kubectl virt cancel-migration web -n ns"
    ):
        await migrations.migrate("web", world.load, Waiting(wait=True, seconds=1.0))
    assert not objects.is_deleting(await world.migration())


async def test_refusal_of_virt_api_is_shown(world: World) -> None:
    await world.write(VIRTUAL_MACHINES, "web", phase="Stopped")
    with pytest.raises(Failure, match=r"Error from server \(Conflict\): cannot migrate virtual machine ns/web"):
        await migrations.migrate("web", world.load, WAIT)


@pytest.mark.parametrize("by_migration", [False, True])
async def test_a_migration_is_cancelled(world: World, capsys: pytest.CaptureFixture[str], by_migration: bool) -> None:
    made = await world.client.create(MIGRATIONS, a_migration(), "ns")
    await world.write(MIGRATIONS, "move", phase="Running")
    named = "move" if by_migration else "web"
    async with asyncio.timeout(60), running(migrations.cancel(named, world.load, WAIT, by_migration=by_migration)) as command:
        while not objects.is_deleting(await world.client.get(MIGRATIONS, "move", "ns")):
            await asyncio.sleep(0.02)
        assert not command.done()
        await world.write(MIGRATIONS, "move", phase="Cancelled")
        await world.let_go("move")
        assert await command == 0
    assert printed(capsys).splitlines()[-1] == "migration.kubevirt.io/move: cancelled; the guest stays on its node"
    assert objects.uid_of(made)


def a_migration() -> dict[str, Any]:
    finalizers = [names.MIGRATION_FINALIZER]
    return {**TYPE, "kind": "Migration", "metadata": {"name": "move", "finalizers": finalizers}, "spec": {"selector": {"name": "web"}}}


async def test_cancelling_without_waiting_only_asks(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    await world.client.create(MIGRATIONS, a_migration(), "ns")
    assert await migrations.cancel("web", world.load, Waiting(), by_migration=False) == 0
    assert printed(capsys) == "migration.kubevirt.io/move: cancellation requested\n"
    assert objects.is_deleting(await world.client.get(MIGRATIONS, "move", "ns"))


async def test_dry_run_of_a_cancellation_cancels_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    await world.client.create(MIGRATIONS, a_migration(), "ns")
    assert await migrations.cancel("web", world.load, WAIT, by_migration=False, dry_run=True) == 0
    assert printed(capsys) == "migration.kubevirt.io/move: cancellation requested (server dry run)\n"
    assert not objects.is_deleting(await world.client.get(MIGRATIONS, "move", "ns"))


async def test_nothing_to_cancel_is_1_and_says_so(world: World) -> None:
    with pytest.raises(Failure, match=r"nothing to cancel: virtual machine ns/web is not being migrated$"):
        await migrations.cancel("web", world.load, Waiting(), by_migration=False)
    with pytest.raises(Failure, match=r"\(NotFound\).*nowhere"):
        await migrations.cancel("nowhere", world.load, Waiting(), by_migration=False)
    with pytest.raises(Failure, match=r"\(NotFound\).*nothing"):
        await migrations.cancel("nothing", world.load, Waiting(), by_migration=True)


async def test_a_guest_that_has_moved_is_not_called_back(world: World) -> None:
    await world.client.create(MIGRATIONS, a_migration(), "ns")
    await world.write(MIGRATIONS, "move", phase="Running")
    now = datetime.now(UTC)
    released = departure.released(await world.client.get(MIGRATIONS, "move", "ns"), departure.BY_HANDLER, "", now)
    await world.write(MIGRATIONS, "move", conditions=released["conditions"])
    with pytest.raises(Failure, match="nothing to cancel: the guest has already moved"):
        await migrations.cancel("web", world.load, Waiting(), by_migration=False)
    assert not objects.is_deleting(await world.client.get(MIGRATIONS, "move", "ns"))

    await world.write(MIGRATIONS, "move", phase="Succeeded", message="the guest moved to node b")
    with pytest.raises(Failure, match="nothing to cancel: the guest moved to node b"):
        await migrations.cancel("move", world.load, Waiting(), by_migration=True)
    moved = {"name": "move", "uid": "u", "targetNode": "b", "phase": "Succeeded", "endTime": times.to_rfc3339(now)}
    await world.write(VIRTUAL_MACHINES, "web", migration=moved)
    with pytest.raises(Failure, match=r"ns/web is not being migrated; migration move moved it to node b"):
        await migrations.cancel("web", world.load, Waiting(), by_migration=False)


async def test_a_guest_that_moves_while_it_is_cancelled_is_1(world: World) -> None:
    await world.client.create(MIGRATIONS, a_migration(), "ns")
    await world.write(MIGRATIONS, "move", phase="Running")
    async with asyncio.timeout(60), running(migrations.cancel("web", world.load, WAIT, by_migration=False)) as command:
        while not objects.is_deleting(await world.client.get(MIGRATIONS, "move", "ns")):
            await asyncio.sleep(0.02)
        await world.write(MIGRATIONS, "move", phase="Succeeded")
        assert await command == "error: migration move was not cancelled: the guest had already moved"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_leaves_the_migration_running_with_advice(world: World, number: signal.Signals) -> None:
    far, near = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        "env", "--default-signal", sys.executable, "-m", "apiserver.kubectl",
        "migrate", "web", "-n", "ns", "--wait", "--kubeconfig", str(world.kubeconfig),
        cwd=ROOT, stdin=near, stdout=near, stderr=near,
    )  # fmt: skip
    os.set_blocking(far, False)
    output = io.BytesIO()

    def shows(text: bytes) -> bool:
        with suppress(BlockingIOError):
            output.write(os.read(far, 65536))
        return text in output.getvalue()

    name = objects.name_of(await world.migration())
    await world.write(MIGRATIONS, name, phase="Running", progress=PROGRESS)
    await until(lambda: shows(b"Running [############------------] 50% of 64Mi"), 60)
    process.send_signal(number)
    assert await process.wait() == 128 + number
    assert shows(f"\r\nMigration {name} goes on; cancel it with: kubectl virt cancel-migration web -n ns\r\n".encode())
    assert not objects.is_deleting(await world.migration())
    os.close(far)
    os.close(near)


PATH = "/apis/kubevirt.io/v1alpha1/migrations"
QUICK = watching.Times(look=0.05)


@dataclass
class Followed:
    api: FakeAPI
    way: Access
    first: dict[str, Any]
    seen: list[str]
    times: watching.Times = QUICK

    def end(self, seconds: float = 30, load: Callable[[], Awaitable[Access]] | None = None) -> Awaitable[dict[str, Any]]:
        async def same() -> Access:
            return self.way

        def changed(obj: dict[str, Any]) -> None:
            self.seen.append((obj.get("status") or {}).get("phase") or "")

        return following.Following(load or same, self.way, self.first, changed, self.times).end(seconds)

    async def phase(self, phase: str) -> None:
        await self.api.edit(PATH, "default", "move", lambda obj: obj.update(status={"phase": phase}))


@pytest.fixture
async def followed() -> AsyncIterator[Followed]:
    api = FakeAPI()
    async with api.serving() as config:
        first = await api.put(PATH, {**a_migration(), "metadata": {"name": "move", "namespace": "default"}})
        yield Followed(api, Access(config.server, "default"), first, [])


async def test_a_watch_that_breaks_or_is_too_old_is_begun_again(followed: Followed) -> None:
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(_as_coroutine(followed.end()))
        await until(lambda: any(query.get("watch") for _, _, query in followed.api.requests))
        await followed.api.cut()
        await followed.phase("Scheduling")
        await until(lambda: followed.seen[-1:] == ["Scheduling"])
        await followed.api.expire()
        await followed.phase("Running")
        await until(lambda: followed.seen[-1:] == ["Running"])
        followed.api.refusals = [errors.ServiceUnavailable("restarting")] * 3
        await followed.api.cut()
        await followed.phase("Succeeded")
        assert (await task)["status"]["phase"] == "Succeeded"


async def _as_coroutine(given: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    return await given


async def test_without_the_right_to_watch_it_is_read_again_and_again(followed: Followed) -> None:
    followed.api.authorize = lambda _method, _path, query: not query.get("watch")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(_as_coroutine(followed.end()))
        await until(lambda: len(followed.api.forbidden) > 2)
        await followed.phase("Failed")
        assert (await task)["status"]["phase"] == "Failed"


async def test_deleted_or_recreated_migration_is_over(followed: Followed) -> None:
    followed.api.authorize = lambda _method, _path, query: not query.get("watch")
    await followed.phase("Running")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(_as_coroutine(followed.end()))
        await until(lambda: followed.seen[-1:] == ["Running"])
        await followed.api.remove(PATH, "default", "move")
        again = {**a_migration(), "metadata": {"name": "move", "namespace": "default", "uid": "another"}, "status": {"phase": "Succeeded"}}
        await followed.api.put(PATH, again)
        assert (await task)["status"]["phase"] == "Running"


async def test_withdrawn_right_and_lost_server_are_reported(followed: Followed) -> None:
    followed.api.authorize = lambda _method, _path, _query: False
    with pytest.raises(Failure, match=r"\(Forbidden\): cannot follow migration default/move"):
        await followed.end()
    followed.api.authorize = None
    followed.times = watching.Times(look=0.05, unreachable=0.2)
    followed.way = Access("http://127.0.0.1:1", "default")
    with pytest.raises(Failure, match=r"Unable to connect to the server"):
        await followed.end()


async def test_credentials_that_ran_out_are_asked_for_once(followed: Followed) -> None:
    loaded = 0

    async def load() -> Access:
        nonlocal loaded
        loaded += 1
        return followed.way

    followed.api.refusals = [errors.Unauthorized("Unauthorized")] * 2
    await followed.phase("Running")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(_as_coroutine(followed.end(load=load)))
        await until(lambda: loaded == 1)
        await followed.phase("Succeeded")
        await task
    followed.api.refusals = [errors.Unauthorized("Unauthorized")] * 100
    with pytest.raises(Failure, match="You must be logged in"):
        await followed.end(load=load)
