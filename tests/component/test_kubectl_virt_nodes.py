from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from apiserver.apis.meta import errors, times
from apiserver.kubectl import acting, chosen_node, commands, fencing, node_list
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure
from apiserver.kubectl.migrations import Waiting
from tests.fakes.kubeapi import FakeAPI

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/leases"
EVENTS = "/api/v1/events"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
VMS = "/apis/kubevirt.io/v1alpha1/virtualmachines"


@pytest.fixture
async def api() -> FakeAPI:
    api = FakeAPI()
    for name, ready in (("node1", "True"), ("node2", "Unknown")):
        conditions = [{"type": "Ready", "status": ready}]
        await api.put(NODES, {"metadata": {"name": name}, "spec": {}, "status": {"conditions": conditions}})
        await renew(api, "kube-node-lease", name)
        await renew(api, "kubevirt-node-lease", f"virt-handler-{name}", old=name == "node2")
    annotations = {"kubevirt.io/node-lease-namespace": "kubevirt-node-lease"}
    await api.put(API_SERVICES, {"metadata": {"name": "v1alpha1.kubevirt.io", "annotations": annotations}})
    await api.put(VMS, {"metadata": {"name": "web", "namespace": "ns"}, "status": {"nodeName": "node2"}})
    return api


@pytest.fixture
async def access(api: FakeAPI) -> AsyncIterator[Access]:
    async with api.serving() as config:
        yield Access(server=config.server, namespace="default")


async def renew(api: FakeAPI, namespace: str, name: str, *, old: bool = False) -> None:
    labels = {"kubevirt.io": "virt-handler"} if name.startswith("virt-handler-") else {}
    renewed = "2026-01-01T00:00:00.000000Z" if old else times.to_rfc3339_micro(datetime.now(UTC))
    await api.put(LEASES, {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {"renewTime": renewed}})


def taints(api: FakeAPI, node: str = "node2") -> list[Any]:
    return [each["key"] for each in api.get(NODES, "", node)["spec"].get("taints") or ()]


def events(api: FakeAPI) -> list[tuple[str, str, str]]:
    return [(each["involvedObject"]["name"], each["reason"], each["message"]) for each in api.all(EVENTS)]


async def test_nodes_are_listed_with_their_state(access: Access) -> None:
    assert [line.split()[:3] for line in (await node_list.show(access)).splitlines()] == [
        ["NAME", "STATE", "MACHINES"],
        ["node1", "Ready", "0"],
        ["node2", "Unreachable", "1"],
    ]


async def test_a_silent_node_is_fenced_and_repaired(api: FakeAPI, access: Access, capsys: pytest.CaptureFixture[str]) -> None:
    said = await fencing.fence(access, "node2", lambda _: "node2\n", watch_seconds=0)
    assert "kubectl virt unfence node2" in said
    assert "It had 1 virtual machines: ns/web." in capsys.readouterr().err
    assert taints(api) == ["node.kubernetes.io/out-of-service"]
    assert events(api) == [("node2", "NodeFenced", "system:admin states that the node is off")]
    assert "already" in await fencing.fence(access, "node2", None, watch_seconds=0)
    await fencing.unfence(access, "node2")
    assert taints(api) == []
    assert sorted(reason for _, reason, _ in events(api)) == ["NodeFenced", "NodeUnfenced"]
    assert "not fenced" in await fencing.unfence(access, "node2")


async def test_a_node_that_reports_is_not_called_off(api: FakeAPI, access: Access) -> None:
    with pytest.raises(Failure, match="Ready is True"):
        await fencing.fence(access, "node1", None, watch_seconds=0)
    with pytest.raises(Failure, match="not found"):
        await fencing.fence(access, "node9", None, watch_seconds=0)
    with pytest.raises(Failure, match="the typed name is another"):
        await fencing.fence(access, "node2", lambda _: "node1", watch_seconds=0)
    assert taints(api, "node1") == taints(api, "node2") == []


@pytest.mark.parametrize(("namespace", "name"), [("kube-node-lease", "node2"), ("kubevirt-node-lease", "virt-handler-node2")])
async def test_a_renewed_lease_stops_it(api: FakeAPI, access: Access, namespace: str, name: str) -> None:
    async def later() -> None:
        await asyncio.sleep(0.2)
        await renew(api, namespace, name)

    async with asyncio.TaskGroup() as group:
        group.create_task(later())
        with pytest.raises(Failure, match=f"Lease {namespace}/{name} was renewed just now"):
            await fencing.fence(access, "node2", None, watch_seconds=0.6)
    assert taints(api) == []


async def renewed_meanwhile(api: FakeAPI, access: Access, namespace: str) -> str:
    def answer(_: str) -> str:
        lease = api.get(LEASES, namespace, "virt-handler-node2")
        lease["spec"]["renewTime"] = times.to_rfc3339_micro(datetime.now(UTC))
        return "node2"

    return await fencing.fence(access, "node2", answer, watch_seconds=0)


@pytest.mark.parametrize("namespace", ["a-tenant", "z-tenant"])
async def test_leases_of_tenants_do_not_count(api: FakeAPI, access: Access, namespace: str) -> None:
    await renew(api, namespace, "virt-handler-node1", old=True)
    await renew(api, namespace, "virt-handler-node2")
    assert [line.split()[1] for line in (await node_list.show(access)).splitlines()] == ["STATE", "Ready", "Unreachable"]
    with pytest.raises(Failure, match="Lease kubevirt-node-lease/virt-handler-node2 was renewed"):
        await renewed_meanwhile(api, access, "kubevirt-node-lease")
    assert taints(api) == []
    assert "node2 fenced" in await renewed_meanwhile(api, access, namespace)


@pytest.mark.parametrize("namespace", ["a-tenant", "z-tenant"])
@pytest.mark.parametrize("reason", ["chart of an older version", "no right"])
async def test_without_a_known_namespace_every_lease_counts(api: FakeAPI, access: Access, namespace: str, reason: str) -> None:
    if reason == "no right":
        api.authorize = lambda _, path, __: not path.startswith(API_SERVICES)
    else:
        await api.edit(API_SERVICES, "", "v1alpha1.kubevirt.io", lambda found: found["metadata"].update(annotations={}))
    await renew(api, namespace, "virt-handler-node1", old=True)
    await renew(api, namespace, "virt-handler-node2", old=True)
    assert [line.split()[1] for line in (await node_list.show(access)).splitlines()] == ["STATE", "Ready", "Unreachable"]
    for each in (namespace, "kubevirt-node-lease"):
        with pytest.raises(Failure, match=f"Lease {each}/virt-handler-node2 was renewed"):
            await renewed_meanwhile(api, access, each)
    assert taints(api) == []


async def test_a_node_that_returns_during_the_question_is_kept(api: FakeAPI, access: Access) -> None:
    def answer(_: str) -> str:
        api.get(NODES, "", "node2")["status"]["conditions"][0]["status"] = "True"
        return "node2"

    with pytest.raises(Failure, match="Ready is True"):
        await fencing.fence(access, "node2", answer, watch_seconds=0)
    assert taints(api) == []


async def test_a_node_that_changes_before_the_write_is_kept(api: FakeAPI, access: Access) -> None:
    """The write has the judged Node's resource version."""
    refused = False

    def authorize(method: str, path: str, _: object) -> bool:
        nonlocal refused
        if method == "PUT" and path == f"{NODES}/node2":
            api.get(NODES, "", "node2")["metadata"]["resourceVersion"] = "999"
            refused = True
        return True

    api.authorize = authorize
    with pytest.raises(Failure, match="changed meanwhile"):
        await fencing.fence(access, "node2", None, watch_seconds=0)
    assert refused
    assert taints(api) == []


async def test_a_missing_right_to_create_events_is_a_warning(api: FakeAPI, access: Access, capsys: pytest.CaptureFixture[str]) -> None:
    api.authorize = lambda method, path, _: not (method == "POST" and "/events" in path)
    await fencing.fence(access, "node2", None, watch_seconds=0)
    assert "Warning: Error from server (Forbidden): cannot create an Event" in capsys.readouterr().err
    assert taints(api) == ["node.kubernetes.io/out-of-service"]


async def test_an_outage_of_virt_api_hides_only_the_machines(api: FakeAPI, access: Access, capsys: pytest.CaptureFixture[str]) -> None:
    def authorize(_: str, path: str, __: object) -> bool:
        if path.startswith("/apis/kubevirt.io"):
            raise errors.ServiceUnavailable("no endpoints")
        return True

    api.authorize = authorize
    assert [line.split()[:3] for line in (await node_list.show(access)).splitlines()][2] == ["node2", "Unreachable", "<none>"]
    await fencing.fence(access, "node2", None, watch_seconds=0)
    said = capsys.readouterr().err
    assert "Warning: Error from server (ServiceUnavailable): cannot list the virtual machines" in said
    assert "Its virtual machines are unknown." in said
    assert taints(api) == ["node.kubernetes.io/out-of-service"]


async def test_a_missing_right_to_nodes_is_told(api: FakeAPI, access: Access) -> None:
    api.refusals.append(errors.Forbidden("no"))
    with pytest.raises(Failure, match="cannot get node node2"):
        await fencing.fence(access, "node2", None, watch_seconds=0)


@pytest.mark.parametrize(("node", "warned"), [("node1", False), ("node9", True)])
async def test_choosing_an_unknown_node_warns(
    api: FakeAPI, access: Access, capsys: pytest.CaptureFixture[str], node: str, *, warned: bool
) -> None:
    await api.put(NODES, {"metadata": {"name": "node1", "labels": {"kubernetes.io/hostname": "node1"}}})
    await chosen_node.warn(access, node)
    line = f"Warning: no node has the label kubernetes.io/hostname={node}: the guest waits for one. kubectl virt nodes lists all\n"
    assert capsys.readouterr().err == (line if warned else "")


@pytest.mark.parametrize("answer", [web.json_response({}), errors.Conflict("already on")])
async def test_only_an_accepted_start_warns_about_its_node(
    api: FakeAPI, access: Access, capsys: pytest.CaptureFixture[str], answer: web.Response | errors.Conflict
) -> None:
    async def load() -> Access:
        return access

    await api.put(NODES, {"metadata": {"name": "node1"}})
    api.refusals = [answer]
    code = await acting.act(load, ["web"], "start", {"nodeSelector": {"kubernetes.io/hostname": "node9"}}, Waiting())
    assert ("Warning: no node has the label" in capsys.readouterr().err) == (code == 0) == isinstance(answer, web.Response)


async def test_without_a_right_to_nodes_none_is_unknown(api: FakeAPI, access: Access, capsys: pytest.CaptureFixture[str]) -> None:
    api.refusals.append(errors.Forbidden("no"))
    await chosen_node.warn(access, "node9")
    assert not capsys.readouterr().err


def test_fence_needs_the_statement_that_the_node_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["fence", "node2", "--yes"]) == 1
    assert "fence needs --off" in capsys.readouterr().err
