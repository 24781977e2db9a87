"""Verbs, streams, reads, guards and field selectors have the same effect through each served version.

``Version`` converts requests to the version under test, and answers back.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, get_args

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from apiserver.admission import plugins
from apiserver.apis.core.resources import RESOURCE_QUOTAS, VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS
from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import names, streams
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.rest import Client
from apiserver.registry.generic.strategy import Strategy
from apiserver.registry.virt.handlers import Handlers
from apiserver.registry.virt.migrations import MigrationStrategy
from apiserver.registry.virt.reads import HandlerRead
from apiserver.registry.virt.revoking import RevokedNodes, trust_config
from apiserver.registry.virt.streams import HandlerStream
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from apiserver.server import __main__ as virt_api
from apiserver.server.options import Options
from apiserver.server.running import Kinds
from certs.reloading import ClientTls
from storage.memory import MemoryStorage
from storage.port import Delete
from tests import pictures
from tests.component.apiserver.conftest import Pki
from tests.component.apiserver.test_delegation import NAMESPACES, REVIEWS
from tests.component.apiserver.test_node_restriction import (
    BASE,
    CLAIM,
    HANDLER,
    MACHINE,
    MIGRATION,
    PREPARING,
    RUNNING,
    SCHEDULED,
    VM_STATUS,
    Cluster,
    entered,
    launcher_pod,
    serving,
)
from tests.component.handler.tls import Authority
from tests.fakes import second_version
from tests.unit.charts import forbidden_pods

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
VERSIONS: Final = (VIRTUAL_MACHINES.version, second_version.VERSION)
PODS: Final = "/api/v1/pods"
ADMINISTRATOR: Final = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")]
TENANT: Final = [("X-Remote-User", "tenant")]
CONTROLLER: Final = [("X-Remote-User", "system:serviceaccount:kubevirt:virt-controller")]
STOLEN: Final = {"name": "disk-0", "projected": {"sources": [{"secret": {"name": "password"}}]}}
MERGE: Final = "merge-patch+json"


@dataclass
class Version:
    """A cluster with two served versions, used through one."""

    name: str
    cluster: Cluster
    hubs: Mapping[str, Strategy]
    handler: Handler
    storage: MemoryStorage

    def strategy(self, resource: Resource) -> Strategy:
        hub = self.hubs[resource.plural]
        found = {hub.resource.version: hub, **{each.resource.version: each for each in hub.spokes.values()}}
        return found[self.name]

    def path(self, resource: Resource, name: str | None = None, subresource: str | None = None, namespace: str = "acc") -> str:
        return self.strategy(resource).resource.path(namespace, name, subresource)

    def written(self, resource: Resource, obj: Json) -> Json:
        return self.strategy(resource).from_hub(HubObject(deepcopy(obj)))

    async def ask(self, method: str, resource: Resource, *place: str, body: Any = None, by: Any = ADMINISTRATOR, **more: Any) -> Answer:
        name, subresource, query = (*place, *("",) * (3 - len(place)))
        path = self.path(resource, name or None, subresource or None, more.pop("namespace", "acc"))
        given = self.written(resource, body) if isinstance(body, dict) and subresource in ("", "status") else body
        code, answer = await self.cluster.ask(method, f"{path}?{query}" if query else path, given, by, **more)
        return Answer(code, self._read(resource, answer))

    def _read(self, resource: Resource, answer: Any) -> Any:
        if not isinstance(answer, dict) or answer.get("kind") not in (resource.kind, f"{resource.kind}List"):
            return answer
        assert answer["apiVersion"] == f"{resource.group}/{self.name}"
        if "items" in answer:
            return [self.strategy(resource).to_hub(each | {"apiVersion": answer["apiVersion"]}) for each in answer["items"]]
        return self.strategy(resource).to_hub(answer)

    async def get(self, resource: Resource = VIRTUAL_MACHINES, name: str = "vm1") -> Json:
        found = await self.ask("GET", resource, name)
        assert found.code == 200, found
        obj: Json = found.body
        return obj

    async def make(self, resource: Resource, obj: Json, **more: Any) -> Json:
        made = await self.ask("POST", resource, body=obj, **more)
        assert made.code == 201, made
        new: Json = made.body
        return new

    async def put_status(self, status: Json, resource: Resource = VIRTUAL_MACHINES, name: str = "vm1", by: Any = ADMINISTRATOR) -> Answer:
        return await self.ask("PUT", resource, name, "status", body={**await self.get(resource, name), "status": status}, by=by)

    async def patch_status(self, status: Json, resource: Resource = VIRTUAL_MACHINES, name: str = "vm1", by: Any = CONTROLLER) -> Answer:
        return await self.ask("PATCH", resource, name, "status", body={"status": status}, by=by, kind=MERGE)


@dataclass(frozen=True)
class Answer:
    """An answer; its objects of the requested kind are converted to the stored version."""

    code: int
    body: Any

    @property
    def refused(self) -> tuple[int, str]:
        causes = (self.body.get("details") or {}).get("causes") or [{}]
        return self.code, str(causes[0].get("field", ""))


@dataclass
class Handler:
    port: int = 0
    asked: list[str] = field(default_factory=list)

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        what = request.path.rpartition("/")[2]
        self.asked.append(what)
        if what in TOLD or request.method == "POST":
            return web.json_response(TOLD.get(what, {}))
        socket = web.WebSocketResponse(protocols=(streams.SUBPROTOCOL,))
        await socket.prepare(request)
        await socket.send_bytes((await socket.receive_bytes()).upper())
        await socket.receive()
        return socket


TOLD: Final[Mapping[str, Json]] = {
    "guestinfo": {"hostname": "guest"},
    "domainxml": {"xml": "<domain/>\n"},
    "screenshot": {"png": base64.b64encode(pictures.png(2, 1)).decode()},
}


@asynccontextmanager
async def handling(authority: Authority) -> AsyncIterator[Handler]:
    made, files = Handler(), authority.node("node1")
    assert files.authorities is not None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.authorities)
    context.load_cert_chain(files.certificate, files.key)
    server = web.Server(made.serve)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=context)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()
    await server.shutdown(1)


def kinds(options: Options, client: Client | None, tls: ClientTls, handler: Handler) -> Kinds:
    assert client is not None
    real = virt_api.kinds(options, client, tls)
    config = trust_config(client, options.namespace)
    revoked = RevokedNodes(config)

    async def locate(node: str) -> tuple[str, int]:
        assert node == "node1"
        return "127.0.0.1", handler.port

    machines, moves, *others = real.strategies
    assert isinstance(machines, VirtualMachineStrategy)
    assert isinstance(moves, MigrationStrategy)
    connects = {name: HandlerStream(name, locate, lambda: tls.context, revoked) for name in get_args(streams.Stream)}
    reads = {}
    for name, each in machines.reads.items():
        assert isinstance(each, HandlerRead)
        reads[name] = type(each)(Handlers(locate, lambda: tls.context, revoked))
    assert connects.keys() | reads.keys() == machines.connects.keys() | machines.reads.keys()
    handlers = Handlers(locate, lambda: tls.context, revoked)
    hubs = (VirtualMachineStrategy(connects, reads, handlers=handlers), moves, *others)
    return Kinds((*hubs, *second_version.of(hubs)), (*real.informers, config), real.plugins)


@pytest_asyncio.fixture(params=VERSIONS, scope="module", loop_scope="module")
async def served(request: pytest.FixtureRequest, pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Version]:
    """Yield the Version of the test's parameter. Its tests share a server, which serves both versions and starts in a second."""
    directory, known, storage = tmp_path_factory.mktemp("versions"), list[Kinds](), MemoryStorage()
    authority = Authority(directory / "certs")
    tls = ClientTls(authority.virt_api())

    def make(options: Options, client: Client | None) -> Kinds:
        known.append(kinds(options, client, tls, handler))
        return known[0]

    async with (
        handling(authority) as handler,
        serving(pki, directory, *FLAGS, storage=storage, kinds=make, prepare=prepare) as cluster,
    ):
        hubs = {each.resource.plural: each for each in known[0].strategies if each.hub is each}
        yield Version(request.param, cluster, hubs, handler, storage)


@pytest_asyncio.fixture(loop_scope="module")
async def version(served: Version) -> Version:
    stored = (await served.storage.range("/registry/")).entries
    await served.storage.commit([], [Delete(each.key) for each in stored])
    for pod in served.cluster.kube.all(PODS):
        if pod["metadata"]["namespace"] == "acc":
            await served.cluster.kube.remove(PODS, "acc", pod["metadata"]["name"])
    served.handler.asked.clear()
    machine = await served.cluster.admin("POST", f"{BASE}/virtualmachines", MACHINE)
    for number in (1, 2):
        await served.cluster.kube.put(PODS, launcher_pod(machine, f"p{number}", f"uid-{number}"))
    await served.cluster.put_status(VM_STATUS, SCHEDULED)
    return served


FLAGS: Final = (f"--enable-admission-plugins={plugins.RESOURCE_QUOTA}",)


async def prepare(cluster: Cluster) -> None:
    for resource in (VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS):
        for each in policies(resource.kind):
            await cluster.kube.put(resource.path(), each)
    for name, phase in (("ending", "Terminating"), ("full", "Active")):
        await cluster.kube.put(NAMESPACES, {"metadata": {"name": name}, "status": {"phase": phase}})
    counted = f"count/{VIRTUAL_MACHINES.plural}.{names.GROUP}"
    quota = {"metadata": {"name": "q", "namespace": "full"}, "spec": {"hard": {counted: "0"}}}
    await cluster.kube.put(RESOURCE_QUOTAS.path(), {**quota, "status": {"hard": {counted: "0"}, "used": {counted: "0"}}})
    grant = cluster.kube.admit
    assert grant is not None

    def admit(path: str, obj: Json) -> None:
        grant(path, obj)
        if path == REVIEWS and obj["spec"].get("user") == "tenant":
            obj["status"] = {"allowed": obj["spec"]["resourceAttributes"].get("group") == names.GROUP}

    cluster.kube.admit = admit


def policies(kind: str) -> list[Json]:
    known = {
        each["metadata"]["name"]
        for each in forbidden_pods.of_the_chart(VALIDATING_POLICIES.kind)
        if names.GROUP in str(each["spec"]["matchConstraints"]["resourceRules"])
    }
    return [each for each in forbidden_pods.of_the_chart(kind) if each["metadata"]["name"] in known]


def virt_handler(node: str) -> list[tuple[str, str]]:
    return [("X-Remote-User", HANDLER), (f"X-Remote-Extra-{CLAIM.replace('/', '%2F')}", node)]


def running(**status: Any) -> Json:
    return {**RUNNING, **status}


PAUSED: Final = {"conditions": [{"type": "Paused", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
IMAGE: Final = {"id": "s", "claimName": "memory", "file": "u/s", "digest": f"sha256:{64 * '0'}", "sizeBytes": 1, "attempt": 1}
ATTEMPT: Final = {
    "number": 1,
    "podName": "p3",
    "startTime": "2026-01-01T00:00:00Z",
    "endTime": "2026-01-01T00:01:00Z",
    "result": "Suspended",
}
SUSPENDED: Final = {"phase": "Suspended", "attempt": 1, "attempts": [ATTEMPT], "managedSave": IMAGE}
VERBS: Final[Mapping[str, Json | None]] = {
    "start": None,
    "stop": RUNNING,
    "poweroff": RUNNING,
    "restart": RUNNING,
    "pause": RUNNING,
    "unpause": running(**PAUSED),
    "reset": RUNNING,
    "softreboot": RUNNING,
    "nmi": RUNNING,
    "sendkey": RUNNING,
    "freeze": RUNNING,
    "thaw": running(fsFreezeStatus="frozen"),
    "suspend": running(podName="p3", podUID="uid-3"),
    "resume": SUSPENDED,
    "migrate": RUNNING,
}
"""Status before each verb; None: never started."""
BODIES: Final[Mapping[str, Json]] = {"sendkey": {"keys": ["KEY_A"]}}


async def test_every_verb_does_to_the_stored_object_what_it_says(version: Version) -> None:
    assert {*VERBS, "cancelmigration", "setpassword"} == version.hubs[VIRTUAL_MACHINES.plural].verbs.keys()
    for name, spec in (("vm2", {"runStrategy": "Halted"}), ("vm3", {"managedSave": {"claimName": "memory"}})):
        made = await version.make(VIRTUAL_MACHINES, {**MACHINE, "metadata": {"name": name}, "spec": {**MACHINE["spec"], **spec}})
        await version.cluster.kube.put(PODS, launcher_pod(made, f"p{name[-1]}", f"uid-{name[-1]}"))
    for verb, status in VERBS.items():
        name = {"start": "vm2", "suspend": "vm3", "resume": "vm3"}.get(verb, "vm1")
        if status:
            found = await version.put_status(status, name=name)
            assert found.code == 200, (verb, found)
        before = await version.get(name=name)
        answer = await version.ask("PUT", VIRTUAL_MACHINES, name, verb, "dryRun=All", body=BODIES.get(verb, {}))
        assert answer.code == (201 if verb == "migrate" else 200), (verb, answer)
        if verb == "migrate":
            assert answer.body["apiVersion"] == f"{names.GROUP}/{version.name}"
            created = version.strategy(MIGRATIONS).to_hub(answer.body)
            assert created["spec"]["selector"] == {"name": "vm1"}
        else:
            assert answer.body["status"] != before.get("status")
            assert answer.body["spec"] == before["spec"]
        assert await version.get(name=name) == before, "a dry run writes nothing"


async def test_setpassword_reaches_the_node_and_leaves_no_trace(version: Version) -> None:
    await version.put_status(RUNNING)
    before = await version.get()
    body = {"user": "debian", "password": "s3cret"}
    answer = await version.ask("PUT", VIRTUAL_MACHINES, "vm1", "setpassword", "dryRun=All", body=body)
    assert (answer.code, version.handler.asked) == (200, [])
    answer = await version.ask("PUT", VIRTUAL_MACHINES, "vm1", "setpassword", body=body)
    assert (answer.code, answer.body) == (200, before), answer
    assert version.handler.asked == ["setpassword"]
    assert await version.get() == before
    assert not any(b"s3cret" in entry.value for entry in (await version.storage.range("/")).entries)


async def test_cancelmigration_deletes_the_migration_of_the_machine(version: Version) -> None:
    await version.put_status(RUNNING)
    assert (await version.ask("PUT", VIRTUAL_MACHINES, "vm1", "cancelmigration", body={})).code == 409
    await version.make(MIGRATIONS, MIGRATION)
    answer = await version.ask("PUT", VIRTUAL_MACHINES, "vm1", "cancelmigration", body={"migration": "move"})
    assert answer.code == 200, answer
    left = await version.ask("GET", MIGRATIONS, "move")
    assert left.code == 404 or left.body["metadata"]["deletionTimestamp"]


async def test_repeated_migrate_with_an_id_returns_its_migration(version: Version) -> None:
    assert (await version.put_status(RUNNING)).code == 200
    answers = [await version.ask("PUT", VIRTUAL_MACHINES, "vm1", "migrate", body={"id": "once"}) for _ in range(2)]
    assert [each.code for each in answers] == [201, 200], answers
    assert len({each.body["metadata"]["uid"] for each in answers}) == 1


async def test_a_verb_is_refused_in_the_state_that_does_not_allow_it(version: Version) -> None:
    for verb in ("start", "pause", "unpause", "reset", "migrate"):
        answer = await version.ask("PUT", VIRTUAL_MACHINES, "vm1", verb, body={})
        assert (answer.code, answer.body["reason"]) == (409, "Conflict"), (verb, answer)
    assert (await version.ask("PUT", VIRTUAL_MACHINES, "vm1", "stop", body={})).code == 200
    again = await version.ask("PUT", VIRTUAL_MACHINES, "vm1", "stop", body={})
    assert (again.code, again.body["reason"]) == (409, "Conflict")


async def test_every_stream_reaches_the_guest(version: Version) -> None:
    devices = {"graphics": [{"type": "vnc"}, {"type": "spice"}], "consoles": [{"type": "pty"}], "redirectedDevices": {"slots": 1}}
    spec = {"domain": {**MACHINE["spec"]["domain"], "devices": devices}}
    machine = await version.make(VIRTUAL_MACHINES, {**MACHINE, "metadata": {"name": "vm2"}, "spec": spec})
    await version.cluster.kube.put(PODS, launcher_pod(machine, "p9", "uid-9"))
    assert (await version.put_status(running(podName="p9", podUID="uid-9"), name="vm2")).code == 200
    paths = {each: each for each in version.strategy(VIRTUAL_MACHINES).connects} | {"portforward": "portforward/53/udp"}
    for path in (*paths.values(), "portforward/22"):
        async with opened(version, "vm2", path) as socket:
            await socket.send_bytes(b"root")
            assert await socket.receive_bytes() == b"ROOT"
    names_there = [
        *(set(version.hubs[VIRTUAL_MACHINES.plural].connects) - {"portforward", "log"}),
        "log0",
        "portforward-udp-53",
        "portforward-tcp-22",
    ]
    assert sorted(version.handler.asked) == sorted(names_there)


async def test_path_behind_a_stream_is_what_the_stream_takes(version: Version) -> None:
    await version.put_status(RUNNING)
    for path, code, said in (
        ("portforward", 400, "the path lacks port: …/PORT/PROTOCOL"),
        ("portforward/0", 400, "port must be a port of the guest, from 1 to 65535"),
        ("portforward/22/sctp", 400, "protocol must be tcp or udp"),
        ("portforward/22", 400, "Upgrade request required"),
        ("portforward/22/tcp/more", 404, "could not find the requested resource"),
        ("console/1", 404, "could not find the requested resource"),
    ):
        answer = await version.ask("GET", VIRTUAL_MACHINES, "vm1", path)
        assert (answer.code, said in answer.body["message"]) == (code, True), (path, answer)
    assert version.handler.asked == []


async def test_a_stream_of_a_machine_that_is_off_is_refused(version: Version) -> None:
    for stream in version.strategy(VIRTUAL_MACHINES).connects:
        answer = await version.ask("GET", VIRTUAL_MACHINES, "vm1", stream)
        assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert version.handler.asked == []


@asynccontextmanager
async def opened(version: Version, name: str, stream: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    cluster = version.cluster
    connector = aiohttp.TCPConnector(ssl=cluster.tls("front-proxy-client"))
    async with aiohttp.ClientSession(cluster.url, connector=connector) as session, asyncio.timeout(20):
        path = version.path(VIRTUAL_MACHINES, name, stream)
        async with session.ws_connect(path, headers=ADMINISTRATOR, protocols=(streams.SUBPROTOCOL,)) as socket:
            yield socket


async def test_every_read_answers_in_the_version_that_was_asked_for(version: Version) -> None:
    await version.put_status(RUNNING)
    assert TOLD.keys() == version.strategy(VIRTUAL_MACHINES).reads.keys()
    for what, told in TOLD.items():
        answer = await version.ask("GET", VIRTUAL_MACHINES, "vm1", what)
        assert (answer.code, answer.body["apiVersion"]) == (200, f"{names.GROUP}/{version.name}")
        assert {key: answer.body[key] for key in told} == told


async def test_discovery_and_openapi_have_the_same_subresources(version: Version) -> None:
    group = f"/apis/{names.GROUP}/{version.name}"
    _, found = await version.cluster.ask("GET", group, None, ADMINISTRATOR)
    listed = {each["name"]: each for each in found["resources"]}
    hub = version.hubs[VIRTUAL_MACHINES.plural]
    for name in (*hub.verbs, *hub.connects, *hub.reads, "status"):
        assert f"virtualmachines/{name}" in listed
    _, document = await version.cluster.ask("GET", f"/openapi/v3{group}", None, ADMINISTRATOR)
    assert references(document) <= document["components"]["schemas"].keys()


def references(value: Any) -> set[str]:
    if isinstance(value, list):
        return {found for each in value for found in references(each)}
    if not isinstance(value, dict):
        return set()
    found = {each for inner in value.values() for each in references(inner)}
    return found | ({str(value["$ref"]).rpartition("/")[2]} if "$ref" in value else set())


async def test_every_field_selector_selects_what_is_stored(version: Version) -> None:
    await version.put_status(RUNNING)
    pinned = {**MACHINE["spec"], "nodeName": "node2"}
    await version.make(VIRTUAL_MACHINES, {**MACHINE, "metadata": {"name": "vm2"}, "spec": pinned})
    await version.make(MIGRATIONS, MIGRATION)
    await version.put_status(PREPARING, MIGRATIONS, "move")
    await version.make(MIGRATIONS, {**MIGRATION, "metadata": {"name": "other"}, "spec": {"selector": {"name": "vm2"}}})
    for resource, selected in ((VIRTUAL_MACHINES, "vm1"), (VIRTUAL_MACHINES, "vm2"), (MIGRATIONS, "move"), (MIGRATIONS, "other")):
        hub = version.hubs[resource.plural]
        for label, value in hub.selectable_fields(await version.get(resource, selected)).items():
            assert [*await found(version, resource, f"{label}={value}")] == [selected], label
            assert selected not in await found(version, resource, f"{label}!={value}")
    assert (await version.ask("GET", VIRTUAL_MACHINES, "", "", "fieldSelector=status.podUID%3Duid-1")).code == 400


async def found(version: Version, resource: Resource, selector: str) -> list[str]:
    answer = await version.ask("GET", resource, "", "", f"fieldSelector={selector.replace('=', '%3D')}")
    assert answer.code == 200, answer
    return [each["metadata"]["name"] for each in answer.body]


async def test_a_watch_with_a_field_selector_tells_what_joins_it(version: Version) -> None:
    before = (await version.get())["metadata"]["resourceVersion"]
    await version.put_status(RUNNING)
    query = f"watch=1&timeoutSeconds=1&resourceVersion={before}&fieldSelector=status.phase%3DRunning"
    _, text = await version.cluster.ask("GET", f"{version.path(VIRTUAL_MACHINES)}?{query}", None, ADMINISTRATOR)
    event = text if isinstance(text, dict) else json.loads(text)
    assert (event["type"], event["object"]["apiVersion"]) == ("ADDED", f"{names.GROUP}/{version.name}")
    assert version.strategy(VIRTUAL_MACHINES).to_hub(event["object"])["status"]["phase"] == "Running"


def changes(version: Version, resource: Resource, name: str, status: Json) -> list[tuple[str, str, Any]]:
    part = version.written(resource, {"status": status})["status"]
    applied = {"apiVersion": f"{names.GROUP}/{version.name}", "kind": resource.kind, "metadata": {"name": name}, "status": part}
    return [
        ("PATCH", MERGE, {"status": part}),
        ("PATCH", "strategic-merge-patch+json", {"status": part}),
        ("PATCH", "json-patch+json", [{"op": "add", "path": path, "value": value} for path, value in leaves(part, "/status")]),
        ("PATCH", "apply-patch+yaml", applied),
    ]


def leaves(part: Json, path: str) -> Iterator[tuple[str, Any]]:
    for key, value in part.items():
        yield from leaves(value, f"{path}/{key}") if isinstance(value, dict) else [(f"{path}/{key}", value)]


async def refused(version: Version, resource: Resource, name: str, status: Json, by: Any) -> set[tuple[int, str]]:
    path, seen = version.path(resource, name, "status"), set()
    for method, kind, body in changes(version, resource, name, status):
        for dry in ("", "dryRun=All&"):
            query = f"{dry}fieldManager=x{'&force=true' if kind.startswith('apply') else ''}"
            code, answer = await version.cluster.ask(method, f"{path}?{query}", body, by, kind=kind)
            seen.add(Answer(code, answer).refused)
    return seen


async def test_pod_restriction_gives_a_machine_no_pod_but_its_own(version: Version) -> None:
    machine, before = await version.get(), await version.get()
    await version.cluster.kube.put(PODS, launcher_pod(machine, "p9", "uid-9", STOLEN))
    status = {**machine["status"], "podName": "p9", "podUID": "uid-9"}
    assert await refused(version, VIRTUAL_MACHINES, "vm1", {"podName": "p9", "podUID": "uid-9"}, CONTROLLER) == {(403, "status.podUID")}
    assert (await version.put_status(status, by=CONTROLLER)).refused == (403, "status.podUID")
    assert await version.get() == before
    await version.cluster.kube.put(PODS, launcher_pod(machine, "p8", "uid-8"))
    assert (await version.patch_status({"podName": "p8", "podUID": "uid-8"})).code == 200


async def test_pod_restriction_sends_a_guest_to_no_pod_but_its_own(version: Version) -> None:
    machine = await version.get()
    await version.put_status(RUNNING)
    await version.make(MIGRATIONS, MIGRATION)
    await version.cluster.kube.put(PODS, launcher_pod(machine, "p9", "uid-9", STOLEN))
    assert (await version.put_status(PREPARING, MIGRATIONS, "move")).code == 200
    stolen = {"targetPod": "p9", "targetPodUID": "uid-9"}
    assert await refused(version, MIGRATIONS, "move", stolen, CONTROLLER) == {(403, "status.targetPodUID")}
    addresses = {"targetPodIPs": ["10.244.9.9"]}
    assert await refused(version, MIGRATIONS, "move", addresses, CONTROLLER) == {(403, "status.targetPodIPs")}


async def test_node_restriction_lets_a_node_write_what_is_its_own(version: Version) -> None:
    assert (await version.put_status(RUNNING, by=virt_handler("node2"))).refused == (403, "status.nodeName")
    assert (await version.put_status(RUNNING, by=virt_handler("node1"))).code == 200
    for status, field_ in (
        ({"phase": "Failed"}, "status.nodeName"),
        ({"podIP": "10.0.0.66"}, "status.nodeName"),
        ({"nodeName": "node2", "podName": "p2", "podUID": "uid-2"}, "status.nodeName"),
    ):
        assert await refused(version, VIRTUAL_MACHINES, "vm1", status, virt_handler("node2")) == {(403, field_)}
    for status, field_ in (({"podName": "p2"}, "status.podName"), ({"podIP": "10.0.0.66"}, "status.podIP")):
        assert await refused(version, VIRTUAL_MACHINES, "vm1", status, virt_handler("node1")) == {(403, field_)}


async def test_node_restriction_allows_a_nodes_part_of_a_migration(version: Version) -> None:
    await version.put_status(RUNNING)
    await version.make(MIGRATIONS, MIGRATION)
    await version.put_status(PREPARING, MIGRATIONS, "move")
    ready = {**entered(PREPARING, "TargetReady"), "targetAddress": "10.0.0.2:8445"}
    forged = {**ready, "targetAddress": "10.0.0.1:8445"}
    assert (await version.put_status(ready, MIGRATIONS, "move", virt_handler("node1"))).refused == (403, "status.phase")
    assert (await version.put_status(forged, MIGRATIONS, "move", virt_handler("node2"))).refused == (403, "status.targetAddress")
    assert (await version.put_status(ready, MIGRATIONS, "move", virt_handler("node2"))).code == 200


async def test_node_restriction_limits_virt_handler_to_the_status(version: Version) -> None:
    await version.put_status(RUNNING)
    by = virt_handler("node1")
    others = [
        await version.ask("PATCH", VIRTUAL_MACHINES, "vm1", body={"spec": {"runStrategy": "Halted"}}, by=by, kind=MERGE),
        await version.ask("DELETE", VIRTUAL_MACHINES, "vm1", by=by),
        await version.ask("POST", MIGRATIONS, body=MIGRATION, by=by),
        *[await version.ask("PUT", VIRTUAL_MACHINES, "vm1", verb, body={}, by=by) for verb in ("stop", "pause", "migrate")],
    ]
    assert [each.code for each in others] == [403] * len(others), others


async def test_namespace_lifecycle_and_quotas_refuse_a_machine(version: Version) -> None:
    for namespace, code in (("ending", 403), ("absent", 404), ("full", 403)):
        answer = await version.ask("POST", VIRTUAL_MACHINES, body=MACHINE, namespace=namespace)
        assert answer.code == code, answer


async def moving(version: Version) -> Answer:
    return await version.ask("POST", MIGRATIONS, body={**MIGRATION, "spec": {**MIGRATION["spec"], "priority": 1}}, by=TENANT)


async def taking_an_account(version: Version) -> Answer:
    disks = [{"type": "ServiceAccount", "source": {"name": "robot"}}]
    spec = {"domain": {**MACHINE["spec"]["domain"], "devices": {"disks": disks}}}
    return await version.ask("POST", VIRTUAL_MACHINES, body={**MACHINE, "metadata": {"name": "vm2"}, "spec": spec}, by=TENANT)


async def editing(version: Version) -> Answer:
    return await version.ask("PATCH", VIRTUAL_MACHINES, "vm1", body={"spec": {"runStrategy": "Halted"}}, by=CONTROLLER, kind=MERGE)


async def deleting(version: Version) -> Answer:
    """Delete an unfinished Migration as virt-controller; return the answer. The admission policy reads the Migration's phase."""
    await version.make(MIGRATIONS, MIGRATION)
    await version.put_status(PREPARING, MIGRATIONS, "move")
    return await version.ask("DELETE", MIGRATIONS, "move", by=CONTROLLER)


async def marking(version: Version) -> Answer:
    labels = {"kubevirt.io/evicted-pod": "x"}
    return await version.ask("POST", MIGRATIONS, body={**MIGRATION, "metadata": {"name": "move", "labels": labels}}, by=TENANT)


JUDGED: Final[Mapping[str, tuple[Callable[[Version], Any], str]]] = {
    "migration-priorities.kubevirt.io": (moving, "requires the right to patch nodes"),
    "service-account-disks.kubevirt.io": (taking_an_account, "requires the label"),
    "virt-controller-machines.kubevirt.io": (editing, "and nothing else"),
    "evictions.kubevirt.io": (marking, "only virt-controller may set"),
}
"""For each of the chart's policies: a write that it refuses, and a part of its message."""


async def test_every_policy_of_the_chart_sees_the_fields_that_it_names(version: Version) -> None:
    assert JUDGED.keys() == {each["metadata"]["name"] for each in policies(VALIDATING_POLICIES.kind)}
    for policy, (write, why) in JUDGED.items():
        answer = await write(version)
        assert answer.code == 403, (policy, answer)
        assert policy in answer.body["message"]
        assert why in answer.body["message"]
    assert (await deleting(version)).code == 403
    await version.put_status(entered(PREPARING, "Failed", endTime=PREPARING["startTime"]), MIGRATIONS, "move")
    assert (await version.ask("DELETE", MIGRATIONS, "move", by=CONTROLLER)).code == 200


async def test_machine_has_one_open_migration_and_exclusive_disks(version: Version) -> None:
    await version.put_status(RUNNING)
    await version.make(MIGRATIONS, MIGRATION)
    second = await version.ask("POST", MIGRATIONS, body={**MIGRATION, "metadata": {"name": "second"}})
    assert (second.code, second.body["reason"]) == (409, "Conflict")
    disks = [{"type": "PersistentVolumeClaim", "source": {"name": "data"}}]
    spec = {"domain": {**MACHINE["spec"]["domain"], "devices": {"disks": disks}}}
    codes = []
    for name in ("vm2", "vm3"):
        machine = await version.make(VIRTUAL_MACHINES, {**MACHINE, "metadata": {"name": name}, "spec": spec})
        await version.cluster.kube.put(PODS, launcher_pod(machine, f"p-{name}", f"uid-{name}"))
        codes.append((await version.put_status({**SCHEDULED, "podName": f"p-{name}", "podUID": f"uid-{name}"}, name=name)).code)
    assert codes == [200, 409]


async def test_rules_of_the_kind_hold(version: Version) -> None:
    wrong = await version.ask(
        "POST", VIRTUAL_MACHINES, body={**MACHINE, "metadata": {"name": "vm2"}, "spec": {"domain": {"cpu": {"cores": 0}}}}
    )
    assert wrong.refused == (422, "spec.domain.cpu.cores")
    await version.put_status(RUNNING)
    assert (await version.patch_status({"podName": "../p"})).refused == (422, "status.podName")


async def test_every_guard_of_our_own_has_a_test_here() -> None:
    own = {plugins.NODE_RESTRICTION, plugins.POD_RESTRICTION, plugins.NAMESPACE_LIFECYCLE, plugins.RESOURCE_QUOTA}
    judges = {plugins.MUTATING_POLICY, plugins.MUTATING_WEBHOOK, plugins.VALIDATING_POLICY, plugins.VALIDATING_WEBHOOK}
    assert own | judges == set(plugins.ORDER), "a new plug-in needs a test above: it must judge an object of a second version"


async def test_the_second_version_moves_what_guards_read() -> None:
    obj: Object = {"apiVersion": "kubevirt.io/v1alpha1", "status": {"podUID": "uid-1", "nodeName": "node1"}}
    moved = second_version.moved(deepcopy(obj), second_version.MACHINES)
    assert moved["status"] == {"pod": {"uid": "uid-1"}, "node": "node1"}
    assert second_version.moved(moved, {there: here for here, there in second_version.MACHINES.items()}) == obj
