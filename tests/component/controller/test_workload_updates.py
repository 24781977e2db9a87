from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import condition, dig, labels_of, name_of
from apiserver.apis.virt.places import names
from controller.reconcilers.settings import Times
from tests.component.controller.test_controller import MIGRATIONS, PODS, VMS, Cluster, a_vm, working
from tests.fakes.kubeapi import FakeAPI

QUICK = "--workload-update-batch-interval=300ms"
OFTEN = Times(updates=0.05)
STUCK = {"type": "Migratable", "status": "False", "reason": "NotMigratable", "message": "it has a host device"}


class Evicting(FakeAPI):
    def __init__(self) -> None:
        super().__init__()
        self.evicted: list[str] = []
        self.uids: list[Any] = []
        self.refusal: errors.StatusError | None = None
        self.failure: dict[str, Any] | None = None
        """The answer to evictions, with HTTP's success code; None: a Success."""

    async def _create(self, collection: str, namespace: str, obj: dict[str, Any]) -> dict[str, Any]:
        if obj.get("kind") != "Eviction":
            return await super()._create(collection, namespace, obj)
        assert collection == PODS
        self.evicted.append(name_of(obj))
        self.uids.append(dig(obj, "deleteOptions", "preconditions", "uid"))
        if self.refusal is not None:
            raise self.refusal
        if self.failure is not None:
            return self.failure
        return {"kind": "Status", "status": "Success"}


def is_scheduled(cluster: Cluster, name: str) -> bool:
    return cluster.phase(name) == "Scheduled"


async def started(cluster: Cluster, *machines: str, conditions: tuple[dict[str, Any], ...] = ()) -> None:
    for name in machines:
        await cluster.api.put(VMS, a_vm(name))
        pod = await cluster.pod(name=name)
        await cluster.start_pod(pod)
        await cluster.until(partial(is_scheduled, cluster, name), f"{name} Scheduled")
        await cluster.report_running(name)
        if conditions:
            await cluster.api.edit(VMS, "ns", name, lambda obj: obj["status"]["conditions"].extend(conditions))


async def age(cluster: Cluster, image: str = "launcher:before") -> None:
    for pod in cluster.api.all(PODS):
        await cluster.api.edit(PODS, "ns", name_of(pod), lambda obj: obj["spec"]["containers"][0].update(image=image))


def outdated(cluster: Cluster, name: str = "testvm") -> Mapping[str, Any] | None:
    return condition(dig(cluster.vm(name), "status", "conditions"), "LauncherOutdated")


def moved(api: FakeAPI) -> list[str]:
    return sorted(each["spec"]["selector"]["name"] for each in api.all(MIGRATIONS))


async def test_outdated_pod_is_reported_and_cleared(api: FakeAPI) -> None:
    async with working(api, "--no-leader-elect", "--workload-update-strategy=None"):
        cluster = Cluster(api)
        await started(cluster, "testvm")
        assert outdated(cluster) is None
        await age(cluster)
        found = await cluster.until(lambda: outdated(cluster), "LauncherOutdated")
        assert (found["status"], found["reason"]) == ("True", "Stays")
        assert "launcher:before" in found["message"]
        assert "launcher:test" in found["message"]
        await asyncio.sleep(0.2)
        assert moved(api) == []
        await age(cluster, "launcher:test")
        await cluster.until(lambda: outdated(cluster) is None, "end of LauncherOutdated")


async def test_guests_are_moved_a_batch_at_a_time(api: FakeAPI) -> None:
    async with working(api, "--no-leader-elect", QUICK, "--workload-update-batch-size=2", "--migrations-per-node=9", times=OFTEN):
        cluster = Cluster(api)
        await started(cluster, "a", "b", "c")
        await age(cluster)
        await cluster.until(lambda: len(moved(api)) == 2, "the first batch")
        first = moved(api)
        made = api.all(MIGRATIONS)[0]
        assert made["spec"]["priority"] == -100
        assert names.WORKLOAD_UPDATE_LABEL in labels_of(made)
        target = await cluster.until(
            lambda: [each for each in api.all(PODS) if labels_of(each).get(names.MIGRATION_LABEL) == made["metadata"]["uid"]], "target"
        )
        assert target[0]["spec"]["containers"][0]["image"] == "launcher:test"
        await cluster.until(lambda: all(each["status"]["targetPod"] for each in api.all(MIGRATIONS)), "both targets")
        await asyncio.sleep(0.6)
        assert moved(api) == first
        for each in api.all(MIGRATIONS):
            await api.edit(
                MIGRATIONS, "ns", name_of(each), lambda obj: obj["status"].update(phase="Failed", endTime="2026-01-01T00:00:00Z")
            )
        await cluster.until(lambda: "c" in moved(api), "the next batch")


async def test_unmigratable_guest_is_evicted_if_the_operator_says_so() -> None:
    api = Evicting()
    async with working(api, "--no-leader-elect", QUICK, "--workload-update-strategy=Evict", times=OFTEN):
        judged = api.authorize
        assert judged is not None
        api.authorize = lambda method, path, query: path.endswith("/eviction") or judged(method, path, query)
        cluster = Cluster(api)
        await started(cluster, "testvm", conditions=(STUCK,))
        await age(cluster)
        pod = await cluster.pod()
        await cluster.until(lambda: api.evicted, "eviction")
        await asyncio.sleep(0.3)
        assert (api.evicted, api.uids) == ([name_of(pod)], [pod["metadata"]["uid"]])
        assert (outdated(cluster) or {})["reason"] == "WillBeEvicted"
        assert moved(api) == []


TWO_BUDGETS = {"kind": "Status", "status": "Failure", "code": 500, "message": "This pod has more than one PodDisruptionBudget"}


@pytest.mark.parametrize(
    ("refusal", "failure"),
    [
        (errors.TooManyRequests("the budget says no"), None),
        (errors.InternalError("somebody's webhook failed"), None),
        (None, TWO_BUDGETS),
    ],
    ids=["a budget", "a webhook", "two budgets"],
)
async def test_refused_eviction_is_reported_and_delays_no_other(refusal: errors.StatusError | None, failure: dict[str, Any] | None) -> None:
    api = Evicting()
    api.refusal, api.failure = refusal, failure
    async with working(api, "--no-leader-elect", QUICK, "--workload-update-strategy=Evict", times=OFTEN):
        judged = api.authorize
        assert judged is not None
        api.authorize = lambda method, path, query: path.endswith("/eviction") or judged(method, path, query)
        cluster = Cluster(api)
        await started(cluster, "a", "b", conditions=(STUCK,))
        await age(cluster)
        await cluster.until(lambda: cluster.events().count("FailedWorkloadUpdate") == 2, "an Event of each machine")
        await asyncio.sleep(0.3)
        assert len(api.evicted) == len(set(api.evicted)) == 2


async def test_migration_refused_by_quota_is_reported_and_skipped(api: FakeAPI) -> None:

    def admit(collection: str, obj: dict[str, Any]) -> None:
        if collection == MIGRATIONS and dig(obj, "spec", "selector", "name") == "a":
            raise errors.Forbidden("exceeded quota: count/migrations.kubevirt.io")

    async with working(api, "--no-leader-elect", QUICK, "--workload-update-batch-size=1", times=OFTEN):
        cluster = Cluster(api)
        await started(cluster, "a", "b")
        api.admit = admit
        await age(cluster)
        await cluster.until(lambda: moved(api) == ["b"], "the migration of the other one")
        await cluster.until(lambda: "FailedWorkloadUpdate" in cluster.events(), "Event")


async def test_deleted_upgrade_migration_causes_a_pause(api: FakeAPI) -> None:
    async with working(api, "--no-leader-elect", QUICK, "--workload-update-batch-size=1", times=OFTEN):
        cluster = Cluster(api)
        await started(cluster, "a", "b")
        await age(cluster)
        await cluster.until(lambda: moved(api) == ["a"], "its migration")
        (made,) = api.all(MIGRATIONS)
        await api.edit(MIGRATIONS, "ns", name_of(made), lambda obj: obj["metadata"].update(ownerReferences=[], finalizers=[]))
        await api.remove(MIGRATIONS, "ns", name_of(made))
        await cluster.until(lambda: moved(api) == ["b"], "the migration of the other one")


async def test_unsound_machine_delays_no_other_upgrade(api: FakeAPI) -> None:
    async with working(api, "--no-leader-elect", QUICK, times=OFTEN):
        cluster = Cluster(api)
        spoiled = {"phase": "Running", "attempts": 7, "conditions": [{"type": "LauncherOutdated", "status": "True"}]}
        await api.put(VMS, {**a_vm("a"), "status": spoiled})
        await api.put(VMS, {**a_vm("b"), "status": {"conditions": 0.5}})
        await started(cluster, "c")
        await age(cluster)
        await cluster.until(lambda: moved(api) == ["c"], "the migration of the sound one")
