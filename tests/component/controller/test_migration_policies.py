from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import web

from apiserver.apis.core.resources import NAMESPACES
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATION_POLICIES, MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.rest import Client
from tests.component.controller.test_controller import MIGRATIONS as PATH
from tests.component.controller.test_controller import PODS, VMS, Cluster, a_vm, working
from tests.component.controller.test_with_our_api import MIGRATION, VM, World
from tests.fakes.aggregating import AggregatingAPI
from tests.fakes.kubeapi import FakeAPI


def a_policy(name: str, selectors: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "MigrationPolicy",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


async def test_the_policy_that_chooses_the_machine_is_written_down(tmp_path: Path) -> None:
    api = AggregatingAPI()
    async with api.aggregating(tmp_path) as ours, working(api, "--no-leader-elect"), Client(ours, user_agent="test") as client:
        world = World(api, client, ours)
        for policy in (
            a_policy("all", {}, bandwidth="1Gi"),
            a_policy("team", {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ns"}}}, completionTimeoutPerGiB=7),
            a_policy("other", {"virtualMachineSelector": {"matchLabels": {"a": "b", "c": "d"}}}, allowPause=True),
        ):
            await client.create(MIGRATION_POLICIES, policy)
        await api.put(NAMESPACES.path(), {"metadata": {"name": "ns", "labels": {"kubernetes.io/metadata.name": "ns"}}})
        vm = await client.create(VIRTUAL_MACHINES, VM, "ns")
        wanted = names.launcher_pod_name("testvm", vm["metadata"]["uid"], 1)
        await world.until(lambda: api.get(PODS, "ns", wanted), "pod")
        await world.start_pod(api.get(PODS, "ns", wanted))
        assert await world.reported(await world.vm_phase("Scheduled"), "node1") == 200
        await world.vm_phase("Running")
        await client.create(MIGRATIONS, MIGRATION, "ns")
        found = await world.migration_phase("Scheduling")
        assert dig(found, "status", "policy") == "team"
        assert dig(found, "status", "options") == {
            "bandwidth": "0",
            "allowAutoConverge": False,
            "allowPause": False,
            "completionTimeoutSeconds": 7,
        }


class Before(FakeAPI):
    """A fake API of the previous version, which lacks MigrationPolicies."""

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.path == MIGRATION_POLICIES.path():
            raise errors.NotFound("the server could not find the requested resource")
        return await super()._serve(request)


async def test_migration_starts_before_policies_are_served() -> None:
    api = Before()
    async with working(api, "--no-leader-elect", "--migration-timeout-per-gib=9", "--migration-bandwidth=5Mi"):
        cluster = Cluster(api)
        await api.put(VMS, a_vm())
        await cluster.start_pod(await cluster.pod())
        await cluster.phase_is("Scheduled")
        await cluster.report_running()
        await api.put(PATH, {"metadata": {"name": "m", "namespace": "ns"}, "spec": {"selector": {"name": "testvm"}}})
        await api.edit(PATH, "ns", "m", lambda obj: obj["metadata"].update(finalizers=[names.MIGRATION_FINALIZER]))
        await cluster.until(lambda: dig(api.get(PATH, "ns", "m"), "status", "options"), "options")
        status = api.get(PATH, "ns", "m")["status"]
        assert (status["options"]["completionTimeoutSeconds"], status["options"]["bandwidth"]) == (9, "5Mi")
        assert "policy" not in status
