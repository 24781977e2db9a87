from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver.apis.meta.objects import name_of, uid_of
from apiserver.apis.virt.places import names
from tests.component.controller.test_controller import MIGRATIONS, NODES, PODS, VMS, Cluster, a_vm, working
from tests.fakes.kubeapi import FakeAPI
from tests.unit.controller.reconcilers.processors import CASCADELAKE, MILAN, ROME, labels_of_processor

ROME_V2 = {names.CPU_MODEL_LABELS + "EPYC-Rome-v2", *(names.CPU_FEATURE_LABELS + each for each in ("amd-ssbd", "amd-stibp", "ibpb"))}


class Pool(Cluster):
    async def has(self, node: str, processor: tuple[str, tuple[str, ...], tuple[str, ...]]) -> None:
        def label(obj: dict[str, Any]) -> None:
            obj["metadata"]["labels"] = {"kubernetes.io/hostname": node, **labels_of_processor(*processor)}
            obj["status"]["allocatable"] = {names.KVM_RESOURCE: "1k"}

        await self.api.edit(NODES, "", node, label)

    async def restarted(self, wanted: str) -> dict[str, Any]:

        async def model() -> str:
            await self.until(lambda: self.vm()["status"].get("podUID"), "a start")
            return str(self.vm()["status"].get("cpu", {}).get("model"))

        await self.api.put(VMS, a_vm())
        while await model() != wanted:
            await self.api.remove(VMS, "ns", "testvm")
            for each in self.api.all(PODS):
                await self.api.remove(PODS, "ns", name_of(each))
            await self.api.put(VMS, a_vm())
        return await self.pod()


@pytest.fixture
async def pool(api: FakeAPI) -> AsyncIterator[Pool]:
    async with working(api, "--no-leader-elect"):
        pool = Pool(api)
        await pool.has("node1", ROME)
        await pool.has("node2", MILAN)
        yield pool


@pytest.mark.parametrize("model", ["EPYC-Rome-v2", ""])
async def test_a_guest_moves_to_whatever_has_what_was_chosen_for_it(api: FakeAPI, pool: Pool, model: str) -> None:
    """Its ``model``, or the whole processor if that is empty (an older virt-handler)."""
    pod = await pool.restarted("EPYC-Rome-v2")
    assert set(pod["spec"]["nodeSelector"]) == ROME_V2
    await pool.start_pod(pod)
    await pool.phase_is("Scheduled")
    await pool.report_running()
    await api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(domain={"type": "kvm", "cpuModel": model}))
    await pool.has("node2", CASCADELAKE)

    made = await api.put(MIGRATIONS, {"metadata": {"name": "m", "namespace": "ns"}, "spec": {"selector": {"name": "testvm"}}})
    await api.edit(MIGRATIONS, "ns", "m", lambda obj: obj["metadata"].update(finalizers=[names.MIGRATION_FINALIZER]))
    target = await pool.until(lambda: api.get(PODS, "ns", names.target_pod_name("testvm", made["metadata"]["uid"])), "target pod")
    whole = {each for each in labels_of_processor(*ROME) if each.startswith((names.HOST_MODEL_LABELS, names.CPU_FEATURE_LABELS))}
    assert set(target["spec"]["nodeSelector"]) == (ROME_V2 if model else whole)
    assert pool.vm()["status"]["cpu"]["model"] == "EPYC-Rome-v2"


async def test_pod_of_an_interrupted_start_is_replaced_for_another_cpu(api: FakeAPI, pool: Pool) -> None:
    left = await pool.restarted("EPYC-Rome-v2")
    await pool.has("node1", MILAN)

    def posts() -> int:
        return len([path for method, path, _ in api.writes if method == "POST" and "pods" in path])

    made = posts()

    def forget(obj: dict[str, Any]) -> None:
        obj.pop("status", None)

    await api.edit(VMS, "ns", "testvm", forget)
    await pool.until(lambda: pool.vm().get("status", {}).get("podUID"), "a start")
    while pool.vm()["status"]["cpu"]["model"] != "EPYC-Milan":
        assert pool.vm()["status"]["podUID"] == uid_of(left)
        made = posts()
        await api.edit(VMS, "ns", "testvm", forget)
        await pool.until(lambda: pool.vm().get("status", {}).get("podUID"), "a start")
    (pod,) = api.all(PODS)
    assert uid_of(pod) == pool.vm()["status"]["podUID"] != uid_of(left)
    assert names.CPU_MODEL_LABELS + "EPYC-Milan" in pod["spec"]["nodeSelector"]
    assert len([path for method, path, _ in api.writes if method == "DELETE"]) == 1
    assert posts() - made <= 2


async def test_why_nothing_was_chosen_is_in_the_status(api: FakeAPI, pool: Pool) -> None:
    await pool.has("node2", CASCADELAKE)
    pod = await pool.restarted("host-passthrough")
    assert "nodeSelector" not in pod["spec"]
    assert pool.vm()["status"]["cpu"]["message"].startswith("the machine may run on nodes of AMD and Intel")
    assert pod["spec"]["containers"][0]["resources"]["limits"][names.KVM_RESOURCE] == "1"
