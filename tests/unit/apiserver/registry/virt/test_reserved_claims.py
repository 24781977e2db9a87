from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.spec import disk_uses, hot_plug, running
from apiserver.apis.virt.spec.disk_uses import Use
from apiserver.registry.generic import codec
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from storage.memory import MemoryStorage
from storage.port import Delete, Put
from tests.unit.apiserver.registry.virt.test_disk_claims import ROOT, OneServer, Virt, a_disk, a_vm, with_files

OWN, DATA = a_disk("own"), a_disk("data")
LIVE: dict[str, Any] = {"domain": {"liveChanges": list(hot_plug.KINDS)}}
WAITS: dict[str, Any] = {"name": "data", "claimName": "data", "phase": "Pending", "reason": "DiskInUse", "message": "of two"}


async def running_machine(virt: Virt, name: str, *disks: dict[str, Any], phase: str = phases.RUNNING, **status: Any) -> None:
    vm = a_vm(name, *disks, phase=phase)
    vm["status"] |= LIVE | status
    await virt.create(vm)


async def two_machines() -> Virt:
    virt = Virt()
    await running_machine(virt, "one")
    await running_machine(virt, "two")
    return virt


async def stored(virt: Virt, name: str) -> Any:
    return (await virt.server().live("acc", name)).object


async def reserved(virt: Virt, name: str) -> Any:
    return dig(await stored(virt, name), "status", "running", "reservedClaims")


async def test_edit_locks_the_claim_and_the_record_keeps_the_lock() -> None:
    virt = await two_machines()
    assert await virt.edit("one", DATA)
    assert (await virt.locks(), await reserved(virt, "one")) == (["disk/acc/data"], ["data"])
    assert await virt.record("one", "data")
    assert (await virt.locks(), await reserved(virt, "one")) == (["disk/acc/data"], None)
    assert await virt.edit("two", DATA)
    assert not await virt.record("two", "data")
    assert await virt.enter("one", phases.STOPPED)
    assert await virt.locks() == []


async def test_of_two_edits_at_once_both_are_stored_and_one_locks() -> None:
    for _ in range(10):
        virt = await two_machines()
        async with asyncio.TaskGroup() as tasks:
            edits = [tasks.create_task(virt.edit(name, DATA)) for name in ("one", "two")]
        assert [each.result() for each in edits] == [True, True]
        found = [await reserved(virt, name) for name in ("one", "two")]
        assert sorted(found, key=str) == [None, ["data"]]
        assert await virt.locks() == ["disk/acc/data"]
        for name in ("one", "two"):
            assert [each["name"] for each in (await stored(virt, name))["spec"]["domain"]["devices"]["disks"]] == ["data"]


async def test_second_machine_gets_a_claim_that_the_first_gave_up() -> None:
    virt = await two_machines()
    assert await virt.edit("one", DATA)
    assert await virt.edit("two", DATA)
    assert await virt.tell("two", volumeStatus=[WAITS])
    assert await virt.edit("one")
    assert (await virt.locks(), await reserved(virt, "two")) == ([], None)
    assert await virt.tell("two", volumeStatus=[{**WAITS, "reason": "PodNotRunning"}])
    assert (await virt.locks(), await reserved(virt, "two")) == (["disk/acc/data"], ["data"])


@pytest.mark.parametrize("phase", [phases.STOPPING, phases.STOPPED, phases.FAILED, phases.SUSPENDED])
async def test_reservation_ends_with_the_guest(phase: str) -> None:
    virt = await two_machines()
    assert await virt.edit("one", DATA)
    image = {"managedSave": {"id": "i"}} if phase == phases.SUSPENDED else {}
    assert await virt.tell("one", phase=phase, **image)
    assert await virt.locks() == []
    assert await reserved(virt, "one") is None


async def test_reservation_stays_while_the_phase_is_unknown() -> None:
    virt = await two_machines()
    assert await virt.edit("one", DATA)
    assert await virt.enter("one", phases.UNKNOWN)
    assert await virt.locks() == ["disk/acc/data"]
    await virt.remove("one")
    assert await virt.locks() == []


@pytest.mark.parametrize("reason", ["ClaimNotFound", "VolumeModeBlock", "PodRefused", "Unschedulable", "DiskInUse"])
async def test_disk_that_cannot_attach_reserves_nothing(reason: str) -> None:
    virt = await two_machines()
    assert await virt.edit("one", DATA)
    assert await virt.tell("one", volumeStatus=[{**WAITS, "reason": reason}])
    assert await virt.locks() == []
    assert await virt.edit("two", DATA)
    assert await reserved(virt, "two") == ["data"]


@pytest.mark.parametrize("reason", ["PodNotRunning", "ContainerCreating", "Migrating"])
async def test_disk_that_waits_for_pod_or_migration_keeps_its_claim(reason: str) -> None:
    virt = await two_machines()
    assert await virt.edit("one", DATA)
    assert await virt.tell("one", volumeStatus=[{**WAITS, "reason": reason}])
    assert await virt.edit("two", DATA)
    assert (await reserved(virt, "one"), await reserved(virt, "two")) == (["data"], None)


@pytest.mark.parametrize(
    "disk",
    [
        {**DATA, "target": {"bus": "sata"}},
        {**DATA, "bootOrder": 1},
        {"name": "data", "type": "EmptyDisk", "source": {"size": "1Mi"}},
        {"name": "data", "type": "NBD", "source": {"host": "nbd.example"}},
    ],
    ids=str,
)
async def test_disk_for_the_next_start_reserves_nothing(disk: dict[str, Any]) -> None:
    virt = await two_machines()
    assert await virt.edit("one", disk)
    assert (await virt.locks(), await reserved(virt, "one")) == ([], None)


@pytest.mark.parametrize("phase", [phases.SCHEDULED, phases.STOPPING, phases.SUSPENDED])
async def test_machine_that_gets_no_disks_reserves_nothing(phase: str) -> None:
    virt = Virt()
    await running_machine(virt, "one", phase=phase, **({"managedSave": {"id": "i"}} if phase == phases.SUSPENDED else {}))
    assert await virt.edit("one", DATA)
    assert await virt.locks() == []


async def test_launcher_that_reports_live_changes_later_reserves_then() -> None:
    virt = Virt()
    await running_machine(virt, "one", domain={})
    assert await virt.edit("one", DATA)
    assert await virt.locks() == []
    assert await virt.tell("one", **LIVE)
    assert await virt.locks() == ["disk/acc/data"]


async def test_start_of_another_machine_takes_a_reserved_claim_over() -> None:
    virt = await two_machines()
    await virt.create(a_vm("three", DATA))
    assert await virt.edit("one", DATA)
    assert await virt.enter("three", phases.SCHEDULED)
    assert (await virt.locks(), await reserved(virt, "one")) == (["disk/acc/data"], None)
    assert not await virt.record("one", "data")
    assert virt.refusal.startswith('PersistentVolumeClaim "data" is in use by virtual machine "three"')
    assert await virt.enter("one", phases.UNKNOWN)
    assert await virt.enter("one", phases.STOPPED)
    assert await virt.locks() == ["disk/acc/data"]
    assert await virt.enter("three", phases.STOPPED)
    assert await virt.locks() == []


async def test_start_takes_the_claim_over_from_all_readers() -> None:
    virt = await two_machines()
    await virt.create(a_vm("three", DATA))
    for name in ("one", "two"):
        assert await virt.edit(name, a_disk("data", "reads"))
    assert await virt.locks() == [f"disk/acc/data/reads/acc/{name}" for name in ("one", "two")]
    assert await virt.enter("three", phases.SCHEDULED)
    assert await virt.locks() == ["disk/acc/data"]
    assert [await reserved(virt, name) for name in ("one", "two")] == [None, None]


async def test_edit_never_takes_a_claim_from_a_guest() -> None:
    virt = await two_machines()
    await virt.create(a_vm("three", DATA, phase=phases.RUNNING))
    assert await virt.edit("one", DATA)
    assert await reserved(virt, "one") is None
    assert await virt.enter("three", phases.STOPPED)
    assert await virt.locks() == []
    assert await virt.record("one", "data")
    assert await virt.locks() == ["disk/acc/data"]


@pytest.mark.parametrize(("first", "second"), [("writes", "reads"), ("reads", "writes"), ("reads", "shares")])
async def test_edit_of_a_pending_disks_use_changes_its_lock(first: Use, second: Use) -> None:
    virt = await two_machines()
    assert await virt.edit("one", a_disk("data", first))
    assert await virt.edit("one", a_disk("data", second))
    expected = ["disk/acc/data" if second == "writes" else f"disk/acc/data/{second}/acc/one"]
    assert await virt.locks() in ([], expected)
    assert await virt.record("one", "data")
    assert await virt.locks() == expected


@pytest.mark.parametrize(("first", "second"), [("writes", "reads"), ("reads", "writes")])
async def test_claim_that_the_guest_has_is_not_reserved(first: Use, second: Use) -> None:
    virt = Virt()
    await virt.create(with_files(a_vm("one", a_disk("data", first)), "files"))
    assert await virt.tell("one", phase=phases.RUNNING, **LIVE)
    before = await virt.locks()
    assert await virt.edit("one", a_disk("data", first), {**a_disk("data", second), "name": "again"}, a_disk("files"))
    assert (await virt.locks(), await reserved(virt, "one")) == (before, None)


async def test_medium_is_reserved_once_the_drive_is_empty() -> None:
    virt, drive = Virt(), {"name": "tray", "device": "cdrom"}
    medium = {**drive, "type": "PersistentVolumeClaim", "source": {"name": "old"}}
    await running_machine(virt, "one", medium)
    assert await virt.edit("one", {**medium, "source": {"name": "new"}})
    assert await virt.locks() == ["disk/acc/old/reads/acc/one"]
    assert await virt.tell("one", changes=[{"path": "spec.domain.devices.disks[tray]", "state": "Applied"}])
    assert await virt.locks() == ["disk/acc/new/reads/acc/one"]


async def test_dry_run_answers_like_the_edit_and_locks_nothing() -> None:
    virt = await two_machines()
    assert await virt.edit("one", DATA, dry_run=True)
    assert dig(virt.answer.object, "status", "running", "reservedClaims") == ["data"]
    assert await virt.locks() == []
    assert await virt.edit("two", DATA)
    assert await virt.edit("one", DATA, dry_run=True)
    assert dig(virt.answer.object, "status", "running", "reservedClaims") is None
    assert await virt.locks() == ["disk/acc/data"]


async def test_client_writes_no_reservations() -> None:
    virt = await two_machines()
    assert await virt.edit("one", DATA)
    kept = (await stored(virt, "one"))["status"]["running"]
    assert await virt.tell("one", running={**kept, "reservedClaims": ["own", "other"]})
    assert await reserved(virt, "one") == ["data"]
    assert await virt.tell("one", running=None)
    assert await reserved(virt, "one") == ["data"]


@pytest.mark.parametrize("servers", [OneServer, Virt])
async def test_lost_reservation_is_neither_used_nor_released(servers: type[Virt]) -> None:
    """A virt-api of the version before knows none: it gives the claim to a start."""
    virt = servers(MemoryStorage())
    await running_machine(virt, "one")
    await running_machine(virt, "two")
    await virt.create(a_vm("three", DATA))
    for name in ("one", "two"):
        assert await virt.edit(name, DATA)
        assert await reserved(virt, name) == ["data"]
        await virt.storage.commit([], [Delete(f"{ROOT}/claims/kubevirt.io/disk/acc/data")])
    assert await virt.enter("three", phases.SCHEDULED)
    assert not await virt.record("one", "data")
    assert await virt.edit("two")
    assert await virt.enter("one", phases.STOPPED)
    assert await virt.locks() == ["disk/acc/data"]
    assert await virt.edit("two", DATA)
    assert await reserved(virt, "two") is None


async def test_reservation_by_an_older_edit_comes_with_the_record() -> None:
    virt = await two_machines()
    vm = await stored(virt, "one")
    vm["spec"]["domain"]["devices"]["disks"] = [DATA]
    vm["status"]["running"] = {"generation": 1, "domain": {"devices": {"disks": []}}}
    await virt.storage.commit([], [Put(virt.items["one"].key, codec.encode(VirtualMachineStrategy(), vm))])
    virt.items["one"] = await virt.server().live("acc", "one")
    assert await virt.enter("one", phases.RUNNING)
    assert await virt.locks() == []
    assert await virt.record("one", "data")
    assert await virt.locks() == ["disk/acc/data"]


@pytest.mark.parametrize("domain", [5, {"devices": {"disks": 5}}, {"devices": {"disks": [5]}}])
def test_unreadable_machine_reserves_nothing(domain: Any) -> None:
    for form in ("spec", "running"):
        vm = a_vm("one", DATA, phase=phases.RUNNING)
        vm["status"] |= LIVE | {"running": {"generation": 1, "domain": {"devices": {"disks": []}}, "reservedClaims": ["data"]}}
        (vm["spec"] if form == "spec" else vm["status"]["running"])["domain"] = domain
        assert VirtualMachineStrategy().locks(vm) == frozenset()
        assert VirtualMachineStrategy().tentative_locks(vm) == frozenset()


def held(vm: dict[str, Any]) -> frozenset[disk_uses.Lock]:
    if phases.phase_of(vm) not in phases.WITH_GUEST:
        return frozenset()
    return disk_uses.locks(running.spec_of(vm)["domain"], vm["metadata"]["uid"])


async def test_no_sequence_of_live_edits_shares_a_disk() -> None:
    chance = random.Random(30)
    uses: tuple[Use, ...] = ("writes", "reads", "shares")
    outcomes = set()
    for _ in range(40):
        virt, names = Virt(), ["one", "two", "three"]
        for name in names:
            await virt.create(a_vm(name, *(a_disk(each, chance.choice(uses)) for each in chance.sample("ab", k=chance.randrange(2)))))
        for _ in range(40):
            name = chance.choice(names)
            vm = virt.items[name].object
            coming = [each["name"] for each in hot_plug.added(vm)] if phases.phase_of(vm) == phases.RUNNING else []
            gone = [hot_plug.path_of(each["name"]) for each in hot_plug.removed(vm)]
            step = chance.choice(("edit", "edit", "record", "record", "remove", "wait", "enter"))
            if step == "edit":
                disks = [a_disk(each, chance.choice(uses)) for each in chance.sample("abc", k=chance.randrange(3))]
                assert await virt.edit(name, *disks)
            elif step == "record" and coming:
                outcomes.add(await virt.record(name, chance.choice(coming)))
            elif step == "remove" and gone:
                assert await virt.tell(name, changes=[{"path": chance.choice(gone), "state": "Applied"}])
            elif step == "wait" and coming:
                entry = {"name": chance.choice(coming), "phase": "Pending", "reason": chance.choice(["DiskInUse", "PodNotRunning"])}
                assert await virt.tell(name, volumeStatus=[entry])
            elif step == "enter":
                phase = chance.choice([phases.SCHEDULED, phases.RUNNING, phases.RUNNING, phases.UNKNOWN, phases.STOPPED])
                await virt.tell(name, phase=phase, **LIVE)
            found = [await stored(virt, each) for each in names]
            expected = set()
            for vm in found:
                theirs = [lock for other in found if other is not vm for lock in held(other)]
                assert not [
                    one for one in held(vm) for two in theirs if one.what == two.what and (one != two or one.group == disk_uses.ALONE)
                ]
                strategy = VirtualMachineStrategy()
                names_of_locks = strategy.locks(vm) | {lock for lock, _ in strategy.shared_locks(vm)}
                expected |= {lock.rpartition("/")[2] for lock in names_of_locks}
                outcomes.add(bool(strategy.tentative_locks(vm)))
            assert {each.removeprefix("disk/acc/").partition("/")[0] for each in await virt.locks()} == expected
        for name in names:
            await virt.remove(name)
        assert await virt.locks() == []
    assert outcomes == {True, False}
