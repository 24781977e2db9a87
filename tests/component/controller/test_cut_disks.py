"""virt-controller is killed at each write of a change of a running guest's disks; the next one ends in the same state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import Final

import pytest

from apiserver.apis.meta.objects import Object, dig, is_deleting, name_of
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.spec import hot_plug, running
from controller.reconcilers.pods import pod_state
from tests.component.controller import test_cut_verbs as verbs
from tests.component.controller.test_controller import CLAIMS, PODS, VMS, Cluster, a_vm

CLAIM: Final = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
IMPORTED: Final = {**CLAIM, "source": {"name": "data", "import": {"http": {"url": "http://images/x", "secretRef": {"name": "login"}}}}}
BLANK: Final = {"name": "data", "type": "EmptyDisk", "source": {"size": "1Mi"}}
DRIVE: Final = {"name": "data", "device": "cdrom"}
OTHER: Final = {**DRIVE, **CLAIM, "source": {"name": "other"}}
CASES: Final[Mapping[str, tuple[Object | None, Object | None]]] = {
    "attach": (None, CLAIM),
    "detach": (CLAIM, None),
    "attach a block claim": (None, {**CLAIM, "source": {"name": "block"}}),
    "attach an import": (None, IMPORTED),
    "attach an overlay": (None, BLANK),
    "detach an overlay": (BLANK, None),
    "insert": (DRIVE, {**DRIVE, **CLAIM}),
    "eject": ({**DRIVE, **CLAIM}, DRIVE),
    "another medium": ({**DRIVE, **CLAIM}, OTHER),
}
SUFFIX: Final = re.compile("-volume-[a-z2-7]{5}")
"""A digest with the random uid of the guest's pod."""


class Rest(verbs.Rest):
    async def _kubelet(self, pod: Object) -> None:
        if "-volume-" not in name_of(pod):
            await super()._kubelet(pod)
            await self._resize(pod)
        elif is_deleting(pod):
            await (self.cluster.end_pod(pod) if pod_state.is_running(pod) else self.api.remove(PODS, "ns", name_of(pod)))
        elif not pod_state.phase_of(pod):
            await self.cluster.start_pod(pod)

    async def _resize(self, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        has = dig(pod, "status", "containerStatuses") or ()
        if not [
            each for each in has if "running" in each["state"] and dig(each, "resources", "limits") != container["resources"]["limits"]
        ]:
            return

        def take(obj: Object) -> None:
            obj["status"]["containerStatuses"][0]["resources"] = deepcopy(container["resources"])

        await self.api.edit(PODS, "ns", name_of(pod), take)

    async def _machine(self, vm: Object) -> None:
        await super()._machine(vm)
        changed = deepcopy(self.cluster.vm())
        if phases.phase_of(changed) == phases.RUNNING:
            change(changed)
            if changed != self.cluster.vm():
                await self.api.edit(VMS, "ns", "testvm", change)


def change(vm: Object) -> None:
    vm["status"]["domain"]["liveChanges"] = list(hot_plug.KINDS)
    if running.RUNNING in vm["status"]:
        hot_plug.record(vm)
    if gone := [str(each["name"]) for each in hot_plug.removed(vm)]:
        hot_plug.take(vm, gone)


async def edit(cluster: Cluster, disk: Object | None) -> None:
    def apply(vm: Object) -> None:
        old = deepcopy(vm)
        vm["spec"]["domain"]["devices"] = {"disks": [disk] if disk is not None else []}
        running.note_edit(vm, old, has_guest=True)

    await cluster.api.edit(VMS, "ns", "testvm", apply)


def is_done(cluster: Cluster, expected: Object | None) -> bool:
    has_content = expected is not None and (expected.get("device") != "cdrom" or "source" in expected)
    attached = [name_of(each) for each in cluster.api.all(PODS) if "-volume-" in name_of(each) and pod_state.is_running(each)]
    entries = hot_plug.entries(cluster.vm())
    recorded = [dig(each, "hotplugVolume", "attachPodName") for each in entries]
    return running.RUNNING not in cluster.vm()["status"] and attached == recorded and len(attached) == has_content


async def begin(cluster: Cluster, before: Object | None) -> None:
    modes = {"accessModes": ["ReadWriteMany"]}
    for name, mode in (("data", "Filesystem"), ("other", "Filesystem"), ("block", "Block")):
        await cluster.api.put(CLAIMS, {"metadata": {"name": name, "namespace": "ns"}, "spec": {**modes, "volumeMode": mode}})
    vm = a_vm()
    vm["metadata"]["uid"] = verbs.UID
    vm["spec"]["domain"]["devices"] = {"disks": [DRIVE] if before is not None and before.get("device") == "cdrom" else []}
    await cluster.api.put(VMS, vm)
    await cluster.phase_is(phases.RUNNING)
    await verbs.quiet(cluster)
    await edit(cluster, before)
    await cluster.until(lambda: is_done(cluster, before), "the state before")
    await verbs.quiet(cluster)


async def played(name: str, at: int | None, *, is_lost: bool = False) -> tuple[str, str] | None:
    """Play a change, cut at write ``at`` (None: never); return the end and the pods; None without such a write."""
    api, (before, after) = verbs.CutAPI(), CASES[name]
    cluster = Cluster(api)
    rest = Rest(cluster, api)
    cut = verbs.Cut(cluster, api, rest, partial(begin, cluster, before), partial(edit, cluster, after), partial(is_done, cluster, after))
    if not await cut.play(at, is_lost=is_lost):
        return None
    state, pods = (SUFFIX.sub("-volume", each) for each in (rest.state(), " ".join(api.pods.values())))
    return state, pods


@pytest.mark.sample(6, "cuts of virt-controller at disks")
@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "unanswered"])
@pytest.mark.parametrize("name", CASES)
async def test_next_virt_controller_finishes_a_change(name: str, *, is_lost: bool) -> None:
    await verbs.every_cut_ends_alike(partial(played, name), is_lost=is_lost)
