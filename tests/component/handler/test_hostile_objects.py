from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from handler import agent
from handler.pods.launcher import Disconnected
from handler.reconcilers import limits, trimming, validation
from launcher.protocol import messages
from tests.component.handler.live import Live, live
from tests.component.handler.world import MIGS, VMS, eventually
from tests.hostile import MIGRATION_PIECES, PIECES, Case, Told, a_full_migration, a_full_virtual_machine, replaced

BATCH = 200
PROMPT_SECONDS = 5.0
"""A hundred times what a reaction usually takes."""

Placed = tuple[str, Case, bool]


async def attack(world: Live, collection: str, cases: Sequence[Case]) -> None:
    prefix = f"{collection.rsplit('/', 1)[-1]}-{len(world.api.log)}"
    placed: list[Placed] = []
    for number, case in enumerate(cases):
        obj: dict[str, Any] = {**case.object, "metadata": {**case.object["metadata"], "name": f"{prefix}-{number}"}}
        if case.object.get("status", {}) and isinstance(obj["status"], dict) and obj["status"].get("podUID") == "pod-hostile":
            obj["status"] = {**obj["status"], "podUID": f"pod-{prefix}-{number}"}
            world.alias(f"pod-{prefix}-{number}", "pod-hostile")
        is_machine = case.kind == "VirtualMachine"
        judge = validation.validate_virtual_machine if is_machine else validation.validate_migration
        trim = trimming.trim_machine if is_machine else trimming.trim_migration
        # Fields that virt-handler drops do no harm.
        placed.append((obj["metadata"]["name"], case, bool(judge(trim(copy.deepcopy(await world.api.put(collection, obj)))))))
    await world.healthy_machine_follows(PROMPT_SECONDS)
    told = Told(world.api.writes)
    try:
        for wrong in [name for name, _, is_wrong in placed if is_wrong]:
            await eventually(partial(told.__contains__, wrong), seconds=20)
    except TimeoutError:
        pytest.fail(f"not told: {[case.name for name, case, is_wrong in placed if is_wrong and name not in told][:20]}")
    for name, _, _ in placed:
        await world.api.remove(collection, "ns", name)


def deliver_everything(world: Live) -> None:
    world.api.selected_anyway = lambda obj: obj["metadata"]["namespace"] == "ns"


def surprises(caplog: pytest.LogCaptureFixture) -> list[str]:
    met = [record.exc_info[1] for record in caplog.records if record.exc_info and record.name.split(".")[0] != "aiohttp"]
    return [f"{type(error).__name__}: {str(error)[:200]}" for error in met if not isinstance(error, Disconnected)]


@pytest.mark.sample(16, "hostile machines, virt-handler")
@pytest.mark.parametrize("piece", PIECES)
async def test_hostile_machine_values_are_reported_and_contained(tmp_path: Path, piece: str, caplog: pytest.LogCaptureFixture) -> None:
    once = agent.Limits(limits.Limits(image_seconds=3600.0))
    cases = PIECES[piece]
    assert len(cases) > 100
    async with live(tmp_path, admit=deliver_everything, limits=once) as world:
        hostile = await world.launcher("pod-hostile")
        hostile.missing = ("one",) if not piece.startswith("status") else ()  # each refused start sets up devices and network again
        for batch in _batched(cases, BATCH):
            await attack(world, VMS, batch)
        assert surprises(caplog) == []
        assert max(len(record.getMessage()) for record in caplog.records) < 2000
        if hostile.missing:
            assert len([each for each in hostile.received if isinstance(each, messages.Sync)]) > 20


@pytest.mark.sample(4, "hostile Migrations, virt-handler")
@pytest.mark.parametrize("piece", MIGRATION_PIECES)
async def test_hostile_migration_values_are_reported_and_contained(tmp_path: Path, piece: str, caplog: pytest.LogCaptureFixture) -> None:
    cases = MIGRATION_PIECES[piece]
    async with live(tmp_path, admit=deliver_everything) as world:
        source, _ = await world.launcher("pod-hostile"), await world.launcher("pod-target")
        source.change(started=True, domain=messages.DomainStatus("ns_hostile", "u", "qemu", "running", "booted"))
        await world.api.put(VMS, a_full_virtual_machine())
        await eventually(lambda: world.api.get(VMS, "ns", "hostile")["status"]["phase"] == "Running")
        for batch in _batched(cases, BATCH):
            await attack(world, MIGS, batch)
        assert surprises(caplog) == []


def spoiled(kind: str, *path: str, value: Any) -> Any:
    return replaced(a_full_virtual_machine() if kind == "VirtualMachine" else a_full_migration(), path, value)


@pytest.mark.parametrize(
    "obj",
    [
        spoiled("VirtualMachine", "status", "podUID", value="../../x"),
        spoiled("VirtualMachine", "status", "podUID", value="\x00"),
        spoiled("VirtualMachine", "metadata", "name", value="a/b/c"),
        spoiled("Migration", "status", "targetPodUID", value="../../x"),
        spoiled("Migration", "status", "targetPodUID", value=["x"]),
        spoiled("Migration", "spec", "selector", "name", value="../../../default/secrets/x"),
    ],
    ids=["pod's uid", "no text", "name", "target's uid", "a list", "machine"],
)
async def test_past_crashing_objects_are_harmless(tmp_path: Path, obj: dict[str, Any]) -> None:
    async with live(tmp_path, admit=deliver_everything) as world:
        for pod_uid in ("pod-hostile", "pod-target"):
            await world.launcher(pod_uid)
        before = len(world.api.requests)
        await world.api.put(VMS if obj["kind"] == "VirtualMachine" else MIGS, obj)
        await asyncio.sleep(0.2)
        await world.healthy_machine_follows(PROMPT_SECONDS)
        assert not any("secrets" in path for _, path, _ in world.api.requests[before:])


def _batched(cases: Sequence[Case], size: int) -> list[Sequence[Case]]:
    return [cases[first : first + size] for first in range(0, len(cases), size)]
