from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.rights.trust import Revocations
from certs import peers
from certs.reloading import ClientTls, ServerTls
from handler.identity import trust
from handler.pods import places
from handler.pods.process import Launcher, NotOfThisPod
from handler.relays.incoming import Incoming
from handler.relays.outgoing import Destination, Outgoing
from handler.relays.running import Relays
from launcher.protocol import messages
from tests.component.handler.tls import Authority
from tests.component.handler.world import MIGS, VMS, Way, World, a_world, eventually
from tests.host.launcher import guest, sandbox
from tests.unit.handler.reconcilers.builders import a_migration, a_request, a_vm, an_operation

pytestmark = [pytest.mark.host, pytest.mark.timeout(150)]


def node_of(transport: asyncio.BaseTransport | None) -> str:
    return trust.node_of(peers.presented(transport), Revocations())


class Pods:
    def __init__(self, kubelet: Path, program: Path, test_guest: guest.Guest) -> None:
        self.kubelet, self._program, self._guest = kubelet, program, test_guest
        self.running: dict[str, sandbox.Launcher] = {}
        self._cgroups: list[Path] = []

    def start(self) -> str:
        uid = str(uuid.uuid4())
        made = sandbox.Launcher(self._program, self.kubelet / "pods" / uid / "volumes/kubernetes.io~empty-dir", self._guest)
        top = Path("/sys/fs/cgroup/pids")
        cgroup = (top if top.is_dir() else top.parent) / f"pod{uid}"
        cgroup.mkdir()
        self._cgroups.append(cgroup)
        (cgroup / "cgroup.procs").write_text(str(made.process.pid))
        self.running[uid] = made
        return uid

    def close(self) -> None:
        for made in self.running.values():
            made.kill()
        for cgroup in self._cgroups:
            for pid in (cgroup / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
        for _ in range(100):
            try:
                while self._cgroups:
                    self._cgroups[-1].rmdir()
                    self._cgroups.pop()
            except OSError:
                time.sleep(0.02)


@pytest.fixture
def pods(tmp_path: Path, program: Path, test_guest: guest.Guest) -> Iterator[Pods]:
    made = Pods(tmp_path, program, test_guest)
    yield made
    made.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as made:
        yield made


def machine(pod_uid: str, *, linux: bool = False) -> Object:
    vm = a_vm(podUID=pod_uid)
    vm["metadata"]["uid"] = "7b1f4a0e-0000-4000-8000-000000000001"
    del vm["metadata"]["resourceVersion"]
    domain = (sandbox.a_machine() if linux else sandbox.a_tiny_machine()).domain
    vm["spec"]["domain"] = {**domain, "firmware": {"kernelBoot": _with_image(domain["firmware"]["kernelBoot"])}}
    return vm


def _with_image(boot: Object) -> Object:
    return {**boot, "container": {"image": "testguest", **boot["container"]}}


PUBLISHED = "192.0.2.7"
"""Both nodes' address in statuses, which refuse loopback."""


def on_loopback(destination: Destination) -> Destination:
    return replace(destination, address=destination.address.replace(PUBLISHED, "127.0.0.1"))


class Node:
    def __init__(self, pods: Pods, authority: Authority, node: str, changed: Callable[[str], None] = lambda _: None) -> None:
        files = authority.node(node)
        self.incoming = Incoming(ServerTls(files, clients=ssl.CERT_REQUIRED), node_of, host="127.0.0.1", port=0, kubelet=pods.kubelet)
        self.relays = Relays(
            lambda uid, pod, destination: Outgoing(uid, pod, on_loopback(destination), ClientTls(files), node_of, pods.kubelet),
            changed=changed,
        )
        self._pods = pods

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Way]:
        async with asyncio.TaskGroup() as tasks:
            parts = [tasks.create_task(self.incoming.run()), tasks.create_task(self.relays.run())]
            await self.incoming.ready.wait()
            identify = dict.fromkeys(self._pods.running, Launcher.of)
            yield Way(self.relays, self.incoming, f"{PUBLISHED}:{self.incoming.port}", identify)
            for part in parts:
                part.cancel()


def ask(launcher: sandbox.Launcher) -> str:
    with launcher.console() as console:
        console.expect(sandbox.READY)
        return console.ask("echo here")


async def test_a_guest_runs_and_stops(world: World, pods: Pods, tmp_path: Path) -> None:
    pod_uid = pods.start()
    await world.api.put(VMS, machine(pod_uid))
    async with Node(pods, Authority(tmp_path / "certs"), "n").running() as way, world.handler(way=way):
        await eventually(lambda: world.status()["phase"] in ("Running", "Failed"), seconds=30)
        assert world.status()["phase"] == "Running", world.status()
        domain = dict(world.status()["domain"])
        assert domain.pop("liveChanges") == list(messages.LIVE_CHANGES)
        assert domain == {"state": "running", "reason": "unpaused", "type": "qemu"}
        assert await asyncio.to_thread(ask, pods.running[pod_uid]) == "here"
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(request=a_request("Stop")))
        await eventually(lambda: world.status()["phase"] == "Stopped", seconds=40)

    assert world.writes() <= 3
    assert pods.running[pod_uid].wait() == 0


async def test_guest_is_reset_once_despite_a_handler_kill(world: World, pods: Pods, tmp_path: Path) -> None:
    pod_uid = pods.start()
    await world.api.put(VMS, machine(pod_uid))
    judge, authority = world.api.judge, Authority(tmp_path / "certs")

    def away(*_write: object) -> None:
        raise errors.ServiceUnavailable("etcd is away")

    def is_over() -> bool:
        (operation,) = world.status()["operations"]
        return bool(operation.get("result") == "Succeeded")

    async with Node(pods, authority, "n").running() as way:
        async with world.handler(way=way):
            await eventually(lambda: world.status()["phase"] in ("Running", "Failed"), seconds=30)
            assert await asyncio.to_thread(ask, pods.running[pod_uid])
            world.api.judge = away
            reset = an_operation("a", 1)
            await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(operations=[reset]))
            await asyncio.to_thread(booted, pods.running[pod_uid], 2)
        assert not is_over()
        world.api.judge = judge
        async with world.handler(way=way):
            await eventually(is_over, seconds=30)
            await asyncio.sleep(1)
    assert booted(pods.running[pod_uid], 2) == 2


def booted(launcher: sandbox.Launcher, times: int) -> int:
    with launcher.console() as console:
        seen = "".join(console.expect(sandbox.READY) for _ in range(times))
        return (seen + console.ask("echo here")).count("GUEST-READY")


async def test_a_guest_migrates_through_the_relays_of_two_nodes(world: World, pods: Pods, tmp_path: Path) -> None:
    source, target = pods.start(), pods.start()
    await world.api.put(VMS, machine(source))
    authority = Authority(tmp_path / "certs")
    async with (
        Node(pods, authority, "n").running() as here,
        Node(pods, authority, "n2").running() as there,
        world.handler("n", here),
        world.handler("n2", there),
    ):
        await eventually(lambda: world.status()["phase"] in ("Running", "Failed"), seconds=30)
        assert world.status()["phase"] == "Running", world.status()
        migration = a_migration("PreparingTarget", targetPodUID=target)
        del migration["metadata"]["resourceVersion"]
        await world.record(migration)
        await world.api.put(MIGS, {"apiVersion": "kubevirt.io/v1alpha1", "kind": "Migration", **migration})
        await eventually(lambda: world.api.get(MIGS, "default", "m")["status"]["phase"] in ("Succeeded", "Failed"), seconds=60)
        found = world.api.get(MIGS, "default", "m")["status"]
        assert found["phase"] == "Succeeded", found
        assert world.status()["podUID"] == target
        await eventually(lambda: world.status()["domain"]["state"] == "running")
        assert pods.running[target].qemu()
        assert await asyncio.to_thread(pods.running[source].wait) == 0
        left = pods.running[source].qemu()
        assert not left, (
            left,
            [Path(f"/proc/{pid}/cmdline").read_text()[:300] for pid in left],
            pods.running[source].log.read_text()[-1500:],
        )


def test_a_process_of_another_pod_is_refused(pods: Pods) -> None:
    pod_uid = pods.start()
    with pods.running[pod_uid].client(), places.run_directory(pod_uid, pods.kubelet) as directory:
        link = places.connect(directory, "launcher.sock")
        pid = places.peer_process(link)
        link.close()

    assert pid == pods.running[pod_uid].process.pid
    Launcher.of(pid, pod_uid).close()
    with pytest.raises(NotOfThisPod, match="not in the cgroup"):
        Launcher.of(pid, str(uuid.uuid4()))
    with pytest.raises(NotOfThisPod, match="runs as user 107"):
        Launcher.of(pid, pod_uid, user=0)
