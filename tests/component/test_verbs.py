from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.rest import Client
from apiserver.registry.virt import verbs
from tests.fakes.aggregating import AggregatingAPI

VM = {
    "apiVersion": "kubevirt.io/v1alpha1",
    "kind": "VirtualMachine",
    "metadata": {"name": "web"},
    "spec": {"domain": {"memory": {"guest": "64Mi"}}},
}
RUNNING = {"phase": "Running", "attempt": 1, "nodeName": "a", "podName": "p", "attempts": [{"number": 1}]}
STOP = {"action": "Stop", "attempt": 1, "runStrategy": "RerunOnFailure"}
STOPPED = {"phase": "Stopped", "attempt": 1, "attempts": [{"number": 1, "result": "Stopped"}], "request": STOP}


class Machine:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def become(self, status: dict[str, Any]) -> None:
        found = await self.get()
        await self.client.update(VIRTUAL_MACHINES, {**found, "status": status}, subresource="status")

    async def get(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.client.get(VIRTUAL_MACHINES, "web", "ns")
        return found

    async def call(self, verb: str, *, dry_run: bool = False, **body: Any) -> dict[str, Any]:
        path = VIRTUAL_MACHINES.path("ns", "web", verb)
        found: dict[str, Any] = await self.client.request("PUT", path, body=body, params={"dryRun": "All"} if dry_run else None)
        return found

    async def migrations(self) -> list[dict[str, Any]]:
        return list((await self.client.list(MIGRATIONS, "ns"))["items"])


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    async with AggregatingAPI().aggregating(tmp_path) as ours, Client(ours, user_agent="test") as client:
        await client.create(VIRTUAL_MACHINES, VM, "ns")
        yield Machine(client)


async def test_a_dry_run_of_a_verb_answers_and_writes_nothing(machine: Machine) -> None:
    paused = {**RUNNING, "pause": {"wanted": True, "attempt": 1}}
    frozen = {**RUNNING, "fsFreezeStatus": "frozen"}
    for verb in verbs.VERBS.keys() - {"cancelmigration", "suspend", "resume"}:  # the last two need a claim and an image
        await machine.become({"start": STOPPED, "unpause": paused, "thaw": frozen}.get(verb, RUNNING))
        before = await machine.get()
        answer = await machine.call(verb, dry_run=True, **({"keys": ["KEY_A"]} if verb == "sendkey" else {}))
        assert answer["kind"] == ("Migration" if verb == "migrate" else "VirtualMachine")
        assert answer.get("status") != before["status"], verb
        assert await machine.get() == before, verb
        assert await machine.migrations() == []


async def test_a_migration_is_made_once_for_each_id_and_cancelled(machine: Machine) -> None:
    await machine.become(RUNNING)
    with pytest.raises(errors.Conflict, match='"web": it is not being migrated'):
        await machine.call("cancelmigration")
    made = await machine.call("migrate", id="one", nodeSelector={"a": "b"})
    assert (made["metadata"]["name"], made["spec"]["nodeSelector"]) == ("web-one", {"a": "b"})
    again = await machine.call("migrate", id="one")
    assert again["metadata"]["uid"] == made["metadata"]["uid"]
    with pytest.raises(errors.Conflict):
        await machine.call("migrate", id="two")
    await machine.call("cancelmigration", dry_run=True)
    (kept,) = await machine.migrations()
    assert "deletionTimestamp" not in kept["metadata"]
    for _ in range(2):
        cancelled = await machine.call("cancelmigration")
        assert cancelled["metadata"]["deletionTimestamp"]
    with pytest.raises(errors.Conflict, match="by another"):
        await machine.call("cancelmigration", migration="another")
    await machine.client.update(MIGRATIONS, {**(await machine.migrations())[0], "status": {"phase": "Cancelled"}}, subresource="status")
    with pytest.raises(errors.Conflict, match="it is not being migrated"):
        await machine.call("cancelmigration")
