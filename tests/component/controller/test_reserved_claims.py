"""Two running machines that get a disk on one claim, with the real virt-api and virt-controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, dig, is_deleting, name_of, uid_of
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import hot_plug
from apiserver.client.rest import Client
from tests.component.controller.test_controller import CLAIMS, PODS, working
from tests.component.controller.test_with_our_api import VM, World
from tests.fakes.aggregating import AggregatingAPI

DATA, FURTHER = ({"name": name, "type": "PersistentVolumeClaim", "source": {"name": name}} for name in ("data", "further"))
LONG_AGO: Final = "2026-01-01T00:00:00Z"


class Pair(World):
    """The machines ``one`` and ``two``, on a node each."""

    async def runs(self, name: str, node: str) -> None:
        vm = await self.client.create(VIRTUAL_MACHINES, {**VM, "metadata": {"name": name}}, "ns")
        pod = names.launcher_pod_name(name, vm["metadata"]["uid"], 1)
        await self.until(lambda: self.api.get(PODS, "ns", pod), "pod")
        await self.start_pod({"metadata": {"name": pod}}, node)
        vm = await self.eventually(VIRTUAL_MACHINES, name, lambda vm: dig(vm, "status", "phase") == phases.SCHEDULED)
        now = datetime.now(UTC)
        attempts = [{**each, "runningTime": times.to_rfc3339(now)} for each in vm["status"]["attempts"]]
        domain = {"state": "running", "liveChanges": list(hot_plug.KINDS)}
        status = phases.enter({**vm["status"], "attempts": attempts, "domain": domain}, phases.RUNNING, now)
        await self.client.patch(VIRTUAL_MACHINES, name, {"status": status}, "ns", subresource="status")

    async def edit(self, name: str, *disks: Object) -> None:
        await self.client.patch(VIRTUAL_MACHINES, name, {"spec": {"domain": {"devices": {"disks": list(disks)}}}}, "ns")

    async def waits(self, name: str, reason: str) -> Object:
        """Return the machine once its disk ``data`` waits for this reason."""
        return await self.eventually(VIRTUAL_MACHINES, name, lambda vm: (hot_plug.entry_of(vm, "data") or {}).get("reason") == reason)

    async def attachment(self, name: str) -> Object:
        vm = await self.client.get(VIRTUAL_MACHINES, name, "ns")
        (wanted,) = (hot_plug.pod_name(vm, each) for each in hot_plug.added(vm))
        found: Object = await self.until(lambda: self.api.get(PODS, "ns", wanted), "attachment pod")
        return found

    async def is_slow(self, pod: Object, node: str) -> None:
        def bind(obj: Object) -> None:
            obj["spec"]["nodeName"] = node
            obj["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": LONG_AGO}]}

        await self.api.edit(PODS, "ns", name_of(pod), bind)


@asynccontextmanager
async def pair(directory: Path) -> AsyncIterator[Pair]:
    api = AggregatingAPI()
    async with api.aggregating(directory) as ours, working(api, "--no-leader-elect"), Client(ours, user_agent="test") as client:
        for claim in ("data", "further"):
            await api.put(CLAIMS, {"metadata": {"name": claim, "namespace": "ns"}, "spec": {"volumeMode": "Filesystem"}})
        found = Pair(api, client, ours)
        for name, node in (("one", "node1"), ("two", "node2")):
            await found.runs(name, node)
        yield found


def reserved(vm: Object) -> Any:
    return dig(vm, "status", "running", "reservedClaims")


async def test_slow_pod_keeps_the_claim_until_it_runs(tmp_path: Path) -> None:
    """Otherwise two machines would take the claim from each other each minute, and neither would get the disk."""
    async with pair(tmp_path) as found:
        await found.edit("one", DATA)
        pod = await found.attachment("one")
        await found.edit("two", DATA)
        await found.waits("two", "DiskInUse")
        await found.is_slow(pod, "node1")
        await found.waits("one", "ContainerCreating")

        await found.edit("two", DATA, FURTHER)
        vm = await found.eventually(VIRTUAL_MACHINES, "two", lambda vm: hot_plug.entry_of(vm, "further"))
        assert (reserved(vm), (hot_plug.entry_of(vm, "data") or {})["reason"]) == (["further"], "DiskInUse")
        assert reserved(await found.waits("one", "ContainerCreating")) == ["data"]
        assert not is_deleting(await found.attachment("one"))

        await found.start_pod(pod, "node1")
        volume = {"attachPodName": name_of(pod), "attachPodUID": uid_of(pod)}
        await found.eventually(VIRTUAL_MACHINES, "one", lambda vm: dig(hot_plug.entry_of(vm, "data"), "hotplugVolume") == volume)
        assert "in use by virtual machine one" in (hot_plug.entry_of(await found.waits("two", "DiskInUse"), "data") or {})["message"]
