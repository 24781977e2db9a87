from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.client.rest import Client
from controller.manager import uninstall
from tests.fakes import rbac
from tests.fakes.kubeapi import FakeAPI

VMS = "/apis/kubevirt.io/v1alpha1/virtualmachines"
SETS = "/apis/kubevirt.io/v1alpha1/virtualmachinereplicasets"
MIGRATIONS = "/apis/kubevirt.io/v1alpha1/migrations"
PODS = "/api/v1/pods"


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[FakeAPI, Client]]:
    api = FakeAPI()
    api.authorize = rbac.authorizer("kubevirt-uninstall")
    async with api.serving() as config, Client(config, user_agent="test") as client:
        yield api, client
    assert api.forbidden == []


def machine(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", **more}}


async def shut_down(client: Client, timeout: float = 0.3) -> tuple[bool, str]:
    said: list[str] = []
    done = await uninstall.shut_down(client, timeout_seconds=timeout, say=said.append, poll_seconds=0.02)
    return done, "\n".join(said)


async def test_sets_and_migrations_go_before_their_machines() -> None:
    async with cluster() as (api, client):
        await api.put(SETS, machine("web"))
        await api.put(VMS, machine("a"))
        await api.put(VMS, machine("b"))
        await api.put(MIGRATIONS, machine("m"))

        done, _ = await shut_down(client, 5)

        assert done
        assert [path.rsplit("/", 1)[-1] for method, path, _ in api.writes if method == "DELETE"] == ["web", "m", "a", "b"]
        assert not api.all(VMS)


@pytest.mark.parametrize("collection", [SETS, MIGRATIONS])
async def test_no_machine_is_deleted_beside_its_set_or_migration(collection: str) -> None:
    async with cluster() as (api, client):
        await api.put(collection, machine("first", finalizers=["example.com/slow"]))
        await api.put(VMS, machine("a"))

        done, _ = await shut_down(client)

        assert not done
        assert [path for method, path, _ in api.writes if method == "DELETE"] == [f"{collection}/default/first"]


async def test_a_machine_made_again_since_the_look_stays() -> None:
    async with cluster() as (api, client):
        seen = await api.put(VMS, machine("a"))
        await api.remove(VMS, "default", "a")
        again = await api.put(VMS, machine("a"))

        await uninstall._delete(client, uninstall.Left((), (), (seen,), ()))

        assert api.all(VMS) == [again]


async def test_uninstall_waits_for_guest_pods_and_names_the_rest() -> None:
    async with cluster() as (api, client):
        await api.put(VMS, machine("stuck", finalizers=["kubevirt.io/virtual-machine"]))
        ours = {"kubevirt.io": "virt-launcher"}
        owner = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "name": "stuck", "uid": "u", "controller": True}
        pod = machine("virt-launcher-stuck-abcde", labels=ours, ownerReferences=[owner])
        container = {"name": "compute", "volumeMounts": [{"name": "run", "mountPath": "/run/kubevirt"}]}
        await api.put(PODS, {**pod, "spec": {"automountServiceAccountToken": False, "restartPolicy": "Never", "containers": [container]}})
        await api.put(PODS, machine("innocent"))
        await api.put(PODS, machine("labelled-by-a-tenant", labels=ours))

        done, said = await shut_down(client)

        assert not done
        assert "virtualmachine default/stuck" in said
        assert "pod default/virt-launcher-stuck-abcde" in said
        assert "innocent" not in said
        assert "tenant" not in said
        assert "--no-hooks" in said
        assert len([1 for method, _, _ in api.writes if method == "DELETE"]) == 1

        await api.remove(VMS, "default", "stuck")
        done, said = await shut_down(client)
        assert not done
        assert "0 virtual machines, 0 migrations, 1 pods of guests" in said


async def test_foreign_pod_with_our_label_holds_nothing_up() -> None:
    async with cluster() as (api, client):
        await api.put(PODS, machine("squatter", labels={"kubevirt.io": "virt-launcher"}))

        assert await shut_down(client) == (True, "all guests have ended")
    [looked] = [query for _, path, query in api.requests if path == PODS]
    assert looked["limit"] == "10"


async def test_an_api_that_refuses_is_told_and_ends_in_time() -> None:
    async with cluster() as (api, client):
        api.refusals = [errors.ServiceUnavailable("error trying to reach service")] * 200

        done, said = await shut_down(client)

        assert not done
        assert "error trying to reach service" in said


async def test_without_guests_it_is_over_at_once() -> None:
    async with cluster() as (_, client):
        assert await shut_down(client) == (True, "all guests have ended")
