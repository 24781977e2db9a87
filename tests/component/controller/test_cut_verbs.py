"""virt-controller is killed at each write of each verb that it carries out; the next one ends in the same state.

A write is lost, or carried out without an answer. ``Rest`` plays the kubelet, virt-handler and virt-launcher.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import pytest
from aiohttp import web

from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import Object, dig, is_deleting, name_of, uid_of
from apiserver.apis.virt.lifecycle import managed_save, phases, power
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.saved_image import Image
from apiserver.registry.generic.strategy import Verb
from apiserver.registry.virt import verbs
from controller.reconcilers.pods import pod_state
from handler.reconcilers.guests import guest_status
from launcher.protocol import messages
from tests.component.controller.test_controller import CLAIMS, MIGRATIONS, PODS, VMS, Cluster, a_vm, working
from tests.component.controller.test_migrations import a_migration
from tests.fakes.kubeapi import FakeAPI, Key

ID: Final = "0b7c1a52-0000-4000-8000-000000000001"
UID: Final = "0b7c1a52-0000-4000-8000-000000000002"
STARTED: Final = messages.Status(1, messages.DomainStatus("ns_testvm", UID, "qemu", "running", "booted"))
FOLLOWS: Final = {phases.PREPARING_TARGET: phases.TARGET_READY, phases.TARGET_READY: phases.RUNNING, phases.RUNNING: phases.SUCCEEDED}
OURS: Final = (VMS, MIGRATIONS, PODS)


class CutAPI(FakeAPI):
    """Cuts write ``at`` of virt-controller, which is then dead, before (``is_lost``) or after its effect."""

    def __init__(self) -> None:
        super().__init__()
        self.at: int | None = None
        self.is_lost = False
        self.steps = 0
        self.killed = asyncio.Event()
        self.pods: dict[str, str] = {}

    async def _store(self, key: Key, obj: Object) -> Object:
        stored = await super()._store(key, obj)
        if key[0] == PODS:
            self.pods[uid_of(stored)] = name_of(stored)
        return stored

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path.replace("/namespaces/ns", "")
        if request.method == "GET" or not path.startswith(OURS):
            return await super()._serve(request)
        if self.killed.is_set():
            raise errors.ServiceUnavailable("virt-controller was killed")
        self.steps += self.at is not None
        if self.steps - 1 != self.at:
            return await super()._serve(request)
        self.killed.set()
        if not self.is_lost:
            await super()._serve(request)
        raise errors.ServiceUnavailable("virt-controller was killed")

    def begin_again(self) -> None:
        self.at = None
        self.killed.clear()
        self.requests.clear()

    def is_watched(self) -> bool:
        return any((path, query.get("watch")) == (VMS, "true") for _, path, query in self.requests)


class Rest:
    def __init__(self, cluster: Cluster, api: CutAPI) -> None:
        self.cluster, self.api = cluster, api
        self.starts_pods = True
        self.ends: dict[str, str] = {}

    async def play(self) -> None:
        seen: object = None
        while True:
            while seen != (now := (self.api.revision, self.starts_pods)):
                seen = now
                for pod in self.api.all(PODS):
                    await self._kubelet(pod)
                for vm in self.api.all(VMS):
                    await self._machine(vm)
                for migration in self.api.all(MIGRATIONS):
                    await self._migration(migration)
            await asyncio.sleep(0.002)

    async def _kubelet(self, pod: Object) -> None:
        is_target = names.MIGRATION_LABEL in pod["metadata"]["labels"]
        if pod_state.is_running(pod):
            is_over = uid_of(pod) in self.ends
            if is_over or (is_deleting(pod) and not self._is_assigned(pod)):
                await self.cluster.end_pod(pod, message=self.ends.get(uid_of(pod), "destroyed: no guest"))
        elif is_deleting(pod):
            await self.api.remove(PODS, "ns", name_of(pod))
        elif not pod_state.phase_of(pod) and self.starts_pods:
            running = [name_of(each) for each in self.api.all(PODS) if pod_state.is_running(each)]
            assert is_target or running == [], f"{name_of(pod)} is the second one"
            await self.cluster.start_pod(pod, "node2" if is_target else "node1")

    def _is_assigned(self, pod: Object) -> bool:
        status = self.cluster.vm()["status"]
        return status.get("podUID") == uid_of(pod) and status["phase"] in phases.OWNED_BY_HANDLER

    async def _machine(self, vm: Object) -> None:
        pod = next((each for each in self.api.all(PODS) if uid_of(each) == dig(vm, "status", "podUID")), None)
        if pod is None or not pod_state.is_running(pod):
            return
        if phases.phase_of(vm) == phases.SCHEDULED:
            await self._write(lambda obj: guest_status.running(obj, STARTED, None, datetime.now(UTC)))
        elif is_deleting(pod):
            await self._end(pod, messages.Ending("shutdown-requested", "the guest shut down on request"))
        elif operation := managed_save.suspending(vm):
            image = Image(operation["id"], 64 * "0", 1)
            await self._end(pod, messages.Ending("saved", str(image)), messages.OperationStatus(image.id, 1, "succeeded"))

    async def _end(self, pod: Object, ending: messages.Ending, *told: messages.OperationStatus) -> None:
        end = guest_status.end_of(ending)
        assert end is not None
        await self._write(lambda obj: guest_status.ended(obj, end, datetime.now(UTC), told))
        self.ends[uid_of(pod)] = f"{ending.kind}: {ending.message}"

    async def _write(self, status: Callable[[Object], Object]) -> None:
        await self.api.edit(VMS, "ns", "testvm", lambda obj: obj.update(status=status(obj)))

    async def _migration(self, migration: Object) -> None:
        phase, name = phases.phase_of(migration), name_of(migration)
        if phase not in FOLLOWS:
            return
        moment = datetime.now(UTC)
        status = phases.enter(migration["status"], FOLLOWS[phase], moment)
        if phase == phases.RUNNING:
            moved = {"nodeName": status["targetNode"], "podName": status["targetPod"], "podUID": status["targetPodUID"]}
            status["endTime"] = times.to_rfc3339(moment)
            moved["migration"] = {"name": name, "uid": uid_of(migration), "phase": phases.SUCCEEDED, "endTime": status["endTime"]}
            self.ends[status["sourcePodUID"]] = "migrated: the guest continues in another pod"
            await self.api.edit(VMS, "ns", "testvm", lambda obj: obj["status"].update(moved))
        await self.api.edit(MIGRATIONS, "ns", name, lambda obj: obj.update(status=status))

    def state(self) -> str:
        """Return machine, Migrations and pods as text, without what differs between two equal histories."""
        found = [deepcopy(each) for kind in OURS for each in self.api.all(kind)]
        for each in found:
            each["metadata"].pop("resourceVersion", None)
        text = re.sub(r"20\d\d-\d\d-\d\dT[\d:.]+Z", "", json.dumps(found, sort_keys=True, indent=1))
        for uid, name in self.api.pods.items():
            text = text.replace(uid, f"uid of {name}")
        return text


@dataclass(frozen=True)
class Case:
    is_done: Callable[[Cluster], bool]
    verb: str
    begins: str = phases.RUNNING
    """The machine's phase before the verb; empty: it was never started."""
    body: Mapping[str, Any] = field(default_factory=dict)
    saves_to: Mapping[str, Any] = field(default_factory=lambda: {"claimName": "memory"})


def attempt(cluster: Cluster) -> int:
    return power.current_attempt(cluster.vm())


def runs(number: int, cluster: Cluster) -> bool:
    return cluster.phase() == phases.RUNNING and attempt(cluster) == number


def is_off(phase: str, cluster: Cluster) -> bool:
    return cluster.phase() == phase and not cluster.api.all(PODS)


def has_moved(cluster: Cluster) -> bool:
    (found,) = cluster.api.all(MIGRATIONS)
    return phases.phase_of(found) == phases.SUCCEEDED and "finalizers" not in found["metadata"] and len(cluster.api.all(PODS)) == 1


def stays(cluster: Cluster) -> bool:
    return runs(1, cluster) and not cluster.api.all(MIGRATIONS) and len(cluster.api.all(PODS)) == 1


CASES: Final[Mapping[str, Case]] = {
    "start": Case(partial(runs, 1), "start", ""),
    "stop": Case(partial(is_off, phases.STOPPED), "stop"),
    "stop of a start": Case(partial(is_off, phases.STOPPED), "stop", phases.SCHEDULING),
    "poweroff": Case(partial(is_off, phases.STOPPED), "poweroff"),
    "restart": Case(partial(runs, 2), "restart"),
    "suspend": Case(partial(is_off, phases.SUSPENDED), "suspend"),
    "resume": Case(partial(runs, 2), "resume", phases.SUSPENDED),
    "suspend to the node's disk": Case(partial(is_off, phases.SUSPENDED), "suspend", saves_to={"nodeDisk": {}}),
    "resume from the node's disk": Case(partial(runs, 2), "resume", phases.SUSPENDED, saves_to={"nodeDisk": {}}),
    "discard": Case(partial(runs, 2), "start", phases.SUSPENDED, {"discardState": True}),
    "migrate": Case(has_moved, "migrate"),
    "cancelmigration": Case(stays, "cancelmigration"),
}


async def begin(cluster: Cluster, rest: Rest, case: Case) -> None:
    vm = a_vm(runStrategy="RerunOnFailure" if case.begins else "Halted", managedSave=case.saves_to)
    vm["metadata"]["uid"] = UID
    await cluster.api.put(CLAIMS, {"metadata": {"name": "memory", "namespace": "ns"}, "spec": {"accessModes": ["ReadWriteMany"]}})
    rest.starts_pods = case.begins != phases.SCHEDULING
    await cluster.api.put(VMS, vm)
    if case.begins == phases.SUSPENDED:
        await cluster.phase_is(phases.RUNNING)
        await call(cluster, "suspend", {"id": UID})
        await cluster.until(lambda: is_off(phases.SUSPENDED, cluster), "the suspension")
    elif case.begins:
        await cluster.phase_is(case.begins)
    if case.verb == "cancelmigration":
        rest.starts_pods = False
        await call(cluster, "migrate", {})
        await cluster.until(lambda: phases.phase_of(cluster.api.all(MIGRATIONS)[0]) == phases.SCHEDULING, "the Migration")
    await quiet(cluster)


async def quiet(cluster: Cluster) -> None:
    before = -1
    while before != cluster.api.revision:
        before = cluster.api.revision
        await asyncio.sleep(0.1)


async def call(cluster: Cluster, verb: str, body: Mapping[str, Any]) -> None:
    api, now = cluster.api, datetime.now(UTC)
    found = verbs.VERBS[verb]
    if isinstance(found, verbs.Migrate):
        made = found.make(cluster.vm(), dict(body), now)
        await api.put(MIGRATIONS, {**made, "metadata": {**a_migration("move")["metadata"], "uid": UID}})
    elif isinstance(found, verbs.CancelMigration):
        moment = {"deletionTimestamp": times.to_rfc3339(now)}
        await api.edit(MIGRATIONS, "ns", "move", lambda obj: obj["metadata"].update(moment))
    else:
        assert isinstance(found, Verb)
        await api.edit(VMS, "ns", "testvm", lambda obj: obj.update(found.apply(obj, dict(body), now)))


async def played(name: str, at: int | None, *, is_lost: bool = False) -> tuple[str, list[str]] | None:
    """Play a verb, cut at write ``at`` (None: never); return the end and the pods; None without such a write."""
    api, case = CutAPI(), CASES[name]
    cluster = Cluster(api)
    rest = Rest(cluster, api)

    async def apply() -> None:
        await call(cluster, case.verb, case.body if case.verb == "cancelmigration" else {"id": ID, **case.body})

    cut = Cut(cluster, api, rest, partial(begin, cluster, rest, case), apply, partial(case.is_done, cluster))
    return (rest.state(), [*api.pods.values()]) if await cut.play(at, is_lost=is_lost) else None


@dataclass(frozen=True)
class Cut:
    cluster: Cluster
    api: CutAPI
    rest: Rest
    begin: Callable[[], Awaitable[None]]
    change: Callable[[], Awaitable[None]]
    is_done: Callable[[], bool]

    async def play(self, at: int | None, *, is_lost: bool) -> bool:
        """Kill virt-controller at write ``at`` (None: never), before (``is_lost``) or after its effect; let the next one finish.

        Return False if there were fewer writes.
        """
        async with asyncio.TaskGroup() as tasks:
            playing = tasks.create_task(self.rest.play())
            async with working(self.api, "--no-leader-elect"):
                await self.begin()
                self.api.at, self.api.is_lost = at, is_lost
                await self.change()
                await self.cluster.until(lambda: self.api.killed.is_set() or self.is_done(), "the end, or the kill")
                if not self.api.killed.is_set():
                    await quiet(self.cluster)
            if was_killed := self.api.killed.is_set():
                self.api.begin_again()
                async with working(self.api, "--no-leader-elect"):
                    await self.cluster.until(self.api.is_watched, "the next virt-controller")
                    await self.cluster.until(self.is_done, "the end")
                    await quiet(self.cluster)
            playing.cancel()
        return was_killed or at is None


@pytest.mark.sample(4, "cuts of virt-controller")
@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "unanswered"])
@pytest.mark.parametrize("name", CASES)
async def test_next_virt_controller_finishes_a_verb(name: str, *, is_lost: bool) -> None:
    await every_cut_ends_alike(partial(played, name), is_lost=is_lost)


async def every_cut_ends_alike(play: Callable[..., Awaitable[object]], *, is_lost: bool) -> None:
    expected = await play(None)
    step = 0
    while (found := await play(step, is_lost=is_lost)) is not None:
        assert found == expected, step
        step += 1
    assert step >= 2


def test_each_verb_of_virt_controller_has_a_case() -> None:
    of_handler = {name for name, each in verbs.VERBS.items() if isinstance(each, verbs.OperationVerb | verbs.Pause | verbs.Unpause)}
    assert {each.verb for each in CASES.values()} == (verbs.VERBS.keys() - of_handler) | {"suspend"}
