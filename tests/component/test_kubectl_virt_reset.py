from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec.password import Password
from apiserver.client.rest import Client
from apiserver.kubectl import access, acting, flags, passwords, versions
from apiserver.kubectl.access import Access, Selection
from apiserver.kubectl.migrations import Waiting
from tests.fakes.aggregating import AggregatingAPI

VM = {
    "apiVersion": "kubevirt.io/v1alpha1",
    "kind": "VirtualMachine",
    "metadata": {"name": "web"},
    "spec": {"domain": {"memory": {"guest": "64Mi"}}},
}


@dataclass
class World:
    client: Client
    way: Access

    async def load(self) -> Access:
        return self.way

    async def act(self, verb: str, waiting: Waiting, *names: str) -> int:
        return await acting.act(self.load, names or ["web"], verb, {}, waiting)

    async def status(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.client.get(VIRTUAL_MACHINES, "web", "ns"))["status"]
        return found

    async def write(self, **changes: Any) -> None:
        found = await self.client.get(VIRTUAL_MACHINES, "web", "ns")
        await self.client.update(VIRTUAL_MACHINES, {**found, "status": {**(found.get("status") or {}), **changes}}, subresource="status")

    async def answer(self, **result: Any) -> None:
        async with asyncio.timeout(30):
            while not (found := (await self.status()).get("operations")):
                await asyncio.sleep(0.02)
        await self.write(operations=[{**found[0], **result}])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AggregatingAPI().aggregating(tmp_path) as ours, Client(ours, user_agent="test") as client:
        await client.create(VIRTUAL_MACHINES, VM, "ns")
        made = World(client, await access.load(Selection(kubeconfig=str(tmp_path / "kubeconfig"), namespace="ns")))
        await made.write(phase="Running", attempt=1, nodeName="a", podName="p", attempts=[{"number": 1}])
        yield made


WAIT = Waiting(wait=True, seconds=30)
BEGUN = "already on or being started"
MOMENT = "2026-01-01T00:00:00Z"


async def test_a_reset_is_asked_for_once_and_without_waiting(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert await world.act("reset", Waiting()) == 0
    (operation,) = (await world.status())["operations"]
    assert (operation["action"], operation["number"], operation["attempt"]) == ("Reset", 1, 1)
    assert capsys.readouterr().out == "virtualmachine.kubevirt.io/web: reset requested\n"


async def test_start_waits_for_a_machine_that_is_already_on(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert await world.act("start", WAIT) == 0
    assert capsys.readouterr().out.splitlines() == [f"virtualmachine.kubevirt.io/web: {each}" for each in (BEGUN, "start done")]
    assert await world.act("start", Waiting()) == 1
    assert "the virtual machine is already on (Running)" in capsys.readouterr().err
    await world.write(conditions=[{"type": "Paused", "status": "True", "reason": "User", "lastTransitionTime": MOMENT}])
    assert await world.act("start", WAIT) == 1
    assert "kubectl virt unpause web" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["start", "resume"])
async def test_verbs_wait_for_an_earlier_start_to_fail(world: World, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    await world.write(phase="Scheduling", nodeName=None)

    async def fail() -> None:
        async with asyncio.timeout(30):
            while BEGUN not in capsys.readouterr().out:
                await asyncio.sleep(0.02)
        await world.write(phase="Failed", attempts=[{"number": 1, "result": "Failed", "message": "the CPU differs"}])

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
        assert await world.act(verb, WAIT) == 1
    assert f"{verb} virtual machine ns/web: the CPU differs" in capsys.readouterr().err


@pytest.mark.parametrize("result", ["Succeeded", "Failed"])
async def test_a_reset_is_waited_for(world: World, capsys: pytest.CaptureFixture[str], result: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(world.answer(result=result, message="libvirt could not"))
        assert await world.act("reset", WAIT) == (0 if result == "Succeeded" else 1)
    said = capsys.readouterr()
    if result == "Failed":
        assert said.err == "error: reset virtual machine ns/web: libvirt could not\n"
    else:
        assert said.out.splitlines()[-1] == "virtualmachine.kubevirt.io/web: reset done"


async def test_a_soft_reboot_does_not_claim_a_reboot(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(world.answer(result="Succeeded", message=""))
        assert await world.act("softreboot", WAIT) == 0
    assert capsys.readouterr().out.endswith("/web: softreboot sent; the guest may ignore it: then use kubectl virt reset web\n")


async def test_reset_without_a_timely_result_is_a_failure(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert await world.act("reset", Waiting(wait=True, seconds=0.1)) == 1
    assert "timed out waiting for the reset of virtual machine ns/web, which continues" in capsys.readouterr().err

    async def forget() -> None:
        async with asyncio.timeout(30):
            while len((await world.status())["operations"]) < 2:
                await asyncio.sleep(0.02)
        await world.write(operations=[])

    async with asyncio.TaskGroup() as group:
        group.create_task(forget())
        assert await world.act("reset", WAIT) == 1
    assert "no longer lists it" in capsys.readouterr().err


async def test_several_machines_are_acted_on_and_waited_for(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    async def pause() -> None:
        async with asyncio.timeout(30):
            while not ((await world.status()).get("pause") or {}).get("wanted"):
                await asyncio.sleep(0.02)
        await world.write(conditions=[{"type": "Paused", "status": "True", "reason": "User"}])

    async with asyncio.TaskGroup() as group:
        group.create_task(pause())
        assert await world.act("pause", WAIT, "absent", "web") == 1
    said = capsys.readouterr()
    assert said.out.splitlines() == ["virtualmachine.kubevirt.io/web: pause requested", "virtualmachine.kubevirt.io/web: pause done"]
    assert said.err.splitlines() == [
        'Error from server (NotFound): cannot pause virtual machine ns/absent: virtualmachines.kubevirt.io "absent" not found'
    ]


async def test_a_dry_run_is_neither_done_nor_waited_for(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert await acting.act(world.load, ["web"], "stop", {}, WAIT, dry_run=True) == 0
    assert capsys.readouterr().out == "virtualmachine.kubevirt.io/web: stop requested (server dry run)\n"
    assert "request" not in await world.status()


async def test_the_release_of_the_server_is_read(world: World) -> None:
    assert await versions.server(world.way) == access.version()


async def test_the_same_id_adds_nothing_and_a_dry_run_neither(world: World) -> None:
    path = VIRTUAL_MACHINES.path("ns", "web", "reset")
    made = await world.client.request("PUT", path, body={"id": "mine"})
    again = await world.client.request("POST", path, body={"id": "mine"})
    assert made["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    dry = await world.client.request("PUT", path, body={"id": "other"}, params={"dryRun": "All"})
    assert [each["id"] for each in dry["status"]["operations"]] == ["mine", "other"]
    assert [each["id"] for each in (await world.status())["operations"]] == ["mine"]
    with pytest.raises(errors.Invalid, match="id"):
        await world.client.request("PUT", path, body={"id": "../x"})


async def test_end_of_the_attempt_ends_its_operations_in_one_write(world: World) -> None:
    await world.client.request("PUT", VIRTUAL_MACHINES.path("ns", "web", "reset"), body={"id": "mine"})
    await world.write(phase="Failed", attempts=[{"number": 1, "result": "Failed", "endTime": "2026-01-02T00:00:00Z"}])
    (operation,) = (await world.status())["operations"]
    assert (operation["result"], operation["completionTime"]) == ("Failed", "2026-01-02T00:00:00Z")


def test_waiting_has_a_limit() -> None:
    assert flags.parse(["reset", "vm/web", "--wait"]).timeout == 600
    assert flags.parse(["reset", "web", "--wait", "--timeout", "5s"]).timeout == 5
    with pytest.raises(SystemExit):
        flags.parse(["reset", "web", "--timeout", "5s"])


async def test_timeout_names_what_the_machine_waits_for(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    ready = {"type": "Ready", "status": "False", "reason": "DiskInUse", "message": "claim in use: data"}
    await world.write(conditions=[ready])
    assert await world.act("reset", Waiting(wait=True, seconds=0.1)) == 1
    assert "which continues (DiskInUse: claim in use: data)" in capsys.readouterr().err


async def test_one_password_is_set_in_several_guests(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    given = Password("debian", "secret")

    async def set_it(name: str) -> None:
        await passwords.set_password(world.way, name, given, dry_run=True)

    assert await acting.each(["web", "absent"], set_it) == 1
    said = capsys.readouterr()
    assert said.out == "virtualmachine.kubevirt.io/web: password of debian set (server dry run)\n"
    assert 'virtualmachines.kubevirt.io "absent" not found' in said.err
    assert "secret" not in said.err
