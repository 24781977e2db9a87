from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.registry.virt.handlers import Handlers
from apiserver.registry.virt.revoking import RevokedNodes
from apiserver.registry.virt.set_password import SetPassword
from certs.reloading import ClientTls, ServerTls
from controller.runtime.reconciling import Request
from handler.pods import launcher, passwords
from handler.pods.links import Holder, Links
from handler.streams.server import Server, Target
from launcher.protocol import messages
from tests.component.handler.tls import Authority, Operator, revoking
from tests.component.handler.world import eventually
from tests.fakes.launcher import FakeLauncher

POD = "pod-1"
SECRET = "Tr0ub4dor"
BODY = {"user": "debian", "password": SECRET}


class Scene:
    def __init__(self, root: Path, authority: Authority, revoked: RevokedNodes, operator: Operator) -> None:
        self.root, self.revoked, self.operator = root, revoked, operator
        self.launcher = FakeLauncher(POD)
        self.links = Links(partial(launcher.connect, kubelet=root, identify=self.launcher.identify), changed=lambda _: None)
        self.server = Server(
            lambda *_: Target(POD),
            ServerTls(authority.node("node1"), clients=ssl.CERT_REQUIRED),
            host="127.0.0.1",
            port=0,
            kubelet=root,
            set_password=partial(passwords.send, self.links),
        )
        tls = ClientTls(authority.virt_api())
        self.verb = SetPassword(Handlers(self._locate, lambda: tls.context, revoked))

    async def _locate(self, node: str) -> tuple[str, int]:
        assert node == "node1"
        return "127.0.0.1", self.server.port

    def vm(self, **status: Any) -> dict[str, Any]:
        attempts = [{"number": 1, "podName": "p"}]
        running = {"phase": "Running", "nodeName": "node1", "attempt": 1, "attempts": attempts}
        metadata = {"name": "vm1", "namespace": "default", "uid": "u1"}
        return {"metadata": metadata, "spec": {"runStrategy": "Always", "domain": {}}, "status": {**running, **status}}

    async def set(self, **body: Any) -> None:
        self.verb.check(self.vm(), {**BODY, **body})
        await self.verb.act(self.vm(), {**BODY, **body})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.launcher.serving(self.root), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.run()) for each in (self.server, self.links)]
            await self.server.ready.wait()
            link = self.links.acquire(POD, Holder("vm", Request("default", "vm1")))
            await eventually(lambda: link.connection is not None)
            yield
            for task in running:
                task.cancel()

    @property
    def received(self) -> list[messages.Request]:
        return [each for each in self.launcher.received if isinstance(each, messages.SetPassword)]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    authority = Authority(tmp_path / "certs")
    async with revoking(authority) as (revoked, operator):
        made = Scene(tmp_path, authority, revoked, operator)
        made.launcher.instead = lambda _: None
        async with made.running():
            yield made


async def test_the_launcher_gets_the_password_and_no_log_has_it(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await scene.set()
    await scene.set(encrypted=True)
    assert scene.received == [messages.SetPassword("debian", SECRET), messages.SetPassword("debian", SECRET, encrypted=True)]
    assert SECRET not in caplog.text + repr(scene.received)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("Conflict", errors.Conflict), ("Timeout", errors.Timeout), ("Failed", errors.ServiceUnavailable)],
)
async def test_a_refusal_is_passed_on(scene: Scene, reason: messages.RefusalReason, kind: type[errors.StatusError]) -> None:
    scene.launcher.instead = lambda _: (reason, "no agent")
    with pytest.raises(kind, match="setpassword of virtual machine default/vm1: no agent"):
        await scene.set()


async def test_an_older_launcher_gets_no_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certs")
    async with revoking(authority) as (revoked, operator):
        scene = Scene(tmp_path, authority, revoked, operator)
        scene.launcher.later_actions = ("Import",)
        async with scene.running():
            with pytest.raises(errors.BadRequest, match="older version without setpassword"):
                await scene.set()
            assert scene.received == []


async def test_a_revoked_certificate_gets_no_password(scene: Scene) -> None:
    await scene.operator.revoke("node1", "2126-01-01T00:00:00Z")
    await eventually(lambda: bool(scene.revoked._revocations.nodes))
    with pytest.raises(errors.ServiceUnavailable, match="is not trusted"):
        await scene.set()
    assert scene.received == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"user": None}, "user"),
        ({"user": ""}, "user"),
        ({"user": "a:b"}, "user"),
        ({"user": "x" * 257}, "user"),
        ({"password": None}, "password"),
        ({"password": SECRET + "\n"}, "password"),
        ({"password": SECRET * 200}, "password"),
        ({"password": [SECRET]}, "password"),
        ({"encrypted": "yes"}, "encrypted"),
        ({"more": 1}, "more"),
    ],
)
def test_a_wrong_body_is_refused_without_its_password(body: dict[str, Any], field: str) -> None:
    vm = {"metadata": {"name": "vm1"}, "status": {"phase": "Running"}}
    with pytest.raises(errors.Invalid) as caught:
        SetPassword(None).check(vm, {**BODY, **body})
    assert [each["field"] for each in caught.value.to_json()["details"]["causes"]] == [field]
    assert SECRET not in str(caught.value.to_json())


async def test_the_node_checks_the_body_again(scene: Scene) -> None:
    for body in ({"password": SECRET + "\n"}, {"user": "a:b"}):
        with pytest.raises(errors.BadRequest, match="the body is invalid") as caught:
            await scene.verb.act(scene.vm(), {**BODY, **body})
        assert SECRET not in str(caught.value)
    assert scene.received == []


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Stopped"}, "cannot set a password in a virtual machine that is not running"),
        ({"conditions": [{"type": "Paused", "status": "True"}]}, "the guest is paused"),
    ],
)
def test_a_guest_that_stands_still_gets_no_password(status: dict[str, Any], why: str) -> None:
    base = {"phase": "Running", "attempt": 1, "attempts": [{"number": 1}]}
    vm = {"metadata": {"name": "vm1"}, "spec": {"runStrategy": "Always"}, "status": {**base, **status}}
    with pytest.raises(errors.Conflict, match=why):
        SetPassword(None).check(vm, BODY)
