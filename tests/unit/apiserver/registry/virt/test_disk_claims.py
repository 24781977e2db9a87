"""Never two guests on a disk: what virt-api lets two virt-controllers, two virt-apis and a restart in between write."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from apiserver.apis.virt import disk_uses, phases
from apiserver.apis.virt.disk_uses import Use
from apiserver.registry.generic import codec
from apiserver.registry.generic.items import Item
from apiserver.registry.generic.transactions import ClaimTaken, Transactions
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from storage.memory import MemoryStorage
from storage.port import Delete, Put

ROOT = "/registry"


def a_disk(claim: str, use: Use = "writes") -> dict[str, Any]:
    said: dict[Use, dict[str, Any]] = {"writes": {}, "reads": {"readOnly": True}, "shares": {"shareable": True}}
    return {"name": claim, "type": "PersistentVolumeClaim", "source": {"name": claim}, **said[use]}


def a_vm(name: str, *disks: dict[str, Any], phase: str = phases.SCHEDULING, namespace: str = "acc") -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"runStrategy": "Always", "domain": {"devices": {"disks": list(disks)}}},
        "status": {"phase": phase, "attempt": 1},
    }


class Virt:
    """virt-apis on one storage."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.items: dict[str, Item] = {}

    def server(self) -> Transactions:
        """Return another virt-api, or the same one after a restart: nothing is remembered."""
        return Transactions(self.storage, VirtualMachineStrategy(), ROOT)

    def _key(self, vm: dict[str, Any]) -> str:
        return f"{ROOT}/kubevirt.io/virtualmachines/{vm['metadata']['namespace']}/{vm['metadata']['name']}"

    async def create(self, vm: dict[str, Any]) -> None:
        key, value = self._key(vm), codec.dump(vm)
        revision = await self.server().create(key, vm, value, repeatable=True)
        self.items[vm["metadata"]["name"]] = Item(key, revision, vm, value)

    async def enter(self, name: str, phase: str) -> bool:
        """Write a phase; return whether that was taken."""
        item = self.items[name]
        new = {**item.object, "status": {**item.object["status"], "phase": phase}}
        value = codec.dump(new)
        try:
            revision = await self.server().replace(item, new, value, repeatable=True)
        except ClaimTaken as taken:
            self.refusal = taken.why
            return False
        self.items[name] = Item(item.key, revision, new, value)
        return True

    async def remove(self, name: str) -> None:
        await self.server().remove(self.items.pop(name))

    async def claims(self) -> list[str]:
        return [each.key.removeprefix(f"{ROOT}/claims/kubevirt.io/") for each in (await self.storage.range(f"{ROOT}/claims/")).entries]


async def test_of_two_that_are_handed_over_at_once_one_gets_its_guest() -> None:
    virt = Virt()
    for name in ("one", "two"):
        await virt.create(a_vm(name, a_disk("own-" + name), a_disk("data")))
    taken: dict[str, bool] = {}

    async def hand_over(name: str) -> None:
        taken[name] = await virt.enter(name, phases.SCHEDULED)

    async with asyncio.TaskGroup() as tasks:
        for name in ("one", "two"):
            tasks.create_task(hand_over(name))
    assert sorted(taken.values()) == [False, True]
    winner, loser = sorted(taken, key=taken.__getitem__, reverse=True)
    assert virt.refusal == f'PersistentVolumeClaim "data" is in use by virtual machine "{winner}"; this one starts when that is off'
    assert await virt.claims() == ["disk/acc/data", f"disk/acc/own-{winner}"]
    for phase in (phases.RUNNING, phases.UNKNOWN, phases.RUNNING, phases.STOPPING):
        assert await virt.enter(winner, phase)
        assert not await virt.enter(loser, phases.SCHEDULED)
    assert await virt.enter(winner, phases.STOPPED)
    assert await virt.enter(loser, phases.SCHEDULED)
    await virt.remove(loser)
    assert await virt.claims() == []


@pytest.mark.parametrize("phase", [phases.PENDING, phases.SCHEDULING, phases.STOPPED, phases.SUCCEEDED, phases.FAILED])
async def test_a_machine_without_a_guest_holds_nothing(phase: str) -> None:
    virt = Virt()
    await virt.create(a_vm("one", a_disk("data"), a_disk("more", "reads"), phase=phase))
    assert await virt.claims() == []


async def test_readers_share_with_readers_and_those_who_share_with_their_like() -> None:
    uses: tuple[Use, ...] = ("writes", "reads", "shares")
    for mine in uses:
        for theirs in uses:
            virt = Virt()
            await virt.create(a_vm("one", a_disk("data", mine), phase=phases.RUNNING))
            await virt.create(a_vm("two", a_disk("data", theirs)))
            together = await virt.enter("two", phases.SCHEDULED)
            assert together == (mine == theirs != "writes") == (not disk_uses.clash(mine, theirs))


async def test_claims_are_of_a_namespace_and_found_in_lower_case() -> None:
    virt = Virt()
    await virt.create(a_vm("one", a_disk("Data"), phase=phases.RUNNING))
    await virt.create(a_vm("two", a_disk("data"), namespace="other"))
    await virt.create(a_vm("three", a_disk("dATA")))
    await virt.create(a_vm("four", a_disk("data-2"), a_disk("dat")))
    assert await virt.enter("two", phases.SCHEDULED)
    assert await virt.enter("four", phases.SCHEDULED)
    assert not await virt.enter("three", phases.SCHEDULED)


async def test_a_claim_that_an_older_virt_api_left_behind_is_in_nobodys_way() -> None:
    """It ended one machine and removed another without knowing of claims."""
    virt = Virt()
    for name, use in (("one", "writes"), ("two", "reads")):
        await virt.create(a_vm(name, a_disk(name, use), phase=phases.RUNNING))  # type: ignore[arg-type]  # of a loop
    one = virt.items["one"]
    await virt.storage.commit(
        [], [Put(one.key, codec.dump(a_vm("one", a_disk("one"), phase=phases.STOPPED))), Delete(virt.items["two"].key)]
    )
    await virt.create(a_vm("three", a_disk("one"), a_disk("two")))
    assert await virt.enter("three", phases.SCHEDULED)
    assert await virt.claims() == ["disk/acc/one", "disk/acc/two"]


async def test_what_cannot_be_read_as_a_machine_holds_nothing() -> None:
    virt = Virt()
    broken: tuple[Any, ...] = (
        {"disks": 5},
        [],
        {"disks": [5]},
        {"disks": [{"source": "a"}]},
        {"disks": [{"target": 1}]},
        {"disks": [{"name": []}]},
    )
    for name, devices in ((f"vm{number}", each) for number, each in enumerate(broken)):
        vm = a_vm(name, phase=phases.RUNNING)
        vm["spec"]["domain"]["devices"] = devices
        await virt.create(vm)
    assert await virt.claims() == []


async def test_no_history_of_phases_brings_two_guests_onto_a_disk() -> None:
    chance = random.Random(13)
    uses: tuple[Use, ...] = ("writes", "reads", "shares")
    every = sorted({*phases.WITH_POD, phases.STOPPED, phases.FAILED})
    for _ in range(20):
        virt, names = Virt(), [f"vm{number}" for number in range(4)]
        for name in names:
            claims = chance.sample(["a", "b", "c"], k=2)
            await virt.create(a_vm(name, *(a_disk(claim, chance.choice(uses)) for claim in claims)))
        for _ in range(25):
            await virt.enter(chance.choice(names), chance.choice(every))
            guests = [item.object for item in virt.items.values() if phases.phase_of(item.object) in phases.WITH_GUEST]
            for position, one in enumerate(guests):
                for two in guests[position + 1 :]:
                    mine, theirs = (disk_uses.uses(each["spec"]["domain"]) for each in (one, two))
                    assert not [claim for claim in mine if claim in theirs and disk_uses.clash(mine[claim], theirs[claim])]
        for name in names:
            await virt.remove(name)
        assert await virt.claims() == []
