from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yarl
from aiohttp import web

from apiserver.apis.meta import errors, names
from apiserver.apis.meta.objects import condition, name_of, uid_of
from apiserver.apis.virt.lifecycle import evictions
from apiserver.apis.virt.places.resources import MIGRATIONS as MIGRATION_KIND
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from certs.reloading import Files
from controller.evictions import admission
from controller.evictions.admission import Evictions
from controller.evictions.eviction_plan import Limits
from controller.evictions.path_secret import FRESH_SECONDS, LOOKUP_SECONDS, PREVIOUS_SECONDS, PathSecret
from controller.evictions.webhook import NAME, PREFIX, EvictionWebhook, SecretRotation
from controller.reconcilers import trimming
from controller.reconcilers.certificates import certificate_plan
from controller.serving.evictions import EvictionServer, read
from controller.serving.evictions import Limits as ServerLimits
from tests.component.controller.test_controller import CLAIMS, MIGRATIONS, NODES, PODS, VMS
from tests.component.controller.test_serving import certificate
from tests.fakes import rbac
from tests.fakes.kubeapi import FakeAPI
from tests.unit.controller.reconcilers.builders import a_migration, a_pod, a_vm, an_attempt

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
POD = name_of(a_pod())


class FirstDay:
    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Ask:
    api: FakeAPI
    port: int
    session: aiohttp.ClientSession
    trust: ssl.SSLContext

    async def __call__(self, body: Any, path: str = "") -> tuple[int, Any]:
        url = yarl.URL(f"https://localhost:{self.port}{path or path_of(self.api)}", encoded=True)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(url, data=data, ssl=self.trust) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text


def review(name: str = POD, **rest: Any) -> dict[str, Any]:
    request = {
        "uid": "review-1",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": "eviction",
        "operation": "CREATE",
        "namespace": "default",
        "name": name,
        "object": {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}},
        **rest,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def configuration() -> dict[str, Any]:
    service = {"name": "virt-controller", "namespace": "kubevirt", "port": 443}
    return {"metadata": {"name": NAME}, "webhooks": [{"name": NAME, "clientConfig": {"service": service}}]}


def path_of(api: FakeAPI) -> str:
    return str(api.get(WEBHOOKS, "", NAME)["webhooks"][0]["clientConfig"]["service"]["path"])


class HangingAPI(FakeAPI):
    def __init__(self) -> None:
        super().__init__()
        self.hangs: Callable[[web.Request], bool] = lambda _: False
        self.hanging = 0
        self.go_on = asyncio.Event()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.hangs(request):
            self.hanging += 1
            await self.go_on.wait()
        return await super()._handle(request)


async def hung(api: HangingAPI, number: int = 1) -> None:
    async with asyncio.timeout(10):
        while api.hanging < number:
            await asyncio.sleep(0.01)


@pytest.fixture
async def api() -> HangingAPI:
    made = HangingAPI()
    await made.put(VMS, a_vm(phase="Running", attempts=[an_attempt()]))
    await made.put(PODS, a_pod())
    await made.put(NODES, {"metadata": {"name": "node1"}, "spec": {"unschedulable": True}})
    await made.put(WEBHOOKS, configuration())
    return made


async def put_machines(api: FakeAPI, count: int, namespace: str = "default") -> list[str]:
    pods = []
    for number in range(count):
        vm, pod = a_vm(phase="Running", attempts=[an_attempt()]), a_pod()
        name, uid = f"virt-launcher-vm{number}-aaaaa", f"{namespace}-{number}"
        vm["metadata"] |= {"name": f"vm{number}", "namespace": namespace, "uid": f"uid-{uid}"}
        pod["metadata"] |= {"name": name, "namespace": namespace, "uid": f"pod-{uid}"}
        pod["metadata"]["ownerReferences"][0] |= {"name": f"vm{number}", "uid": f"uid-{uid}"}
        vm["status"] |= {"podName": name, "podUID": f"pod-{uid}"}
        await api.put(VMS, vm)
        await api.put(PODS, pod)
        pods.append(name)
    return pods


SERVER_LIMITS = ServerLimits()


@asynccontextmanager
async def served(
    api: FakeAPI, tmp_path: Path, server_limits: ServerLimits = SERVER_LIMITS, seconds: float = admission.SECONDS
) -> AsyncIterator[Ask]:
    given = certificate(tmp_path / "tls")
    assert given.authorities is not None
    trust = ssl.create_default_context(cafile=str(given.authorities))
    api.authorize = rbac.authorizer("virt-controller")
    anybody = aiohttp.TCPConnector(limit=0)
    async with api.serving() as config, Client(config, user_agent="test") as client, aiohttp.ClientSession(connector=anybody) as session:
        await SecretRotation(client).rotate()
        indexers = {admission.BY_CONCERN: admission.concern_of}
        migrations = Informer(client, MIGRATION_KIND, indexers=indexers, trim=trimming.trim_migration)
        admit = Evictions(client, FirstDay(), Limits(), migrations, namespace="kubevirt", seconds=seconds).admit
        files = Files(given.certificate, given.key)
        server = EvictionServer(0, PREFIX, admit, PathSecret(client).holds, files, host="127.0.0.1", limits=server_limits)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(server.run()), tasks.create_task(migrations.run())]
            async with asyncio.timeout(10):
                while not server.bound_port:
                    await asyncio.sleep(0.01)
            yield Ask(api, server.bound_port, session, trust)
            for each in running:
                each.cancel()
    assert api.forbidden == []


async def test_eviction_creates_one_migration_and_waits_for_the_guest(api: FakeAPI, tmp_path: Path) -> None:
    async with served(api, tmp_path) as ask:
        code, answer = await ask(review())
        assert code == 200
        (made,) = api.all(MIGRATIONS)
        response = answer["response"]
        assert (response["uid"], response["allowed"]) == ("review-1", False)
        assert (response["status"]["code"], response["status"]["reason"]) == (429, "TooManyRequests")
        assert "must move to another node first" in response["status"]["message"]

        async with asyncio.TaskGroup() as tasks:
            for _ in range(5):
                tasks.create_task(ask(review()))
        assert len(api.all(MIGRATIONS)) == 1

        await api.edit(VMS, "default", "testvm", lambda obj: obj["status"].update(podName="there", podUID="there"))
        await api.edit(MIGRATIONS, "default", name_of(made), lambda obj: obj.update(status={"phase": "Succeeded"}))
        async with asyncio.timeout(10):
            while not (await ask(review()))[1]["response"]["allowed"]:
                await asyncio.sleep(0.02)


def reads(api: FakeAPI, kind: str) -> int:
    return len([1 for each in api.requests if each[0] == "GET" and kind in each[1].split("?")[0].split("/")])


async def test_a_waiting_eviction_is_refused_again_without_reads(api: FakeAPI, tmp_path: Path) -> None:
    async with served(api, tmp_path) as ask:
        await ask(review())
        _, first = await ask(review())
        before = [reads(api, each) for each in ("pods", "virtualmachines", "nodes")]
        _, again = await ask(review())
        assert [reads(api, each) for each in ("pods", "virtualmachines", "nodes")] == before
        assert again == first

        (made,) = api.all(MIGRATIONS)
        await api.edit(MIGRATIONS, "default", name_of(made), lambda obj: obj.update(status={"phase": "Failed"}))
        async with asyncio.timeout(10):
            while "failed" not in words(await ask(review())):
                await asyncio.sleep(0.02)
        assert reads(api, "pods") > before[0]


async def test_a_drain_of_many_guests_reads_their_node_once(api: HangingAPI, tmp_path: Path) -> None:
    pods = await put_machines(api, 20)
    async with served(api, tmp_path) as ask:
        api.hangs = lambda request: request.path.endswith("/nodes")
        async with asyncio.TaskGroup() as tasks:
            for pod in pods:
                tasks.create_task(ask(review(pod)))
            async with asyncio.timeout(10):
                while reads(api, "virtualmachines") < len(pods):
                    await asyncio.sleep(0.01)
            await hung(api)
            api.go_on.set()
        assert api.hanging == 1
        places = len(api.all(MIGRATIONS))
        assert 0 < places < len(pods)
        before = len(api.requests)
        waiting = [await ask(review(pod)) for pod in pods]
        assert all(not each[1]["response"]["allowed"] for each in waiting)
        assert len(api.requests) - before <= 3 * places, "the others wait without reads"


async def test_client_of_a_moving_eviction_is_logged(api: FakeAPI, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with served(api, tmp_path) as ask:
        await ask(review())
    (moved,) = (each for each in caplog.records if each.message == "created a Migration because the pod of a guest is evicted")
    assert moved.__dict__["peer"] == "127.0.0.1"


@pytest.mark.parametrize(("mine", "anothers", "moves"), [("ReadWriteMany", "ReadWriteOnce", 1), ("ReadWriteOnce", "ReadWriteMany", 0)])
async def test_migratability_depends_on_claims_of_the_own_namespace(
    api: FakeAPI, tmp_path: Path, mine: str, anothers: str, moves: int
) -> None:
    for namespace, mode in (("aaa", anothers), ("default", mine), ("zzz", anothers)):
        await api.put(CLAIMS, {"metadata": {"name": "data", "namespace": namespace}, "spec": {"accessModes": [mode]}})
    disk = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
    await api.edit(VMS, "default", "testvm", lambda obj: obj["spec"]["domain"].update(devices={"disks": [disk]}))
    async with served(api, tmp_path) as ask:
        assert (await ask(review()))[1]["response"]["allowed"] == (not moves)
        assert len(api.all(MIGRATIONS)) == moves


@pytest.mark.parametrize("dry", [{"dryRun": True}, {"object": {"deleteOptions": {"dryRun": ["All"]}}}])
async def test_dry_run_moves_no_guest(api: FakeAPI, tmp_path: Path, dry: dict[str, Any]) -> None:
    async with served(api, tmp_path) as ask:
        _, answer = await ask(review(**dry))
        assert api.all(MIGRATIONS) == []
        # kubectl drain would repeat a 429 until its timeout.
        assert (answer["response"]["allowed"], "status" in answer["response"]) == (True, False)
        (warning,) = answer["response"]["warnings"]
        assert "must move to another node first" in warning


@pytest.mark.parametrize(("strategy", "words"), [("External", "another program"), ("LiveMigrate", "cannot migrate")])
async def test_dry_run_of_a_manual_eviction_is_refused_for_good(api: FakeAPI, tmp_path: Path, strategy: str, words: str) -> None:
    def stays(obj: dict[str, Any]) -> None:
        obj["spec"]["evictionStrategy"] = strategy
        told = {"type": "Migratable", "status": "False", "reason": "NotMigratable", "message": "it has a device of the node"}
        obj["status"].setdefault("conditions", []).append(told)

    await api.edit(VMS, "default", "testvm", stays)
    async with served(api, tmp_path) as ask:
        for dry, code in ((True, 403), (False, 429)):
            _, answer = await ask(review(dryRun=dry))
            assert (answer["response"]["allowed"], answer["response"]["status"]["code"]) == (False, code)
            assert words in answer["response"]["status"]["message"]


def words(answer: tuple[int, dict[str, Any]]) -> str:
    """Return a webhook's reason against an eviction: the refusal, or a dry run's warning."""
    response = answer[1]["response"]
    return str(response["warnings"][0] if response["allowed"] else response["status"]["message"])


def shuts_down(obj: dict[str, Any]) -> None:
    obj["spec"] |= {"evictionStrategy": "Shutdown", "runStrategy": "Once"}


def disruption(api: FakeAPI) -> dict[str, Any]:
    return dict(condition(api.get(VMS, "default", "testvm")["status"].get("conditions"), "DisruptionTarget") or {})


async def test_guest_to_be_ended_records_the_eviction_first(api: FakeAPI, tmp_path: Path) -> None:
    await api.edit(VMS, "default", "testvm", shuts_down)
    async with served(api, tmp_path) as ask:
        assert (await ask(review(dryRun=True)))[1]["response"]["allowed"]
        assert disruption(api) == {}

        for _ in range(2):
            assert (await ask(review()))[1]["response"]["allowed"]
            assert disruption(api)["reason"] == "EvictionAllowed"


@pytest.mark.parametrize("error", [errors.Conflict("it was changed"), errors.ServiceUnavailable("etcd is away")], ids=["changed", "away"])
async def test_an_eviction_that_cannot_be_written_down_is_asked_again(tmp_path: Path, error: errors.StatusError) -> None:
    class Unwritable(FakeAPI):
        refuses = True

        async def _handle(self, request: web.Request) -> web.StreamResponse:
            if self.refuses and request.method == "PATCH":
                return web.json_response(error.to_json(), status=error.code)
            return await super()._handle(request)

    api = Unwritable()
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    shuts_down(vm)
    await api.put(VMS, vm)
    await api.put(PODS, a_pod())
    await api.put(WEBHOOKS, configuration())
    async with served(api, tmp_path) as ask:
        _, answer = await ask(review())
        assert (answer["response"]["allowed"], answer["response"]["status"]["code"]) == (False, 429)
        assert "retry the eviction" in answer["response"]["status"]["message"]
        assert disruption(api) == {}

        api.refuses = False
        assert (await ask(review()))[1]["response"]["allowed"]
        assert disruption(api)["reason"] == "EvictionAllowed"


async def test_etcds_only_member_is_refused_in_its_namespace(api: FakeAPI, tmp_path: Path) -> None:
    labels = {"kubevirt.io": "etcd"}
    for namespace in ("kubevirt", "default"):
        metadata = {"name": "kubevirt-etcd-0", "namespace": namespace, "labels": labels}
        await api.put(PODS, {"metadata": metadata, "spec": {"nodeName": "node1"}, "status": {"phase": "Running"}})
    async with served(api, tmp_path) as ask:
        _, answer = await ask(review("kubevirt-etcd-0", namespace="kubevirt"))
        assert (answer["response"]["allowed"], answer["response"]["status"]["code"]) == (False, 429)
        assert "move-etcd --to NODE" in answer["response"]["status"]["message"]
        _, answer = await ask(review("kubevirt-etcd-0", namespace="kubevirt", dryRun=True))
        assert (answer["response"]["allowed"], answer["response"]["status"]["code"]) == (False, 403)
        assert (await ask(review("kubevirt-etcd-0")))[1]["response"]["allowed"], "a untrusted's"


async def test_pods_that_are_no_machines_may_go(api: FakeAPI, tmp_path: Path) -> None:
    plain = {"metadata": {"name": "virt-launcher-not", "namespace": "default"}, "spec": {}, "status": {"phase": "Running"}}
    await api.put(PODS, plain)
    async with served(api, tmp_path) as ask:
        for name in ("virt-launcher-not", "virt-launcher-absent"):
            assert (await ask(review(name)))[1]["response"]["allowed"]


async def test_failed_lookup_asks_to_retry(api: FakeAPI, tmp_path: Path) -> None:
    async with served(api, tmp_path) as ask:
        await ask(review(dryRun=True))
        for before in (0, 1):
            api.refusals += [
                *[web.Response(text=json.dumps(a_pod()), content_type="application/json")] * before,
                errors.ServiceUnavailable("etcd is away"),
            ]
            _, answer = await ask(review(dryRun=True))
            assert (answer["response"]["allowed"], answer["response"]["status"]["code"]) == (False, 429)
            assert "retry the eviction" in answer["response"]["status"]["message"]


@pytest.mark.parametrize("path", ["/", PREFIX, "/metrics"])
async def test_there_is_nothing_else_to_ask_for(api: FakeAPI, tmp_path: Path, path: str) -> None:
    async with served(api, tmp_path) as ask:
        assert (await ask(review(), path))[0] == 404


@pytest.mark.parametrize("path", [f"{PREFIX}guessed", "/evictions/%C3%A4", "/evictions/%ED%A0%80"])
async def test_caller_without_the_secret_moves_nothing_and_gets_429(api: FakeAPI, tmp_path: Path, path: str) -> None:
    async with served(api, tmp_path) as ask:
        for pod in (POD, "virt-launcher-absent"):
            code, answer = await ask(review(pod), path)
            assert (code, answer["response"]["allowed"], answer["response"]["status"]["code"]) == (200, False, 429)
        assert api.all(MIGRATIONS) == []
        assert not [each for each in api.requests if "/pods/" in each[1]]


async def test_large_body_without_the_secret_is_not_read(api: FakeAPI, tmp_path: Path) -> None:
    large = {**review(), "padding": ["x" * 100] * 60}
    async with served(api, tmp_path) as ask:
        assert (await ask(large, f"{PREFIX}guessed"))[0] == 429
        assert (await ask(large))[0] == 200


async def test_body_of_unknown_length_without_the_secret_is_not_read(api: FakeAPI, tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield json.dumps(review()).encode()

    async with served(api, tmp_path) as ask:
        url = f"https://localhost:{ask.port}{PREFIX}guessed"
        async with ask.session.post(url, data=pieces(), ssl=ask.trust) as response:
            assert (response.status, await response.read()) == (429, b"")


async def test_a_body_that_does_not_come_is_not_waited_for(api: FakeAPI, tmp_path: Path) -> None:
    async with served(api, tmp_path, ServerLimits(body_seconds=0.1)) as ask, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("localhost", ask.port, ssl=ask.trust)
        writer.write(f"POST {path_of(api)} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"408"
        writer.close()


async def test_unavailable_secret_refuses_evictions_until_later(api: FakeAPI, tmp_path: Path) -> None:
    async with served(api, tmp_path) as ask:
        api.refusals += [errors.ServiceUnavailable("etcd is away")]
        answers = [await ask(review()) for _ in range(2)]
        assert [(code, answer["response"]["status"]["code"]) for code, answer in answers] == [(200, 429)] * 2
        assert api.all(MIGRATIONS) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"[" * 60000,
        b"\xff",
        {},
        {"request": []},
        review(""),
        review(uid=7),
        review(subResource="status"),
        review(resource={"resource": "pods", "group": "x"}),
    ],
)
async def test_invalid_eviction_review_is_a_bad_request(api: FakeAPI, tmp_path: Path, body: Any) -> None:
    async with served(api, tmp_path) as ask:
        code, text = await ask(body)
        assert (code, "AdmissionReview" in text) == (400, True)


async def test_a_flood_of_bytes_is_not_read(api: FakeAPI, tmp_path: Path) -> None:
    async with served(api, tmp_path) as ask:
        assert (await ask(b" " * (1 << 20)))[0] == 413


def test_names_are_read_as_they_are() -> None:
    asked = read(review())
    assert (asked.namespace, asked.name, asked.dry_run) == ("default", POD, False)


async def test_path_and_authorities_are_written_apart(api: FakeAPI) -> None:
    async with api.serving() as config, Client(config, user_agent="test") as client:
        webhook, rotation = EvictionWebhook(client), SecretRotation(client)
        assert await webhook.fingerprint() == certificate_plan.fingerprint(b"")
        await rotation.rotate()
        path = path_of(api)
        assert path.startswith(PREFIX)
        secret = path.removeprefix(PREFIX)
        assert len(secret) > 30
        assert not names.subdomain_errors(secret)
        await webhook.inject(b"two")
        assert path_of(api) == path
        assert await webhook.fingerprint() == certificate_plan.fingerprint(b"two")
        assert api.get(WEBHOOKS, "", NAME)["webhooks"][0]["clientConfig"]["caBundle"] == base64.b64encode(b"two").decode()
        await rotation.rotate()
        assert path_of(api) != path
        assert await webhook.fingerprint() == certificate_plan.fingerprint(b"two")
        await api.remove(WEBHOOKS, "", NAME)
        assert await webhook.fingerprint() is None


async def test_secret_is_rotated_despite_failed_writes(api: FakeAPI) -> None:
    async with api.serving() as config, Client(config, user_agent="test") as client:
        api.refusals += [errors.Conflict("somebody wrote"), errors.ServiceUnavailable("etcd is away"), errors.NotFound("not yet")]
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(SecretRotation(client, interval=0.01, retry=0.01).run())
            shown: set[str] = set()
            async with asyncio.timeout(10):
                while len(shown) < 3:
                    shown.add(str(api.get(WEBHOOKS, "", NAME)["webhooks"][0]["clientConfig"]["service"].get("path")))
                    await asyncio.sleep(0.005)
            running.cancel()


async def test_all_webhooks_of_the_configuration_have_one_secret(api: FakeAPI) -> None:
    two = configuration()
    two["webhooks"].append({**two["webhooks"][0], "name": "again"})
    await api.put(WEBHOOKS, two)
    async with api.serving() as config, Client(config, user_agent="test") as client:
        await SecretRotation(client).rotate()
    paths = [each["clientConfig"]["service"]["path"] for each in api.get(WEBHOOKS, "", NAME)["webhooks"]]
    assert paths == [path_of(api)] * 2


async def test_the_secret_is_replaced_once_there_is_a_server_again(api: FakeAPI, caplog: pytest.LogCaptureFixture) -> None:
    async with api.serving() as config:
        pass
    async with Client(config, user_agent="test") as client, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(SecretRotation(client, retry=0.01).run())
        async with asyncio.timeout(20):
            while sum("retrying" in each.message for each in caplog.records) < 2:
                await asyncio.sleep(0.01)
        running.cancel()


async def test_of_many_that_are_evicted_at_once_two_move(api: FakeAPI, tmp_path: Path) -> None:
    pods = await put_machines(api, 6)
    async with served(api, tmp_path) as ask, asyncio.TaskGroup() as tasks:
        for name in pods:
            tasks.create_task(ask(review(name)))
    assert len(api.all(MIGRATIONS)) == Limits().migrations_per_node


async def test_undrained_node_moves_a_single_guest(api: FakeAPI, tmp_path: Path) -> None:
    await api.put(NODES, {"metadata": {"name": "node1"}, "spec": {}})
    pods = await put_machines(api, 6)
    async with served(api, tmp_path) as ask:
        said = [(await ask(review(name)))[1]["response"]["status"]["message"] for name in pods]
        assert len(api.all(MIGRATIONS)) == Limits().shared().migrations_per_node == 1
        assert all("node node1 is not being drained" in each for each in said[1:])
        await api.put(NODES, {"metadata": {"name": "node1"}, "spec": {"unschedulable": True}})
        await ask(review(pods[5]))
        assert len(api.all(MIGRATIONS)) == 2


async def test_eviction_after_an_uncordon_waits_for_a_new_cordon(api: FakeAPI, tmp_path: Path) -> None:
    await api.edit(PODS, "default", POD, lambda obj: obj["metadata"].update(creationTimestamp="2025-12-31T00:00:00Z"))
    pods = [POD, *await put_machines(api, 3)]

    async def said(ask: Ask) -> list[str]:
        return [(await ask(review(name)))[1]["response"]["status"]["message"] for name in pods]

    async with served(api, tmp_path) as ask:
        assert sum("its migration is starting" in each for each in await said(ask)) == 2
    await api.put(NODES, {"metadata": {"name": "node1"}, "spec": {}})
    async with served(api, tmp_path) as ask:
        told = await said(ask)
        assert all("must move to another node first: migration testvm-evacuation-" in each for each in told[:1])
        assert all("node node1 was uncordoned, which ended its drain: the guest of virtual machine vm" in each for each in told[2:])
        for each in api.all(MIGRATIONS):
            ended = {"phase": "Succeeded", "endTime": "2026-01-01T00:00:00Z"}
            await api.edit(MIGRATIONS, "default", name_of(each), lambda obj: obj.update(status=ended))  # noqa: B023  # it is awaited at once
        async with asyncio.timeout(10):
            while not all("was uncordoned" in each for each in await said(ask)):
                await asyncio.sleep(0.02)
        assert len(api.all(MIGRATIONS)) == 2
        await api.put(NODES, {"metadata": {"name": "node1"}, "spec": {"unschedulable": True}})
        assert sum("its migration is starting" in each for each in await said(ask)) == 2
        assert len(api.all(MIGRATIONS)) == 4


async def test_a_drain_of_hundreds_of_guests_is_answered_at_once(api: HangingAPI, tmp_path: Path) -> None:
    """kube-apiserver opens a connection for each; one that closes early ends the drain with 500."""
    pods = await put_machines(api, 140)
    async with served(api, tmp_path) as ask:
        await ask(review("virt-launcher-absent"))
        api.hangs = lambda request: "/pods/virt-launcher-vm" in request.path
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(ask(review(name))) for name in pods]
            await hung(api, 50)
            api.go_on.set()
    assert [each.result()[0] for each in asked] == [200] * len(pods)
    assert len(api.all(MIGRATIONS)) == Limits().migrations_per_node


async def test_pending_migration_of_others_counts_and_delays_no_review(api: HangingAPI, tmp_path: Path) -> None:
    pods = await put_machines(api, 3, "others")
    async with served(api, tmp_path) as ask:
        api.hangs = lambda request: request.method == "POST" and "/namespaces/default/" in request.path
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(ask(review()))
            await hung(api)
            _, again = await ask(review())
            assert again["response"]["status"]["message"].endswith("must move to another node first: its migration is starting")
            said = [(await ask(review(name, namespace="others")))[1]["response"]["status"]["message"] for name in pods]
            assert "its migration is starting" in said[0]
            assert all("2 migrations from node node1 are in progress" in each for each in said[1:])
            api.go_on.set()
        assert "its migration is starting" in first.result()[1]["response"]["status"]["message"]
        assert len(api.all(MIGRATIONS)) == 2


async def test_a_migration_that_is_refused_says_why_and_counts_no_more(api: HangingAPI, tmp_path: Path) -> None:
    (pod,) = await put_machines(api, 1, "others")

    def quota(path: str, obj: dict[str, Any]) -> None:
        if path == MIGRATIONS and obj["metadata"]["namespace"] == "default":
            raise errors.Forbidden("exceeded quota: q, requested: count/migrations.kubevirt.io=1\n" + "x" * 4000)

    api.admit = quota
    async with served(api, tmp_path) as ask:
        for _ in range(3):
            status = (await ask(review()))[1]["response"]["status"]
            assert status["code"] == 429
            assert "virtual machine testvm cannot be migrated because the API server rejected its Migration: " in status["message"]
            assert "exceeded quota: q, requested: count/migrations.kubevirt.io=1 |" in status["message"]
            assert len(status["message"]) < 700
        await ask(review(pod, namespace="others"))
        assert len(api.all(MIGRATIONS)) == 1


@pytest.mark.parametrize("name", ["a/b", "..", "%2e", "", "a" * (1 << 15)])
async def test_pod_with_an_impossible_owner_name_may_be_evicted(api: FakeAPI, tmp_path: Path, name: str) -> None:
    pod = a_pod()
    pod["metadata"]["ownerReferences"][0]["name"] = name
    await api.put(PODS, pod)
    async with served(api, tmp_path) as ask:
        assert (await ask(review()))[1]["response"]["allowed"]


async def test_reviews_of_one_pod_share_a_lookup_and_delay_no_other(api: HangingAPI, tmp_path: Path) -> None:
    claims = [f"data-{number}" for number in range(26)]
    disks = [{"name": each, "type": "PersistentVolumeClaim", "source": {"name": each}} for each in claims]
    await api.edit(VMS, "default", "testvm", lambda obj: obj["spec"]["domain"].update(devices={"disks": disks}))
    (other,) = await put_machines(api, 1, "others")
    api.hangs = lambda request: "persistentvolumeclaims" in request.path
    async with served(api, tmp_path) as ask, asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(ask(review(dryRun=True))) for _ in range(20)]
        await hung(api, len(claims))
        _, answer = await ask(review(other, namespace="others"))
        assert "its migration is starting" in answer["response"]["status"]["message"]
        asking[0].cancel()
        assert api.hanging == len(claims)
        api.go_on.set()
        assert all([(await each)[1]["response"]["allowed"] for each in asking[1:]]), "its claims are nowhere: it cannot move, and need not"
        await ask(review(dryRun=True))
        assert api.hanging == 2 * len(claims), "who asks later is judged by what is so then"


async def test_unsound_machine_refuses_its_eviction_until_later(api: FakeAPI, tmp_path: Path) -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    await api.put(VMS, {**vm, "status": {**vm["status"], "conditions": ["Migratable"]}})
    async with served(api, tmp_path) as ask:
        code, answer = await ask(review())
        assert (code, answer["response"]["status"]["code"]) == (200, 429)
        assert "retry the eviction" in answer["response"]["status"]["message"]


async def test_unsound_migration_counts_as_failed_now(api: FakeAPI, tmp_path: Path) -> None:
    failed = {"metadata": {"name": "m", "namespace": "default", "labels": {"kubevirt.io/evicted-pod": uid_of(a_pod())}}}
    await api.put(MIGRATIONS, {**failed, "spec": {"selector": {"name": "testvm"}}, "status": {"phase": "Failed", "endTime": "never"}})
    async with served(api, tmp_path) as ask:
        code, answer = await ask(review())
        assert (code, answer["response"]["status"]["code"]) == (200, 429)
        assert "the next migration starts in 15 s" in answer["response"]["status"]["message"]


@pytest.mark.parametrize("status", [{"phase": "Running", "conditions": 4}, {"phase": "Running", "phaseTransitionTimestamps": 4}])
async def test_unsound_foreign_migration_blocks_no_eviction(api: FakeAPI, tmp_path: Path, status: dict[str, Any]) -> None:
    metadata = {"name": "m", "namespace": "others", "labels": {"kubevirt.io/evicted-pod": "x", "kubevirt.io/drain": "true"}}
    await api.put(MIGRATIONS, {"metadata": metadata, "spec": {"selector": {"name": "theirs"}}, "status": status})
    async with served(api, tmp_path) as ask:
        _, answer = await ask(review())
        assert "must move to another node first" in answer["response"]["status"]["message"]


def test_eviction_considers_only_relevant_migrations() -> None:
    """Tenants can create any number that end immediately, for VMs that do not exist."""
    drained = {evictions.POD_LABEL: "x", evictions.DRAIN_LABEL: "true"}
    for phase, labels, concern in (
        ("", {}, admission.ALL),
        ("Running", {}, admission.ALL),
        ("Failed", {}, ("default", "testvm")),
        ("Succeeded", {evictions.POD_LABEL: "x"}, ("default", "testvm")),
        ("Succeeded", drained, admission.ALL),
    ):
        made = a_migration(phase=phase)
        made["metadata"]["labels"] = labels
        assert admission.concern_of(made) == [concern]


async def test_deleted_eviction_migration_causes_a_pause(api: FakeAPI, tmp_path: Path) -> None:
    async with served(api, tmp_path) as ask:
        await ask(review())
        (made,) = api.all(MIGRATIONS)
        await api.edit(MIGRATIONS, "default", name_of(made), lambda obj: obj["metadata"].update(ownerReferences=[]))
        await api.remove(MIGRATIONS, "default", name_of(made))
        async with asyncio.timeout(10):
            while "must move to another node first" in (said := words(await ask(review(dryRun=True)))):
                await asyncio.sleep(0.02)
        assert f"migration {name_of(made)} was cancelled (it was deleted); the next migration starts in 300 s" in said
        await ask(review())
        assert api.all(MIGRATIONS) == []


@pytest.mark.parametrize("dry", [False, True])
async def test_waiting_namespace_gets_the_next_place_except_dry_runs(api: FakeAPI, tmp_path: Path, *, dry: bool) -> None:
    pods, (other,) = await put_machines(api, 3), await put_machines(api, 1, "others")
    async with served(api, tmp_path) as ask:

        async def said(pod: str, **rest: Any) -> str:
            return words(await ask(review(pod, **rest)))

        for pod in pods[:2]:
            assert "its migration is starting" in await said(pod)
        assert "2 migrations from node node1 are in progress" in await said(other, namespace="others", dryRun=dry)
        done = name_of(api.all(MIGRATIONS)[0])
        await api.edit(MIGRATIONS, "default", done, lambda obj: obj.update(status={"phase": "Succeeded"}))
        async with asyncio.timeout(10):
            while "2 migrations" in (third := await said(pods[2])):
                await asyncio.sleep(0.02)
        assert ("1 migration of namespace default from node node1 is in progress, and guests of other namespaces wait" in third) is not dry
        assert ("its migration is starting" in await said(other, namespace="others")) is not dry


async def test_an_answer_that_takes_too_long_is_to_ask_again(api: HangingAPI, tmp_path: Path) -> None:
    async with served(api, tmp_path, ServerLimits(answer_seconds=0.2)) as ask:
        api.hangs = lambda request: "webhook" in request.path
        code, answer = await ask(review())
        assert (code, answer["response"]["status"]["code"]) == (200, 429)
        api.go_on.set()


async def test_no_guest_moves_before_migrations_are_known(api: HangingAPI, tmp_path: Path) -> None:
    api.hangs = lambda request: request.method == "GET" and request.path == MIGRATIONS
    async with served(api, tmp_path, seconds=0.5) as ask:
        _, answer = await ask(review())
        assert answer["response"]["status"]["message"].endswith("may be evicted; retry the eviction")
        assert api.all(MIGRATIONS) == []
        api.go_on.set()


async def test_idle_connections_do_not_displace_a_waiting_one(api: HangingAPI, tmp_path: Path) -> None:
    async with served(api, tmp_path, ServerLimits(connections=8)) as ask, contextlib.AsyncExitStack() as stack:
        api.hangs = lambda request: "/pods/" in request.path
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(ask(review()))
            await hung(api)
            untrusted = ssl.create_default_context()
            untrusted.check_hostname, untrusted.verify_mode = False, ssl.CERT_NONE
            for _ in range(12):
                _, writer = await asyncio.open_connection("127.0.0.1", ask.port, ssl=untrusted)
                stack.callback(writer.close)
            api.go_on.set()
        assert asked.result()[0] == 200


async def test_those_who_come_first_and_at_once_are_all_let_in(api: FakeAPI, tmp_path: Path) -> None:
    async with served(api, tmp_path) as ask, asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(ask(review())) for _ in range(8)]
    assert {each.result()[0] for each in asked} == {200}


async def test_previous_secret_is_valid_for_a_while(api: FakeAPI) -> None:
    now = 0.0
    async with api.serving() as config, Client(config, user_agent="test") as client:
        rotation, known = SecretRotation(client), PathSecret(client, lambda: now)
        await rotation.rotate()
        first = path_of(api).removeprefix(PREFIX)
        assert await known.holds(first)
        await rotation.rotate()
        second = path_of(api).removeprefix(PREFIX)
        now = LOOKUP_SECONDS
        assert await known.holds(second)
        assert await known.holds(first)
        now += PREVIOUS_SECONDS - 0.1
        assert await known.holds(first)
        now += 0.1
        assert not await known.holds(first)
        assert await known.holds(second)
        for guess in ("", "guess", second[:-1], "ä"):
            assert not await known.holds(guess)


async def test_old_secret_expires_without_other_evictions(api: FakeAPI) -> None:
    now = 0.0
    async with api.serving() as config, Client(config, user_agent="test") as client:
        rotation, known = SecretRotation(client), PathSecret(client, lambda: now)
        await rotation.rotate()
        first = path_of(api).removeprefix(PREFIX)
        assert await known.holds(first)
        await rotation.rotate()
        until = FRESH_SECONDS + PREVIOUS_SECONDS
        while now < until:
            assert await known.holds(first)
            now += 10.0
        assert not await known.holds(first)
        now += 10 * until
        assert not await known.holds(first)


async def test_a_secret_does_not_outlive_its_configuration(api: FakeAPI) -> None:
    now = 0.0
    async with api.serving() as config, Client(config, user_agent="test") as client:
        rotation, known = SecretRotation(client), PathSecret(client, lambda: now)
        await rotation.rotate()
        first = path_of(api).removeprefix(PREFIX)
        assert await known.holds(first)
        await api.remove(WEBHOOKS, "", NAME)
        now = FRESH_SECONDS
        assert await known.holds(first)
        now += PREVIOUS_SECONDS
        assert not await known.holds(first)
        await api.put(WEBHOOKS, configuration())
        await rotation.rotate()
        now += LOOKUP_SECONDS
        assert not await known.holds(first)
        assert await known.holds(path_of(api).removeprefix(PREFIX))
        assert not await known.holds(first)


async def test_guesses_are_not_looked_up_and_never_accepted(api: FakeAPI) -> None:
    now = 0.0
    async with api.serving() as config, Client(config, user_agent="test") as client:
        await SecretRotation(client).rotate()
        known = PathSecret(client, lambda: now)
        secret = path_of(api).removeprefix(PREFIX)
        before = len(api.requests)
        for _ in range(10):
            assert not await known.holds("guess")
        assert len(api.requests) == before + 1
        assert await known.holds(secret)
        now = FRESH_SECONDS
        api.refusals += [errors.ServiceUnavailable("etcd is away")]
        assert not await known.holds(secret)
        now += LOOKUP_SECONDS
        assert await known.holds(secret)
        now += FRESH_SECONDS
        await api.put(WEBHOOKS, configuration())
        assert not await known.holds("")
        await api.remove(WEBHOOKS, "", NAME)
        now += FRESH_SECONDS + PREVIOUS_SECONDS
        assert not await known.holds(secret)
