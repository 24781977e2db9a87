from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.component.apiserver import webhooks
from tests.component.apiserver.conftest import Api, Pki
from tests.component.apiserver.webhooks import World
from tests.component.apiserver.widgets import WIDGETS, widget

QUOTAS = "/api/v1/resourcequotas"
COUNTED = "count/widgets.example.test"
ON = "--enable-admission-plugins=ResourceQuota"


@pytest.fixture
async def world(pki: Pki, tmp_path: Path) -> AsyncIterator[World]:
    async with webhooks.world(pki, tmp_path) as made:
        yield made


async def put(world: World, hard: str, used: str = "0") -> None:
    hards = {COUNTED: hard}
    await world.kube.put(
        QUOTAS,
        {"metadata": {"name": "q", "namespace": "acc"}, "spec": {"hard": hards}, "status": {"hard": hards, "used": {COUNTED: used}}},
    )


def used(world: World) -> str:
    said: str = world.kube.get(QUOTAS, "acc", "q")["status"]["used"][COUNTED]
    return said


async def codes(api: Api, names: list[str]) -> list[int]:
    async def one(name: str) -> int:
        return (await api.call("POST", "", widget(name))).code

    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(one(name)) for name in names]
    return sorted(each.result() for each in made)


async def test_object_beyond_the_quota_is_forbidden(world: World) -> None:
    await put(world, "1")
    async with world.api(ON) as api:
        assert (await api.call("POST", "?dryRun=All", widget())).code == 201
        assert used(world) == "0"
        await api.make(widget())
        assert used(world) == "1"
        answer = await api.call("POST", "", widget("w2"))
        assert (answer.code, answer.json["message"]) == (
            403,
            f'widgets.example.test "w2" is forbidden: exceeded quota: q, requested: {COUNTED}=1, used: {COUNTED}=1, limited: {COUNTED}=1',
        )
        assert (await api.patch("w1", {"spec": {"size": 2}})).code == 200
        assert (await api.call("POST", WIDGETS.path("other"), widget())).code == 201


async def test_quotas_are_off_by_default(world: World) -> None:
    await put(world, "0")
    async with world.api() as api:
        await api.make(widget())
    assert not any(path.startswith(QUOTAS) for _, path, _ in world.kube.requests)


async def test_a_crowd_gets_what_there_is_in_few_writes(world: World) -> None:
    await put(world, "7")
    async with world.api(ON) as api:
        assert await codes(api, [f"w{number}" for number in range(20)]) == [201] * 7 + [403] * 13
    assert used(world) == "7"
    assert sum(path.endswith("/q/status") for _, path, _ in world.kube.writes) < 7


async def test_quota_used_by_another_server_is_seen_in_the_conflict(world: World) -> None:
    await put(world, "6")
    async with world.api(ON) as one, world.api(ON) as other:
        world.kube.drop_events(on=True)
        async with asyncio.TaskGroup() as tasks:
            results = [tasks.create_task(codes(each, [f"w{number}" for number in range(5)])) for each in (one, other)]
        made = [code for each in results for code in each.result()]
        assert made.count(201) == 6
        assert used(world) == "6"


async def test_a_cluster_that_refuses_the_write_refuses_the_object(world: World) -> None:
    await put(world, "5")

    def authorize(method: str, path: str, query: Any) -> bool:
        return method != "PUT"

    world.kube.authorize = authorize
    async with world.api(ON) as api:
        answer = await api.call("POST", "", widget())
        assert (answer.code, (await api.get("w1")).code) == (403, 404)
