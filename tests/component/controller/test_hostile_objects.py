from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import pytest

from apiserver.apis.meta.objects import name_of, uid_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.places import names
from controller.reconcilers import trimming
from tests.component.controller.test_controller import MIGRATIONS, PODS, VMS, Cluster, a_vm, working
from tests.fakes.kubeapi import FakeAPI
from tests.hostile import MIGRATION_PIECES, PIECES, VALUES, WORST, Case, Told, a_full_virtual_machine
from tests.own_time import promptly

BATCH = 50
PROMPT_SECONDS = 5.0


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    api = FakeAPI()
    async with working(api, "--no-leader-elect"):
        api.judge = None
        yield Cluster(api)


async def healthy_machines_start(cluster: Cluster, name: str) -> None:
    made = await cluster.api.put(VMS, a_vm(name))
    pod = (PODS, "ns", names.launcher_pod_name(name, uid_of(made), 1))
    await promptly(lambda: pod in cluster.api.objects, PROMPT_SECONDS)


async def attack(cluster: Cluster, collection: str, cases: Sequence[Case]) -> None:
    prefix = f"{collection.rsplit('/', 1)[-1]}-{len(cluster.api.log)}"
    placed: list[tuple[str, Case, bool]] = []
    for number, case in enumerate(cases):
        obj = {**case.object, "metadata": {**case.object["metadata"], "name": f"{prefix}-{number}"}}
        stored = await cluster.api.put(collection, obj)
        judge = structure.of_virtual_machine if case.kind == "VirtualMachine" else structure.of_migration
        placed.append((name_of(stored), case, bool(judge(trimming.trim_object(copy.deepcopy(stored))))))
    await healthy_machines_start(cluster, f"healthy-{prefix}")

    told = Told(cluster.api.writes)
    try:
        for wrong in [name for name, _, is_wrong in placed if is_wrong]:
            await cluster.until(partial(told.__contains__, wrong), "the next Event")
    except AssertionError:
        pytest.fail(f"not told: {[case.name for name, case, is_wrong in placed if is_wrong and name not in told][:20]}")
    for name, _, _ in placed:
        if (collection, "ns", name) in cluster.api.objects:
            await cluster.api.remove(collection, "ns", name)


def surprises(caplog: pytest.LogCaptureFixture) -> list[str]:
    met = [record.exc_info[1] for record in caplog.records if record.exc_info and record.name.split(".")[0] not in ("aiohttp", "asyncio")]
    return [f"{type(error).__name__}: {str(error)[:200]}" for error in met]


@pytest.mark.sample(24, "hostile machines, virt-controller")
@pytest.mark.parametrize("piece", PIECES)
async def test_hostile_machine_values_are_reported_and_contained(cluster: Cluster, caplog: pytest.LogCaptureFixture, piece: str) -> None:
    cases = PIECES[piece]
    assert len(cases) > 100
    for first in range(0, len(cases), BATCH):
        await attack(cluster, VMS, cases[first : first + BATCH])
    assert surprises(caplog) == []


@pytest.mark.sample(4, "hostile Migrations, virt-controller")
@pytest.mark.parametrize("piece", MIGRATION_PIECES)
async def test_hostile_migration_values_are_reported_and_contained(cluster: Cluster, caplog: pytest.LogCaptureFixture, piece: str) -> None:
    await cluster.api.put(VMS, a_full_virtual_machine())
    cases = MIGRATION_PIECES[piece]
    for first in range(0, len(cases), BATCH):
        await attack(cluster, MIGRATIONS, cases[first : first + BATCH])
    assert surprises(caplog) == []


TEXTS = [name for name, value in VALUES.items() if isinstance(value, str) and name in WORST] + ["empty text", "NaN as text"]
WRITTEN_BY_TENANTS = (
    ("labels", names.COMPONENT_LABEL),
    ("labels", names.VM_NAME_LABEL),
    ("labels", names.CREATED_BY_LABEL),
    ("labels", names.MIGRATION_LABEL),
    ("annotations", names.ATTEMPT_ANNOTATION),
)


@pytest.mark.parametrize(("where", "key"), WRITTEN_BY_TENANTS, ids=[key for _, key in WRITTEN_BY_TENANTS])
async def test_hostile_pod_values_affect_no_other_machine(cluster: Cluster, caplog: pytest.LogCaptureFixture, where: str, key: str) -> None:
    """In labels or annotations of any pod. kube-apiserver checks types, not texts."""
    pod = await cluster.running()
    for number, value in enumerate([*TEXTS, None]):
        foreign: dict[str, Any] = copy.deepcopy(pod)
        foreign["metadata"] = {**foreign["metadata"], "name": f"foreign-{number}", "uid": f"foreign-{number}"}
        for obj in (foreign, cluster.api.get(PODS, "ns", name_of(pod))):
            changed = copy.deepcopy(obj)
            changed["metadata"][where] = {**changed["metadata"].get(where, {}), key: VALUES[value] if value else ""}
            if value is None:
                changed["metadata"].pop(where)
            changed.setdefault("status", {})["message"] = VALUES[value] if value else ""
            changed["metadata"].pop("resourceVersion", None)
            await cluster.api.put(PODS, changed)
        await healthy_machines_start(cluster, f"healthy-{number}")
    assert surprises(caplog) == []


@pytest.mark.parametrize("text", TEXTS)
async def test_the_last_words_of_a_pod_are_only_words(cluster: Cluster, caplog: pytest.LogCaptureFixture, text: str) -> None:
    pod = await cluster.running()
    await cluster.end_pod(pod, 1, VALUES[text])
    attempt = await cluster.until(
        lambda: next((each for each in cluster.vm()["status"]["attempts"] if each.get("result") == "Failed"), None), "the attempt's end"
    )
    assert len(attempt["message"]) <= 500
    assert attempt["message"].isprintable()
    assert surprises(caplog) == []


@pytest.mark.parametrize("field", ["spec", "status"])
async def test_a_machine_that_is_not_sound_can_be_deleted(cluster: Cluster, field: str) -> None:
    pod = await cluster.running()

    def spoil(vm: dict[str, Any]) -> None:
        vm[field] = {"phase": ["Running"], "attempts": "x", "domain": [], "runStrategy": 7}

    await cluster.api.edit(VMS, "ns", "testvm", spoil)
    await cluster.until(lambda: "InvalidObject" in cluster.events(), "an Event")
    await cluster.api.edit(VMS, "ns", "testvm", lambda vm: vm["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    await cluster.until(lambda: cluster.api.get(PODS, "ns", name_of(pod))["metadata"].get("deletionTimestamp"), "the pod's deletion")
    await asyncio.sleep(0.1)
    assert cluster.vm()["metadata"]["finalizers"] == [names.VM_FINALIZER]
    await cluster.api.remove(PODS, "ns", name_of(pod))
    await cluster.until(lambda: (VMS, "ns", "testvm") not in cluster.api.objects, "the machine's end")
