from __future__ import annotations

import asyncio
import copy
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from apiserver.apis.meta import times
from apiserver.client.rest import Client
from apiserver.server import __main__ as virt_api
from apiserver.server import options, running
from certs.issuing import Pair, new_authority
from storage.memory import MemoryStorage
from storage.port import Condition, Delete, Put, Storage
from tests.component.apiserver.conftest import HOUR, Pki
from tests.component.apiserver.test_delegation import CONFIG_MAPS, NAMESPACES, REVIEWS, TOKENS, trusted, write_kubeconfig
from tests.fakes.kubeapi import FakeAPI

Json = dict[str, Any]
HANDLER = "system:serviceaccount:kubevirt:virt-handler"
CLAIM = "authentication.kubernetes.io/node-name"
BASE = "/apis/kubevirt.io/v1alpha1/namespaces/acc"
VM, VM_STATUS = f"{BASE}/virtualmachines/vm1", f"{BASE}/virtualmachines/vm1/status"
MOVE, MOVE_STATUS = f"{BASE}/migrations/move", f"{BASE}/migrations/move/status"
TYPE = {"apiVersion": "kubevirt.io/v1alpha1"}
MACHINE: Json = {**TYPE, "kind": "VirtualMachine", "metadata": {"name": "vm1"}, "spec": {"domain": {"memory": {"guest": "64Mi"}}}}
MIGRATION: Json = {**TYPE, "kind": "Migration", "metadata": {"name": "move"}, "spec": {"selector": {"name": "vm1"}}}
MOMENT = "2026-01-01T00:00:00Z"
SCHEDULED: Json = {
    "phase": "Scheduled", "attempt": 1, "attempts": [{"number": 1, "podName": "p1", "nodeName": "node1", "startTime": MOMENT}],
    "nodeName": "node1", "podName": "p1", "podUID": "uid-1", "podIP": "10.244.1.7",
    "phaseTransitionTimestamps": [{"phase": "Scheduled", "time": MOMENT}],
}  # fmt: skip
RUNNING: Json = {
    **SCHEDULED, "phase": "Running", "attempts": [{**SCHEDULED["attempts"][0], "runningTime": MOMENT}], "domain": {"state": "running"},
    "phaseTransitionTimestamps": [*SCHEDULED["phaseTransitionTimestamps"], {"phase": "Running", "time": MOMENT}],
}  # fmt: skip
PREPARING: Json = {
    "phase": "PreparingTarget", "sourceNode": "node1", "sourcePod": "p1", "targetNode": "node2", "targetPod": "p2", "targetPodUID": "uid-2",
    "startTime": MOMENT, "phaseTransitionTimestamps": [],
}  # fmt: skip


def now() -> str:
    return times.to_rfc3339(datetime.now(UTC))


def entered(status: Json, phase: str, **more: Any) -> Json:
    return {
        **status,
        "phase": phase,
        "phaseTransitionTimestamps": [*status["phaseTransitionTimestamps"], {"phase": phase, "time": MOMENT}],
        **more,
    }


def launcher_pod(machine: Json, name: str, uid: str, *volumes: Json, namespace: str = "acc") -> Json:
    owner = {"kind": "VirtualMachine", "name": machine["metadata"]["name"], "uid": machine["metadata"]["uid"], "controller": True}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "ownerReferences": [owner]},
        "spec": {"volumes": [{"name": "run", "emptyDir": {}}, *volumes]},
    }


@dataclass
class Cluster:
    kube: FakeAPI
    pki: Pki
    proxies: Pair
    url: str = ""
    began: str = field(default_factory=lambda: times.to_rfc3339(datetime.now(UTC)))
    tokens: dict[str, Json] = field(default_factory=dict)
    contexts: dict[str | None, ssl.SSLContext] = field(default_factory=dict)
    sessions: dict[str | None, aiohttp.ClientSession] = field(default_factory=dict)
    """Kept, because a handshake takes milliseconds of processor time."""

    def admit(self, path: str, obj: Json) -> None:
        if path == REVIEWS:
            obj["status"] = {"allowed": True}
        if path == TOKENS:
            user = self.tokens.get(obj["spec"]["token"])
            obj["status"] = {"authenticated": user is not None, "user": user or {}}

    def tls(self, by: str | None) -> ssl.SSLContext:
        if by not in self.contexts:
            self.contexts[by] = self.pki.client(by, self.proxies if by == "front-proxy-client" else None)
        return self.contexts[by]

    async def ask(
        self, method: str, path: str, body: Any = None, headers: Any = (), *, by: str | None = "front-proxy-client", kind: str = "json"
    ) -> tuple[int, Any]:
        given = [*headers, ("Content-Type", f"application/{kind}")]
        data = json.dumps(body).replace(MOMENT, self.began).encode() if body is not None else None
        if by not in self.sessions:
            self.sessions[by] = aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(ssl=self.tls(by)))
        async with self.sessions[by].request(method, path, data=data, headers=given) as response:
            text = (await response.text()).replace(self.began, MOMENT)
            return response.status, json.loads(text) if text.startswith("{") else text

    async def admin(self, method: str, path: str, body: Any = None, **more: Any) -> Json:
        code, answer = await self.ask(method, path, body, [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")], **more)
        assert code in (200, 201), answer
        found: Json = answer
        return found

    async def handler(self, node: str | None, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        claim = [(f"X-Remote-Extra-{CLAIM.replace('/', '%2F')}", node)] if node is not None else []
        return await self.ask(method, path, body, [("X-Remote-User", HANDLER), *claim], **more)

    async def put_status(self, path: str, status: Json, node: str | None = None, **more: Any) -> tuple[int, Any]:
        obj = await self.admin("GET", path.removesuffix("/status"))
        new = {**obj, "status": status}
        return (200, await self.admin("PUT", path, new)) if node is None else await self.handler(node, "PUT", path, new, **more)


def without_streams(given: options.Options, client: Client | None) -> running.Kinds:
    return virt_api.kinds(given, client, None)


async def nothing_more(cluster: Cluster) -> None:
    pass


@asynccontextmanager
async def serving(
    pki: Pki,
    directory: Path,
    *flags: str,
    storage: Storage | None = None,
    kinds: Callable[[options.Options, Client | None], running.Kinds] = without_streams,
    prepare: Callable[[Cluster], Awaitable[None]] = nothing_more,
) -> AsyncIterator[Cluster]:
    kube = FakeAPI()
    made = Cluster(kube, pki, new_authority("front-proxy", HOUR, datetime.now(UTC)))
    kube.admit = made.admit
    await kube.put(CONFIG_MAPS, trusted(made.proxies, pki.authority, ["front-proxy-client"]))
    await kube.put(NAMESPACES, {"metadata": {"name": "acc"}, "status": {"phase": "Active"}})
    for number in (1, 2):
        labels = {"kubevirt.io": "virt-handler"}
        pod = {
            "metadata": {"name": f"virt-handler-{number}", "namespace": "kubevirt", "labels": labels},
            "spec": {"nodeName": f"node{number}"},
        }
        await kube.put("/api/v1/pods", {**pod, "status": {"phase": "Running", "podIP": f"10.0.0.{number}"}})
    await prepare(made)
    async with kube.serving() as config:
        given = options.parse(
            [
                "--bind-address=127.0.0.1", "--secure-port=0", "--storage=memory", "--shutdown-delay-duration=0s",
                f"--tls-cert-file={pki.directory / 'server.crt'}", f"--tls-private-key-file={pki.directory / 'server.key'}",
                f"--kubeconfig={write_kubeconfig(directory / 'kubeconfig', config)}", "--namespace=kubevirt", *flags,
            ]
        )  # fmt: skip
        kept = storage or MemoryStorage()
        async with running.running(given, lambda client: kinds(given, client), kept) as (host, port):
            made.url = f"https://{host}:{port}"
            try:
                async with asyncio.timeout(10):
                    while (await made.ask("GET", "/readyz", by=None))[0] != 200:
                        await asyncio.sleep(0.02)
                machine = await made.admin("POST", f"{BASE}/virtualmachines", MACHINE)
                for number in (1, 2):
                    await kube.put("/api/v1/pods", launcher_pod(machine, f"p{number}", f"uid-{number}"))
                await made.put_status(VM_STATUS, SCHEDULED)
                yield made
            finally:
                for each in made.sessions.values():
                    await each.close()


@pytest.fixture
async def cluster(pki: Pki, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with serving(pki, tmp_path) as made:
        yield made


async def test_the_nodes_own_virt_handler_reports_and_ends_the_guest(cluster: Cluster) -> None:
    code, found = await cluster.put_status(VM_STATUS, RUNNING, "node1")
    assert (code, found["status"]["phase"]) == (200, "Running")
    ended = entered(RUNNING, "Failed", attempts=[{**RUNNING["attempts"][0], "endTime": now(), "result": "Failed", "message": "it crashed"}])
    for each in ("nodeName", "podIP", "domain"):
        del ended[each]
    assert (await cluster.put_status(VM_STATUS, ended, "node1"))[0] == 200


async def test_virt_handler_of_another_node_is_refused_with_the_reason(cluster: Cluster) -> None:
    code, status = await cluster.put_status(VM_STATUS, RUNNING, "node2")
    assert (code, status["reason"]) == (403, "Forbidden")
    assert status["message"] == (
        'virtualmachines.kubevirt.io "vm1" is forbidden: virt-handler of node "node2" may not write this status: '
        '[status.nodeName: Forbidden: the virtual machine is not on node "node2"]'
    )
    assert status["details"]["causes"] == [
        {"reason": "FieldValueForbidden", "message": 'Forbidden: the virtual machine is not on node "node2"', "field": "status.nodeName"}
    ]
    assert (await cluster.admin("GET", VM))["status"]["phase"] == "Scheduled"


STOLEN = {"nodeName": "node2", "podName": "p2", "podUID": "uid-2"}
FORGED = entered(RUNNING, "Succeeded", attempts=[{**RUNNING["attempts"][0], "endTime": MOMENT, "result": "Succeeded"}])
REQUEST = {"action": "Stop", "time": MOMENT, "runStrategy": "RerunOnFailure", "attempt": 1}


WRITES: list[tuple[str, Any]] = [
    ("json", None),
    ("merge-patch+json", {"status": {"phase": "Failed"}}),
    ("merge-patch+json", {"status": STOLEN}),
    ("merge-patch+json", {"status": {"request": REQUEST}}),
    ("merge-patch+json", {"status": {}}),
    ("strategic-merge-patch+json", {"status": {"attempts": [{"number": 1, "result": "Failed"}]}}),
    ("json-patch+json", [{"op": "replace", "path": "/status/phase", "value": "Stopped"}]),
    ("apply-patch+yaml", {**TYPE, "kind": "VirtualMachine", "metadata": {"name": "vm1"}, "status": {"podIP": "10.0.0.66"}}),
]


@pytest.mark.parametrize("dry", [(), ("dryRun=All",)])
async def test_no_kind_of_write_gets_past_it(cluster: Cluster, dry: tuple[str, ...]) -> None:
    before = await cluster.admin("GET", VM)
    for kind, body in WRITES:
        query = "&".join([*dry, *(["fieldManager=x&force=true"] if kind.startswith("apply") else [])])
        given = {**before, "status": FORGED} if body is None else body
        code, status = await cluster.handler("node2", "PUT" if kind == "json" else "PATCH", f"{VM_STATUS}?{query}", given, kind=kind)
        assert (code, status["details"]["causes"][0]["field"]) == (403, "status.nodeName"), (kind, status)
    assert await cluster.admin("GET", VM) == before


async def test_own_node_has_what_its_guest_took_recorded(cluster: Cluster) -> None:
    await cluster.put_status(VM_STATUS, RUNNING, "node1")
    devices = {"interfaces": [{"name": "default", "state": "down"}]}
    edit = {"spec": {"domain": {"memory": {"guest": "128Mi"}, "devices": devices}}}
    before = (await cluster.admin("PATCH", VM, edit, kind="merge-patch+json"))["status"]["running"]
    link = "spec.domain.devices.interfaces[default].state"

    async def told(*paths: str, **more: Any) -> tuple[int, Any]:
        status = {"changes": [{"path": each, "state": "Applied"} for each in paths], **more}
        return await cluster.handler("node1", "PATCH", VM_STATUS, {"status": status}, kind="merge-patch+json")

    code, found = await told("spec.domain.memory.guest", running={"domain": {"memory": {"guest": "128Mi"}}})
    assert (code, found["status"]["running"]) == (200, before)
    code, found = await told(link)
    assert (code, found["status"].get("changes")) == (200, None)
    kept = found["status"]["running"]
    assert kept["domain"]["memory"] == before["domain"]["memory"]
    assert [each["state"] for each in kept["domain"]["devices"]["interfaces"]] == ["down"]


async def test_own_node_has_the_cards_of_its_guest_recorded(cluster: Cluster) -> None:
    await cluster.put_status(VM_STATUS, RUNNING, "node1")
    default, lan = {"name": "default"}, {"name": "lan", "network": "lan"}

    async def edited(*cards: Json) -> list[str]:
        edit = {"spec": {"domain": {"devices": {"interfaces": list(cards)}}}}
        found = await cluster.admin("PATCH", VM, edit, kind="merge-patch+json")
        return [each["name"] for each in found["status"]["running"]["domain"].get("devices", {}).get("interfaces", [default])]

    async def told(name: str) -> Any:
        status = {"changes": [{"path": f"spec.domain.devices.interfaces[{name}]", "state": "Applied"}]}
        code, found = await cluster.handler("node1", "PATCH", VM_STATUS, {"status": status}, kind="merge-patch+json")
        assert (code, found["status"].get("changes")) == (200, None)
        return found["status"].get("running")

    assert await edited(default, lan) == ["default"]
    assert await told("other") is not None
    assert await told("lan") is None
    assert await edited() == ["default", "lan"]
    left = await told("default")
    assert [each["name"] for each in left["domain"]["devices"]["interfaces"]] == ["lan"]
    assert await told("lan") is None


async def test_own_node_forges_neither_request_nor_place_nor_attempt(cluster: Cluster) -> None:
    await cluster.put_status(VM_STATUS, RUNNING, "node1")
    for changes, fields in (
        ({"request": REQUEST}, {"status.request"}),
        ({"attempt": 2}, {"status.attempt"}),
        (STOLEN, {"status.nodeName", "status.podName", "status.podUID"}),
        ({"phase": "Pending"}, {"status.phase"}),
        ({"podIP": "10.0.0.66"}, {"status.podIP"}),
    ):
        code, status = await cluster.handler("node1", "PATCH", VM_STATUS, {"status": changes}, kind="merge-patch+json")
        assert (code, {each["field"] for each in status["details"]["causes"]}) == (403, fields)


OTHER_WRITES: list[tuple[str, str, Json]] = [
    ("PATCH", VM, {"metadata": {"finalizers": None}}),
    ("PATCH", VM, {"spec": {"runStrategy": "Halted"}}),
    ("PATCH", VM, {"metadata": {"labels": {"a": "b"}}}),
    ("DELETE", VM, {}),
    ("PUT", f"{VM}/stop", {}),
    ("POST", f"{BASE}/migrations", MIGRATION),
    ("PUT", f"{VM}/migrate", {}),
    ("DELETE", f"{BASE}/virtualmachines", {}),
]


async def test_a_revoked_node_writes_nothing_until_it_is_pardoned(cluster: Cluster) -> None:
    trust: Json = {"metadata": {"name": "kubevirt-trust", "namespace": "kubevirt"}, "data": {"revoked.node1": "stolen"}}
    await cluster.kube.put(CONFIG_MAPS, trust)
    wish = {**await cluster.admin("GET", VM), "status": RUNNING}

    async with asyncio.timeout(30):
        while (await cluster.handler("node1", "PUT", f"{VM_STATUS}?dryRun=All", wish))[0] == 200:
            await asyncio.sleep(0.02)
    code, answer = await cluster.put_status(VM_STATUS, RUNNING, "node1")
    assert (code, answer["reason"]) == (403, "Forbidden")
    assert 'node "node1" is revoked' in answer["message"]

    await cluster.kube.put(CONFIG_MAPS, {**trust, "data": {}})
    async with asyncio.timeout(30):
        while (await cluster.put_status(VM_STATUS, RUNNING, "node1"))[0] != 200:
            await asyncio.sleep(0.02)


async def test_virt_handler_writes_only_the_status_with_any_rights(cluster: Cluster) -> None:
    await cluster.put_status(VM_STATUS, RUNNING, "node1")
    for method, path, body in OTHER_WRITES:
        code, status = await cluster.handler("node1", method, path, body, kind="merge-patch+json" if method == "PATCH" else "json")
        assert code == 403, status
        assert 'virt-handler of node "node1" may write only the status' in status["message"]


async def test_a_token_that_does_not_name_one_node_writes_nothing(cluster: Cluster) -> None:
    obj = await cluster.admin("GET", VM)
    for claims in ([], [""], ["node1", "node1"], ["node1", "node2"], ["node1,node2"], ["../node1"], ["NODE1"]):
        headers = [("X-Remote-User", HANDLER), *((f"X-Remote-Extra-{CLAIM.replace('/', '%2F')}", each) for each in claims)]
        code, status = await cluster.ask("PUT", VM_STATUS, {**obj, "status": RUNNING}, headers)
        assert (code, status["reason"]) == (403, "Forbidden"), claims
        assert CLAIM in status["message"]
        assert "--no-require-node-claims" in status["message"]
        assert (await cluster.ask("GET", VM, None, headers))[0] == 200


async def test_the_claim_is_read_however_it_is_spelled(cluster: Cluster) -> None:
    spellings = (
        "authentication.kubernetes.io%2Fnode-name",
        "Authentication.Kubernetes.Io%2fNode-Name",
        "AUTHENTICATION.KUBERNETES.IO%2FNODE-NAME",
    )
    for name in spellings:
        headers = [("X-Remote-User", HANDLER), (f"X-Remote-Extra-{name}", "node1")]
        obj = await cluster.admin("GET", VM)
        assert (await cluster.ask("PUT", VM_STATUS, {**obj, "status": SCHEDULED}, headers))[0] == 200
        both = [*headers, ("X-Remote-Extra-authentication.kubernetes.io%2Fnode%2Dname", "node2")]
        code, status = await cluster.ask("PUT", VM_STATUS, {**obj, "status": SCHEDULED}, both)
        assert code == 403
        assert "does not name the one node" in status["message"]


async def test_only_the_front_proxy_passes_a_node_claim(cluster: Cluster) -> None:
    """A client certificate for the account with the header, and a direct token, have no node."""
    obj = await cluster.admin("GET", VM)
    body = {**obj, "status": RUNNING}
    smuggled = [("X-Remote-User", "admin"), (f"X-Remote-Extra-{CLAIM.replace('/', '%2F')}", "node1")]
    code, status = await cluster.ask("PUT", VM_STATUS, body, smuggled, by=HANDLER)
    assert code == 403
    assert "names no node" in status["message"]
    cluster.tokens["unbound"] = {"username": HANDLER, "extra": {}}
    cluster.tokens["bound"] = {
        "username": HANDLER,
        "extra": {CLAIM: ["node1"], "authentication.kubernetes.io/pod-name": ["virt-handler-1"]},
    }
    code, status = await cluster.ask("PUT", VM_STATUS, body, [*smuggled, ("Authorization", "Bearer unbound")], by=None)
    assert code == 403
    assert (await cluster.ask("PUT", VM_STATUS, body, [("Authorization", "Bearer bound")], by=None))[0] == 200


async def test_everybody_else_is_judged_by_rbac_alone(cluster: Cluster) -> None:
    controller = [("X-Remote-User", "system:serviceaccount:kubevirt:virt-controller")]
    for headers in (controller, [("X-Remote-User", "admin")], [("X-Remote-User", "system:serviceaccount:other:virt-handler")]):
        change = {"status": {"podName": f"p{len(headers[0][1])}"}}
        assert (await cluster.ask("PATCH", VM_STATUS, change, headers, kind="merge-patch+json"))[0] == 200


async def test_without_claims_a_development_cluster_says_so_by_a_flag(pki: Pki, tmp_path: Path) -> None:
    async with serving(pki, tmp_path, "--no-require-node-claims") as cluster:
        obj = await cluster.admin("GET", VM)
        code, _ = await cluster.ask("PUT", VM_STATUS, {**obj, "status": RUNNING}, [("X-Remote-User", HANDLER)])
        assert code == 200
        assert (await cluster.put_status(VM_STATUS, entered(RUNNING, "Stopping"), "node2"))[0] == 403


async def test_the_account_is_the_releases(pki: Pki, tmp_path: Path) -> None:
    async with serving(pki, tmp_path, "--handler-username=system:serviceaccount:elsewhere:agent") as cluster:
        headers = [("X-Remote-User", "system:serviceaccount:elsewhere:agent"), (f"X-Remote-Extra-{CLAIM.replace('/', '%2F')}", "node2")]
        assert (await cluster.ask("PATCH", VM_STATUS, {"status": {"phase": "Failed"}}, headers, kind="merge-patch+json"))[0] == 403
        assert (await cluster.put_status(VM_STATUS, RUNNING, "node2"))[0] == 200


async def test_a_write_is_judged_at_the_revision_that_it_replaces(pki: Pki, tmp_path: Path) -> None:
    """The VM moves after a patch of the old node was planned."""

    class Overtaken(MemoryStorage):
        def __init__(self) -> None:
            super().__init__()
            self.first: list[Callable[[], Awaitable[object]]] = []

        async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
            if self.first:
                await self.first.pop()()
            return await super().commit(conditions, writes)

    storage = Overtaken()
    async with serving(pki, tmp_path, storage=storage) as cluster:
        storage.first.append(lambda: cluster.put_status(VM_STATUS, {**SCHEDULED, "nodeName": "node2"}))
        wait = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "DisksNotReady"}]}}
        code, status = await cluster.handler("node1", "PATCH", VM_STATUS, wait, kind="merge-patch+json")
    assert storage.first == []
    assert (code, status["details"]["causes"][0]["field"]) == (403, "status.nodeName")


async def moving(cluster: Cluster, phase: str, **status: Any) -> Json:
    await cluster.put_status(VM_STATUS, RUNNING)
    await cluster.admin("POST", f"{BASE}/migrations", MIGRATION)
    made = entered(PREPARING, phase, **status)
    await cluster.put_status(MOVE_STATUS, made)
    return made


def arrived(uid: str) -> Json:
    record = {key: PREPARING[key] for key in ("sourceNode", "sourcePod", "targetNode", "targetPod", "startTime")}
    return {**RUNNING, **STOLEN, "migration": {"name": "move", "uid": uid, **record, "phase": "Succeeded", "endTime": MOMENT}}


async def test_a_machine_moves_when_and_where_its_migration_says(cluster: Cluster) -> None:
    ready = await moving(cluster, "TargetReady", targetAddress="10.0.0.2:8445")
    uid = (await cluster.admin("GET", MOVE))["metadata"]["uid"]
    code, status = await cluster.put_status(VM_STATUS, arrived(uid), "node2")
    assert (code, [each["field"] for each in status["details"]["causes"]]) == (403, ["status.migration.phase"])
    assert (await cluster.put_status(MOVE_STATUS, entered(ready, "Running"), "node2"))[0] == 403
    assert (await cluster.put_status(MOVE_STATUS, entered(ready, "Running"), "node1"))[0] == 200
    succeeded = entered(entered(ready, "Running"), "Succeeded", endTime=now(), message="it moved")
    code, status = await cluster.put_status(MOVE_STATUS, succeeded, "node2")
    assert (code, status["details"]["causes"][0]["field"]) == (403, "status.phase")
    assert (await cluster.put_status(VM_STATUS, arrived(uid), "node3"))[0] == 403
    assert (await cluster.put_status(VM_STATUS, arrived("other"), "node2"))[0] == 403
    assert (await cluster.put_status(VM_STATUS, {**arrived(uid), "podUID": "uid-3"}, "node2"))[0] == 403
    assert (await cluster.put_status(VM_STATUS, arrived(uid), "node2"))[0] == 200
    code, status = await cluster.put_status(MOVE_STATUS, entered(entered(ready, "Running"), "Failed"), "node1")
    assert (code, status["details"]["causes"][0]["field"]) == (403, "status.phase")
    assert (await cluster.put_status(MOVE_STATUS, succeeded, "node2"))[0] == 200
    assert (await cluster.put_status(VM_STATUS, {**arrived(uid), "domain": {"state": "paused"}}, "node1"))[0] == 403
    assert (await cluster.put_status(VM_STATUS, {**arrived(uid), "domain": {"state": "paused"}}, "node2"))[0] == 200


@pytest.mark.parametrize("phase", ["PreparingTarget", "Failed"])
async def test_a_migration_that_does_not_run_moves_no_machine(cluster: Cluster, phase: str) -> None:
    await moving(cluster, phase)
    uid = (await cluster.admin("GET", MOVE))["metadata"]["uid"]
    assert (await cluster.put_status(VM_STATUS, arrived(uid), "node2"))[0] == 403


async def test_guest_memory_is_sent_to_the_targets_virt_handler_only(cluster: Cluster) -> None:
    await moving(cluster, "PreparingTarget")
    status: Any = None
    for address in ("10.0.0.1:8445", "10.0.0.66:8445", "10.0.0.2:22"):
        code, status = await cluster.put_status(
            MOVE_STATUS, entered(await status_of(cluster), "TargetReady", targetAddress=address), "node2"
        )
        assert code == 403
    assert status["details"]["causes"][0]["message"].endswith('must be the address of virt-handler on node "node2" (10.0.0.2), port 8445')
    ready = entered(await status_of(cluster), "TargetReady", targetAddress="10.0.0.2:8445")
    assert (await cluster.put_status(MOVE_STATUS, ready, "node1"))[0] == 403
    assert (await cluster.put_status(MOVE_STATUS, ready, "node2"))[0] == 200


async def status_of(cluster: Cluster) -> Json:
    found: Json = (await cluster.admin("GET", MOVE))["status"]
    return found


async def test_unknown_target_pod_asks_the_client_to_retry(cluster: Cluster) -> None:
    await moving(cluster, "PreparingTarget")
    await cluster.kube.remove("/api/v1/pods", "kubevirt", "virt-handler-2")
    ready = entered(await status_of(cluster), "TargetReady", targetAddress="10.0.0.2:8445")
    async with asyncio.timeout(30):
        while (found := await cluster.put_status(MOVE_STATUS, ready, "node2", kind="json"))[0] == 200:
            await cluster.put_status(MOVE_STATUS, PREPARING)
    assert (found[0], found[1]["details"]["retryAfterSeconds"]) == (503, 2)


async def test_the_answer_to_a_forgery_of_everything_is_bounded(cluster: Cluster) -> None:
    conditions = [{"type": f"Fake{each}", "status": "True", "message": "x" * 4096} for each in range(16)]
    forged = {**copy.deepcopy(RUNNING), **STOLEN, "attempt": 9, "request": REQUEST, "conditions": conditions, "podIP": "10.0.0.66"}
    code, status = await cluster.put_status(VM_STATUS, forged, "node1")
    assert code == 403
    assert len(status["details"]["causes"]) == 16
    assert "more]" in status["message"]
    assert len(json.dumps(status)) < 8192


async def test_malformed_status_is_named_for_every_writer(cluster: Cluster) -> None:
    hostile = {**RUNNING, "podUID": "../../x", "podIP": "localhost"}
    for node in (None, "node1"):
        obj = await cluster.admin("GET", VM)
        headers = (
            [("X-Remote-User", "admin")]
            if node is None
            else [("X-Remote-User", HANDLER), (f"X-Remote-Extra-{CLAIM.replace('/', '%2F')}", node)]
        )
        code, status = await cluster.ask("PUT", VM_STATUS, {**obj, "status": hostile}, headers)
        assert (code, [each["field"] for each in status["details"]["causes"]]) == (422, ["status.podUID", "status.podIP"])
    await moving(cluster, "PreparingTarget")
    code, status = await cluster.put_status(MOVE_STATUS, {**await status_of(cluster), "targetAddress": "evil.example:80"}, "node2")
    assert (code, status["details"]["causes"][0]["field"]) == (422, "status.targetAddress")
