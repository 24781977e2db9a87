"""``kubectl virt rollout`` with virt-api and virt-controller; the machines of the set are off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.places.resources import REPLICA_SETS
from apiserver.kubectl import access, flags, rollout
from apiserver.kubectl.access import Access, Selection
from tests.component.controller.test_replica_sets import World, a_manifest, revisions_of, template_of, world

SET = "virtualmachinereplicaset.kubevirt.io/web"
DONE = 'virtualmachinereplicaset "web" successfully rolled out'


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        manifest = a_manifest(replicas=2, ordinals={})
        manifest["spec"]["template"]["spec"]["runStrategy"] = "Halted"
        await made.client.create(REPLICA_SETS, manifest, "ns")
        await made.settled(2)
        yield made


class Terminal:
    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._directory, self._capsys = directory, capsys

    async def __call__(self, *arguments: str) -> tuple[int, list[str], str]:
        self._capsys.readouterr()
        code = await rollout.run(flags.parse(["rollout", *arguments]), self._load, lambda: datetime(2026, 11, 29, tzinfo=UTC))
        told = self._capsys.readouterr()
        return code, told.out.splitlines(), told.err

    async def _load(self) -> Access:
        return await access.load(Selection(kubeconfig=str(self._directory / "kubeconfig"), namespace="ns"))


@pytest.fixture
def virt(tmp_path: Path, cluster: World, capsys: pytest.CaptureFixture[str]) -> Terminal:
    del cluster
    return Terminal(tmp_path, capsys)


async def template(cluster: World) -> Any:
    return (await cluster.set())["spec"]["template"]


async def test_an_edit_is_followed_listed_and_undone(cluster: World, virt: Terminal) -> None:
    first = await template(cluster)
    assert (await virt("undo", "vmrs/web"))[::2] == (1, "error: no last revision to roll back to\n")
    cause = {"metadata": {"annotations": {"kubernetes.io/change-cause": "a label"}}}
    await cluster.client.patch(REPLICA_SETS, "web", cause | template_of({"a": "1"}), "ns")
    code, lines, _ = await virt("status", "vmrs/web", "--timeout", "20s")
    assert (code, lines[-1]) == (0, DONE)
    older, newer = (each["name"] for each in dig(await cluster.set(), "status", "revisions"))
    assert revisions_of(await cluster.machines()) == [newer, newer]
    assert (await virt("history", "web"))[1] == [
        SET,
        "REVISION   NAME         CHANGE-CAUSE",
        f"1          {older}   <none>",
        f"2          {newer}   a label",
    ]
    assert "      a: '1'" in (await virt("history", "web", "--revision", "2"))[1]

    assert await virt("undo", "web", "--dry-run", "server") == (0, [f"{SET} rolled back (server dry run)"], "")
    assert await virt("undo", "web", "--to-revision", "2") == (
        0,
        [f"{SET} skipped rollback (current template already matches revision 2)"],
        "",
    )
    assert dig(await template(cluster), "metadata", "annotations") == {"a": "1"}
    assert await virt("undo", "web") == (0, [f"{SET} rolled back"], "")
    assert (await template(cluster))["spec"] == first["spec"]
    assert not dig(await template(cluster), "metadata", "annotations")
    await cluster.until(lambda _, all_: revisions_of(all_) == [older, older])
    code, _, told = await virt("status", "web", "--revision", "2")
    assert (code, told) == (1, "error: desired revision (2) is different from the running revision (3)\n")


async def test_a_paused_set_updates_when_it_is_resumed(cluster: World, virt: Terminal) -> None:
    assert await virt("pause", "web") == (0, [f"{SET} paused"], "")
    assert (await virt("pause", "web"))[0] == 1
    assert (await virt("restart", "web"))[0] == 1
    await cluster.client.patch(REPLICA_SETS, "web", template_of({"a": "1"}), "ns")
    code, lines, told = await virt("status", "web", "--timeout", "1s")
    assert (code, "which is paused: kubectl virt rollout resume web" in told) == (1, True)
    assert "spec.paused is true; 2 of 2 machines are available or off; 0 have the newest template" in lines[-1]
    code, lines, _ = await virt("status", "web", "--watch=false")
    assert (code, len(lines)) == (0, 1)

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(virt("status", "web", "--timeout", "20s"))
        await asyncio.sleep(0.1)
        await cluster.client.patch(REPLICA_SETS, "web", {"spec": {"paused": False}}, "ns")
    assert (following.result()[0], following.result()[1][-1]) == (0, DONE)
    assert await virt("restart", "web") == (0, [f"{SET} restarted"], "")
    asked = {"a": "1", "kubevirt.io/restartedAt": "2026-11-29T00:00:00Z"}
    assert dig(await template(cluster), "metadata", "annotations") == asked
    await cluster.until(lambda _, all_: [dig(each, "metadata", "annotations") for each in all_] == [asked, asked])


async def test_a_set_that_is_missing_or_deleted_is_an_error(cluster: World, virt: Terminal) -> None:
    code, lines, told = await virt("status", "none", "web")
    assert (code, lines) == (1, [DONE])
    assert told == (
        "Error from server (NotFound): cannot read virtualmachinereplicaset ns/none: "
        'virtualmachinereplicasets.kubevirt.io "none" not found\n'
    )
    await virt("pause", "web")
    await cluster.client.patch(REPLICA_SETS, "web", template_of({"a": "1"}), "ns")
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(virt("status", "web", "--timeout", "20s"))
        await asyncio.sleep(0.5)
        await cluster.client.delete(REPLICA_SETS, "web", "ns")
    assert following.result()[::2] == (1, "error: virtualmachinereplicaset ns/web was deleted\n")
