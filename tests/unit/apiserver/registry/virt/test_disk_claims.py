from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.spec import disk_uses, hot_plug, running
from apiserver.apis.virt.spec.disk_uses import Use
from apiserver.registry.cacher.items import Item
from apiserver.registry.cacher.watchcache import WatchCache
from apiserver.registry.generic import codec
from apiserver.registry.generic.stored import StoredObjects
from apiserver.registry.generic.transactions import LockTaken, Overtaken
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from storage.memory import MemoryStorage
from storage.port import Delete, Entry, Put
from tests.unit.apiserver.apis.virt.domainxml import documents

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


def with_files(vm: dict[str, Any], claim: str, *, read_only: bool = False) -> dict[str, Any]:
    shared = {"name": "files", "type": "PersistentVolumeClaim", "source": {"name": claim}, "readOnly": read_only}
    vm["spec"]["domain"]["devices"].setdefault("filesystems", []).append(shared)
    return vm


def with_state(vm: dict[str, Any], claim: str, uuid: str = "") -> dict[str, Any]:
    vm["spec"]["domain"]["firmware"] = {"persistentState": {"claimName": claim}, **({"uuid": uuid} if uuid else {})}
    return vm


class Virt:
    def __init__(self, storage: MemoryStorage | None = None) -> None:
        self.storage = storage or MemoryStorage()
        self.items: dict[str, Item] = {}

    def server(self) -> StoredObjects:
        """Return another virt-api's StoredObjects: the same storage, no cached state."""
        strategy = VirtualMachineStrategy()
        cache = WatchCache(self.storage, codec.collection(ROOT, strategy.resource), partial(codec.decode, strategy))
        return StoredObjects(self.storage, cache, strategy, ROOT)

    def _key(self, vm: dict[str, Any]) -> str:
        return f"{ROOT}/kubevirt.io/virtualmachines/{vm['metadata']['namespace']}/{vm['metadata']['name']}"

    async def create(self, vm: dict[str, Any]) -> None:
        key = self._key(vm)
        self.items[vm["metadata"]["name"]] = await self.server().write(key, None, vm, dry_run=False, repeatable=True)

    async def enter(self, name: str, phase: str) -> bool:
        return await self.tell(name, phase=phase)

    async def tell(self, name: str, **status: Any) -> bool:
        def told(old: dict[str, Any]) -> dict[str, Any]:
            new = {**old, "status": {**old["status"], **status}}
            VirtualMachineStrategy().prepare_for_status_update(new, old)
            return new

        return await self._replace(name, told)

    async def edit(self, name: str, *disks: dict[str, Any], dry_run: bool = False) -> bool:
        def edited(old: dict[str, Any]) -> dict[str, Any]:
            new = copy.deepcopy(old)
            new["spec"]["domain"]["devices"]["disks"] = list(disks)
            VirtualMachineStrategy().prepare_for_update(new, old)
            return new

        return await self._replace(name, edited, dry_run=dry_run)

    async def record(self, name: str, disk: str) -> bool:
        old = self.items[name].object
        (new_disk,) = (each for each in hot_plug.added(old) if each["name"] == disk)
        volume = {"attachPodName": hot_plug.pod_name(old, new_disk), "attachPodUID": "uid"}
        return await self.tell(name, volumeStatus=[{"name": disk, "claimName": disk, "hotplugVolume": volume}])

    async def _replace(self, name: str, change: Callable[[dict[str, Any]], dict[str, Any]], *, dry_run: bool = False) -> bool:
        item, server = self.items[name], self.server()
        try:
            self.answer = await server.write(item.key, item, change(item.object), dry_run=dry_run, repeatable=True)
        except LockTaken as taken:
            self.refusal = taken.why
            return False
        except Overtaken as overtaken:
            self.items[name] = server.current(name, overtaken.current)
            return await self._replace(name, change, dry_run=dry_run)
        if not dry_run:
            self.items[name] = self.answer
        return True

    async def remove(self, name: str) -> None:
        server, item = self.server(), self.items.pop(name)
        try:
            await server.remove(item, item.object, dry_run=False)
        except Overtaken as overtaken:
            current = server.current(name, overtaken.current)
            await server.remove(current, current.object, dry_run=False)

    async def locks(self) -> list[str]:
        return [each.key.removeprefix(f"{ROOT}/claims/kubevirt.io/") for each in (await self.storage.range(f"{ROOT}/claims/")).entries]


async def test_of_two_that_are_assigned_at_once_one_gets_its_guest() -> None:
    virt = Virt()
    for name in ("one", "two"):
        await virt.create(a_vm(name, a_disk("own-" + name), a_disk("data")))
    taken: dict[str, bool] = {}

    async def assign(name: str) -> None:
        taken[name] = await virt.enter(name, phases.SCHEDULED)

    async with asyncio.TaskGroup() as tasks:
        for name in ("one", "two"):
            tasks.create_task(assign(name))
    assert sorted(taken.values()) == [False, True]
    winner, loser = sorted(taken, key=taken.__getitem__, reverse=True)
    assert (
        virt.refusal
        == f'PersistentVolumeClaim "data" is in use by virtual machine "{winner}"; this virtual machine starts when that one is off'
    )
    assert await virt.locks() == ["disk/acc/data", f"disk/acc/own-{winner}"]
    for phase in (phases.RUNNING, phases.UNKNOWN, phases.RUNNING, phases.STOPPING):
        assert await virt.enter(winner, phase)
        assert not await virt.enter(loser, phases.SCHEDULED)
    assert await virt.enter(winner, phases.STOPPED)
    assert await virt.enter(loser, phases.SCHEDULED)
    await virt.remove(loser)
    assert await virt.locks() == []


async def written_by_a_version_that_knew_no_locks(virt: Virt, vm: dict[str, Any]) -> None:
    key, value = virt._key(vm), codec.dump(vm)
    virt.items[vm["metadata"]["name"]] = Item(key, await virt.storage.commit([], [Put(key, value)]), vm, value)


async def test_machine_on_since_an_upgrade_takes_locks_at_next_write() -> None:
    virt = Virt()
    await written_by_a_version_that_knew_no_locks(virt, with_files(a_vm("one", a_disk("data", "reads"), phase=phases.RUNNING), "files"))
    for other, disk in (("two", "files"), ("three", "data")):
        await virt.create(a_vm(other, a_disk(disk)))
    assert await virt.enter("one", phases.RUNNING)
    for other in ("two", "three"):
        assert not await virt.enter(other, phases.SCHEDULED)
    assert await virt.enter("one", phases.STOPPED)
    assert await virt.locks() == []


async def test_conflicting_lock_does_not_block_a_status_write() -> None:
    virt = Virt()
    await virt.create(a_vm("two", a_disk("data"), phase=phases.RUNNING))
    await written_by_a_version_that_knew_no_locks(virt, a_vm("one", a_disk("data"), a_disk("own"), phase=phases.RUNNING))
    assert await virt.enter("one", phases.UNKNOWN)
    assert await virt.locks() == ["disk/acc/data", "disk/acc/own"]
    assert await virt.enter("two", phases.STOPPED)
    assert await virt.enter("one", phases.RUNNING)
    await virt.create(a_vm("three", a_disk("data")))
    assert not await virt.enter("three", phases.SCHEDULED)


async def test_machine_without_a_lock_does_not_release_anothers() -> None:
    virt = Virt()
    await virt.create(a_vm("two", a_disk("data"), phase=phases.RUNNING))
    for name in ("one", "four"):
        await written_by_a_version_that_knew_no_locks(virt, a_vm(name, a_disk("data"), phase=phases.RUNNING))
    assert await virt.enter("one", phases.RUNNING)
    assert await virt.enter("one", phases.STOPPED)
    await virt.remove("four")
    await virt.create(a_vm("three", a_disk("data")))
    for name in ("one", "three"):
        assert not await virt.enter(name, phases.SCHEDULED)
    assert await virt.locks() == ["disk/acc/data"]


class Noting(MemoryStorage):
    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    async def get(self, key: str) -> Entry | None:
        self.read.append(key)
        return await super().get(key)


class OneServer(Virt):
    """A virt-api that never restarts and so keeps its cache."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._server = super().server()

    def server(self) -> StoredObjects:
        return self._server


async def test_stored_locks_are_read_once() -> None:
    storage = Noting()
    virt = OneServer(storage)
    await written_by_a_version_that_knew_no_locks(virt, a_vm("one", a_disk("data"), phase=phases.RUNNING))
    await virt.create(a_vm("two", a_disk("more"), phase=phases.RUNNING))
    for _ in range(3):
        assert await virt.enter("one", phases.RUNNING)
        assert await virt.enter("two", phases.RUNNING)
    assert storage.read == [f"{ROOT}/claims/kubevirt.io/disk/acc/data"]


@pytest.mark.parametrize("phase", [phases.PENDING, phases.SCHEDULING, phases.STOPPED, phases.SUCCEEDED, phases.FAILED])
async def test_a_machine_without_a_guest_holds_nothing(phase: str) -> None:
    virt = Virt()
    await virt.create(a_vm("one", a_disk("data"), a_disk("more", "reads"), phase=phase))
    assert await virt.locks() == []


async def test_disk_uses_share_only_with_the_same_use() -> None:
    uses: tuple[Use, ...] = ("writes", "reads", "shares")
    for mine in uses:
        for theirs in uses:
            virt = Virt()
            await virt.create(a_vm("one", a_disk("data", mine), phase=phases.RUNNING))
            await virt.create(a_vm("two", a_disk("data", theirs)))
            together = await virt.enter("two", phases.SCHEDULED)
            assert together == (mine == theirs != "writes") == (not disk_uses.clash(mine, theirs))


async def go_together(one: dict[str, Any], two: dict[str, Any]) -> bool:
    found = []
    for first, second in ((one, two), (two, one)):
        virt = Virt()
        for vm in (first, second):
            await virt.create(copy.deepcopy(vm))
        assert await virt.enter(first["metadata"]["name"], phases.SCHEDULED)
        found.append(await virt.enter(second["metadata"]["name"], phases.SCHEDULED))
        if not found[-1]:
            assert virt.refusal.startswith('PersistentVolumeClaim "data" is in use by virtual machine "')
        for vm in (first, second):
            await virt.remove(vm["metadata"]["name"])
        assert await virt.locks() == []
    assert found[0] == found[1]
    return found[0]


async def test_machines_share_files_of_a_claim_but_no_disk_of_it() -> None:
    sharing = with_files(a_vm("one"), "Data")
    assert await go_together(sharing, with_files(a_vm("two"), "data"))
    assert await go_together(sharing, with_files(a_vm("two"), "data", read_only=True))
    uses: tuple[Use, ...] = ("writes", "reads", "shares")
    for use in uses:
        assert not await go_together(sharing, a_vm("two", a_disk("data", use)))
        assert await go_together(sharing, a_vm("two", a_disk("dat", use)))
        assert await go_together(with_files(a_vm("one"), "data", read_only=True), a_vm("two", a_disk("data", use)))
    both = with_files(a_vm("one", a_disk("data", "reads")), "data")
    assert not await go_together(both, a_vm("two", a_disk("data", "reads")))


async def test_firmware_state_shares_its_claim_but_not_its_directory() -> None:
    keeping = with_state(a_vm("one"), "Data")
    assert await go_together(keeping, with_state(a_vm("two"), "data"))
    assert await go_together(keeping, a_vm("two", a_disk("data")))
    assert not await go_together(keeping, with_files(a_vm("two"), "data"))
    named = with_state(a_vm("one"), "data", "5d307ca9-b3ef-428c-8861-06e72d69f223")
    assert not await go_together(named, with_state(a_vm("two"), "data", "5D307CA9-b3ef-428c-8861-06e72d69f223"))
    assert await go_together(named, with_state(a_vm("two"), "other", "5d307ca9-b3ef-428c-8861-06e72d69f223"))


async def test_state_of_a_machine_with_xml_is_found_by_the_uuid_in_it() -> None:
    uuid = "5d307ca9-b3ef-428c-8861-06e72d69f223"
    described = with_state(a_vm("one"), "data")
    described["spec"]["domainXML"] = documents.document().replace("@uuid@", uuid)
    assert not await go_together(described, with_state(a_vm("two"), "data", uuid))
    described["spec"]["domainXML"] = described["spec"]["domainXML"].replace(uuid[:8], "00000000")
    assert await go_together(described, with_state(a_vm("two"), "data", uuid))


async def test_claims_are_of_a_namespace_and_found_in_lower_case() -> None:
    virt = Virt()
    await virt.create(a_vm("one", a_disk("Data"), phase=phases.RUNNING))
    await virt.create(a_vm("two", a_disk("data"), namespace="other"))
    await virt.create(a_vm("three", a_disk("dATA")))
    await virt.create(a_vm("four", a_disk("data-2"), a_disk("dat")))
    assert await virt.enter("two", phases.SCHEDULED)
    assert await virt.enter("four", phases.SCHEDULED)
    assert not await virt.enter("three", phases.SCHEDULED)


async def test_lock_left_by_an_older_virt_api_blocks_no_machine() -> None:
    """It stopped one VM and deleted another without releasing their locks."""
    virt = Virt()
    for name, use in (("one", "writes"), ("two", "reads")):
        await virt.create(a_vm(name, a_disk(name, use), phase=phases.RUNNING))  # type: ignore[arg-type]  # of a loop
    one = virt.items["one"]
    await virt.storage.commit(
        [], [Put(one.key, codec.dump(a_vm("one", a_disk("one"), phase=phases.STOPPED))), Delete(virt.items["two"].key)]
    )
    await virt.create(a_vm("three", a_disk("one"), a_disk("two")))
    assert await virt.enter("three", phases.SCHEDULED)
    assert await virt.locks() == ["disk/acc/one", "disk/acc/two"]


async def test_unreadable_machine_holds_no_lock() -> None:
    virt = Virt()
    broken: tuple[Any, ...] = (
        {"disks": 5},
        [],
        {"disks": [5]},
        {"disks": [{"source": "a"}]},
        {"disks": [{"target": 1}]},
        {"disks": [{"name": []}]},
        {"disks": [{"type": "RBD", "source": {"image": "i", "monitors": 5}}]},
        {"filesystems": 5},
        {"filesystems": [5]},
        {"filesystems": [{"source": "a"}]},
    )
    for name, devices in ((f"vm{number}", each) for number, each in enumerate(broken)):
        vm = a_vm(name, phase=phases.RUNNING)
        vm["spec"]["domain"]["devices"] = devices
        await virt.create(vm)
    for name, domain in ((f"fw{number}", each) for number, each in enumerate(({"firmware": 5}, {"firmware": {"persistentState": 5}}, 5))):
        vm = a_vm(name, phase=phases.RUNNING)
        vm["spec"]["domain"] = domain
        await virt.create(vm)
    assert await virt.locks() == []


async def test_edited_machine_holds_running_disks_until_guest_is_off() -> None:
    virt = Virt()
    await virt.create(a_vm("one", a_disk("old"), phase=phases.RUNNING))
    await virt.create(a_vm("two", a_disk("old")))
    await virt.create(a_vm("three", a_disk("new")))
    assert await virt.edit("one", a_disk("new"))
    assert await virt.locks() == ["disk/acc/old"]
    assert not await virt.enter("two", phases.SCHEDULED)
    assert await virt.enter("three", phases.SCHEDULED)
    assert await virt.enter("one", phases.STOPPED)
    assert await virt.enter("two", phases.SCHEDULED)
    assert not await virt.enter("one", phases.SCHEDULED)
    assert (
        virt.refusal == 'PersistentVolumeClaim "new" is in use by virtual machine "three"; this virtual machine starts when that one is off'
    )
    assert await virt.enter("three", phases.STOPPED)
    assert await virt.enter("one", phases.SCHEDULED)


async def test_no_sequence_of_phases_and_edits_shares_a_disk() -> None:
    chance = random.Random(13)
    uses: tuple[Use, ...] = ("writes", "reads", "shares")
    every = sorted({*phases.WITH_POD, phases.STOPPED, phases.FAILED})
    for _ in range(20):
        virt, names = Virt(), [f"vm{number}" for number in range(4)]
        for name in names:
            claims = chance.sample(["a", "b", "c"], k=2)
            vm = a_vm(name, *(a_disk(claim, chance.choice(uses)) for claim in claims))
            if chance.random() < 0.3:
                with_files(vm, chance.choice("abc"))
            if chance.random() < 0.3:
                with_state(vm, chance.choice("abc"), chance.choice(["", "5d307ca9-b3ef-428c-8861-06e72d69f223"]))
            await virt.create(vm)
        of_guests: dict[str, Any] = {}
        for _ in range(30):
            name = chance.choice(names)
            if chance.random() < 0.3:
                await virt.edit(name, a_disk(chance.choice("abc"), chance.choice(uses)))
            else:
                await virt.enter(name, chance.choice(every))
            guests = [item.object for item in virt.items.values() if phases.phase_of(item.object) in phases.WITH_GUEST]
            of_guests = {
                each["metadata"]["name"]: of_guests.get(each["metadata"]["name"]) or copy.deepcopy(each["spec"]["domain"])
                for each in guests
            }
            assert [running.spec_of(each)["domain"] for each in guests] == list(of_guests.values())
            for position, one in enumerate(guests):
                for two in guests[position + 1 :]:
                    mine, theirs = (disk_uses.uses(running.spec_of(each)["domain"]) for each in (one, two))
                    assert not [claim for claim in mine if claim in theirs and disk_uses.clash(mine[claim], theirs[claim])]
                    domains = [(running.spec_of(each)["domain"], each["metadata"]["uid"]) for each in (one, two)]
                    held, others = (disk_uses.locks(*each) for each in domains)
                    pairs = [(ours.group, other.group) for ours in held for other in others if ours.what == other.what]
                    assert not [pair for pair in pairs if pair[0] != pair[1] or disk_uses.ALONE in pair]
        for name in names:
            await virt.remove(name)
        assert await virt.locks() == []


def on_node(name: str, path: str, node: str, *, namespace: str = "acc", read_only: bool = False) -> dict[str, Any]:
    disk = {"name": "file", "type": "HostDisk", "source": {"path": path}, **({"readOnly": True} if read_only else {})}
    vm = a_vm(name, disk, namespace=namespace)
    vm["status"]["nodeName"] = node
    return vm


async def test_host_file_is_exclusive_on_its_node_across_namespaces() -> None:
    virt = Virt()
    for vm in (
        on_node("one", "/var/vms/a", "n1"),
        on_node("two", "/var/vms/a", "n1", namespace="other"),
        on_node("three", "/var/vms/a", "n2"),
        on_node("four", "/var/vms/a/b", "n1"),
        on_node("five", "/var/vms/a", "n1"),
    ):
        await virt.create(vm)
    assert await virt.enter("one", phases.SCHEDULED)
    assert not await virt.enter("two", phases.SCHEDULED)
    assert (
        virt.refusal
        == "/var/vms/a of node n1 is in use by a virtual machine of another namespace; this virtual machine starts when that one is off"
    )
    assert not await virt.enter("five", phases.SCHEDULED)
    assert virt.refusal == '/var/vms/a of node n1 is in use by virtual machine "one"; this virtual machine starts when that one is off'
    assert await virt.enter("three", phases.SCHEDULED)
    assert await virt.enter("four", phases.SCHEDULED)
    assert await virt.enter("one", phases.STOPPED)
    assert await virt.enter("two", phases.SCHEDULED)


async def test_machines_that_only_read_a_file_of_a_node_share_it() -> None:
    virt = Virt()
    for name, read_only in (("one", True), ("two", True), ("three", False)):
        await virt.create(on_node(name, "/var/vms/a", "n1", read_only=read_only))
    assert await virt.enter("one", phases.SCHEDULED)
    assert await virt.enter("two", phases.SCHEDULED)
    assert not await virt.enter("three", phases.SCHEDULED)


def of_server(name: str, *, namespace: str = "acc", **said: Any) -> dict[str, Any]:
    disk = {"name": "nbd", "type": "NBD", "source": {"host": "a.example", "export": "e"}, **said}
    return a_vm(name, disk, namespace=namespace)


async def test_network_disk_is_exclusive_within_its_namespace() -> None:
    virt = Virt()
    for vm in (of_server("one"), of_server("two"), of_server("three", namespace="other"), of_server("four", namespace="other")):
        await virt.create(vm)
    assert await virt.enter("one", phases.SCHEDULED)
    assert not await virt.enter("two", phases.SCHEDULED)
    words = 'export e of a.example port 10809 is in use by virtual machine "one"; this virtual machine starts when that one is off'
    assert virt.refusal == words
    assert await virt.enter("three", phases.SCHEDULED)
    assert not await virt.enter("four", phases.SCHEDULED)
    assert await virt.enter("one", phases.STOPPED)
    assert await virt.enter("two", phases.SCHEDULED)
    for name in ("one", "two", "three", "four"):
        await virt.remove(name)
    assert await virt.locks() == []


@pytest.mark.parametrize("said", [{"readOnly": True}, {"shareable": True}], ids=str)
async def test_readers_or_sharers_of_a_network_disk_run_together(said: dict[str, Any]) -> None:
    virt = Virt()
    for vm in (of_server("one", **said), of_server("two", **said), of_server("three")):
        await virt.create(vm)
    assert await virt.enter("one", phases.SCHEDULED)
    assert await virt.enter("two", phases.SCHEDULED)
    assert not await virt.enter("three", phases.SCHEDULED)


async def test_running_guests_keep_a_shared_network_disk_after_upgrade() -> None:
    virt = Virt()
    for name in ("one", "two"):
        await written_by_a_version_that_knew_no_locks(virt, {**of_server(name), "status": {"phase": phases.RUNNING}})
    for phase in (phases.UNKNOWN, phases.RUNNING):
        assert await virt.enter("one", phase)
        assert await virt.enter("two", phase)
    assert await virt.enter("two", phases.STOPPED)
    assert not await virt.enter("two", phases.SCHEDULED)
    assert await virt.enter("one", phases.STOPPED)
    assert await virt.enter("two", phases.SCHEDULED)


async def test_own_stale_share_does_not_grant_exclusive_use() -> None:
    virt = Virt()
    await virt.create(a_vm("two", a_disk("data", "reads"), phase=phases.RUNNING))
    await virt.create(a_vm("one", a_disk("data")))
    left = f"{ROOT}/claims/kubevirt.io/disk/acc/data/reads/acc/one"
    await virt.storage.commit([], [Put(left, virt.items["one"].key.encode())])
    assert not await virt.enter("one", phases.SCHEDULED)
    assert await virt.locks() == ["disk/acc/data/reads/acc/two"]


async def test_stale_lock_of_a_machine_with_others_blocks_no_machine() -> None:
    virt = Virt()
    await virt.create(a_vm("one", a_disk("a"), a_disk("c"), phase=phases.RUNNING))
    await virt.storage.commit([], [Put(f"{ROOT}/claims/kubevirt.io/disk/acc/b", virt.items["one"].key.encode())])
    await virt.create(a_vm("two", a_disk("b")))
    assert await virt.enter("two", phases.SCHEDULED)


@pytest.mark.parametrize("said", [{"readOnly": True}, {"device": "cdrom"}, {"source": {"name": "data", "ephemeral": True}}], ids=str)
async def test_import_locks_its_claim_alone_from_its_record_on(said: dict[str, Any]) -> None:
    """The attachment pod writes, whatever the guest does."""
    virt, disk = Virt(), {**a_disk("data"), **said}
    disk["source"] = {**disk["source"], "import": {"http": {"url": "http://images/x"}}}
    drive = {"name": "data", "device": "cdrom"}
    before = (a_disk("own"), drive) if disk.get("device") == "cdrom" else (a_disk("own"),)
    await virt.create(a_vm("one", *before))
    await virt.create(a_vm("two", a_disk("data", "reads")))
    assert await virt.enter("one", phases.RUNNING)
    assert await virt.edit("one", a_disk("own"), disk)
    assert await virt.enter("two", phases.RUNNING)
    assert not await virt.record("one", "data")
    assert await virt.enter("two", phases.STOPPED)
    assert await virt.record("one", "data")
    assert "disk/acc/data" in await virt.locks()
    assert not await virt.enter("two", phases.RUNNING)


async def test_new_disk_is_locked_from_the_record_of_its_pod_on() -> None:
    virt = Virt()
    await virt.create(a_vm("one", a_disk("own")))
    await virt.create(a_vm("two", a_disk("data")))
    assert await virt.enter("one", phases.RUNNING)
    assert await virt.edit("one", a_disk("own"), a_disk("data"))
    assert await virt.locks() == ["disk/acc/own"]
    assert await virt.enter("two", phases.RUNNING)
    assert not await virt.record("one", "data")
    assert virt.refusal.startswith('PersistentVolumeClaim "data" is in use by virtual machine "two"')
    assert await virt.enter("two", phases.STOPPED)
    assert await virt.record("one", "data")
    assert await virt.locks() == ["disk/acc/data", "disk/acc/own"]
    assert not await virt.enter("two", phases.RUNNING)
    assert await virt.edit("one", a_disk("own"))
    assert await virt.enter("one", phases.RUNNING)
    assert await virt.locks() == ["disk/acc/data", "disk/acc/own"]
    assert await virt.enter("one", phases.STOPPED)
    assert await virt.locks() == []
