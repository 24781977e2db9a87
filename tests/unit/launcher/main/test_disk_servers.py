from __future__ import annotations

import asyncio
import dataclasses
import socket
from pathlib import Path
from typing import Any

import pytest

from launcher.domain.states import State
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import Times
from launcher.main.disks import disk_servers
from launcher.main.disks.disk_servers import NETWORK
from launcher.protocol import messages
from tests.unit.launcher.main.world import HEAD, NAME, QUICK, FakeNetwork, World, connection

NBD: dict[str, Any] = {"name": "data", "type": "NBD", "source": {"host": "nbd.example"}}
ISCSI: dict[str, Any] = {"name": "unit", "type": "ISCSI", "source": {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-01.example:vms"}}
MACHINE = messages.Machine(
    "default",
    "testvm",
    "u-1",
    {"memory": {"guest": "128Mi"}, "devices": {"disks": [NBD, ISCSI, {"name": "blank", "type": "EmptyDisk", "source": {"size": "1Mi"}}]}},
    "qemu",
    (),
    0.4,
)
SERVED: dict[str, Any] = {"protocol": "nbd", "size": 512, "export": "", "liveMigration": True}


@pytest.fixture
def times() -> Times:
    return dataclasses.replace(QUICK, relapse=0.0, servers_look=0.01)


@pytest.fixture
def answers(world: World, overlays: Path) -> FakeNetwork:
    (overlays / "blank.qcow2").touch()
    assert world.status.domain is None
    return world.network


async def test_a_start_waits_for_the_servers_of_all_disks(world: World, answers: FakeNetwork) -> None:
    for ports, missing in ((set(), ("data", "unit")), ({10809}, ("unit",))):
        answers.ports = ports
        with pytest.raises(RequestRefused) as refused:
            await world.domain.handle(messages.Sync(MACHINE))
        assert (refused.value.reason, refused.value.disks, world.status.ending) == ("NotReady", missing, None)
        assert "disk 'unit': its server does not answer" in str(refused.value)
    assert world.hypervisor.created == []

    answers.ports = {10809, 3260}
    await world.domain.handle(messages.Sync(MACHINE))
    assert len(world.hypervisor.created) == 1


async def test_any_of_a_disks_servers_may_answer() -> None:
    network = FakeNetwork()
    network.ports = {6789}
    monitors = {"silent": (("one", 3300), ("two", 3301)), "ceph": (("one", 3300), ("two", 6789))}
    assert await disk_servers.without_answer(monitors, network) == ("silent",)


async def test_unresolved_host_names_are_told(world: World, answers: FakeNetwork) -> None:
    specification = {"devices": {"disks": [{**NBD, "source": {"host": "nbd.invalid"}}, ISCSI]}}
    with pytest.raises(RequestRefused) as refused:
        await world.domain.handle(messages.Sync(dataclasses.replace(MACHINE, domain={**MACHINE.domain, **specification})))
    assert str(refused.value) == "disk 'data': its server's name does not resolve; disk 'unit': its server does not answer"
    assert (refused.value.disks, refused.value.unresolved) == (("data", "unit"), ("data",))
    assert answers.ports == set()


@pytest.mark.parametrize(("host", "resolves"), [("127.0.0.1", True), ("nothing.invalid", False), ("x" * 64, False)])
async def test_only_known_host_names_resolve(host: str, *, resolves: bool) -> None:
    assert await NETWORK.resolves(host) is resolves


async def test_guest_resumes_when_all_its_servers_are_back(world: World, answers: FakeNetwork) -> None:
    answers.ports = {10809, 3260}
    await world.domain.handle(messages.Sync(MACHINE))
    answers.connected = [10809, 3260]
    answers.ports = set()
    await asyncio.sleep(0.05)
    assert world.status.servers_silent == ()

    answers.connected = []
    await world.until(lambda: world.status.servers_silent == ("data", "unit"))
    stop(world, ("vda", "I/O error"), ("vdb", "I/O error"))
    answers.ports = {3260}
    await world.until(lambda: world.status.servers_silent == ("data",))
    await asyncio.sleep(0.05)
    assert world.hypervisor.domains[NAME].state is State.PAUSED

    answers.ports = {10809, 3260}
    await world.until(lambda: world.hypervisor.domains[NAME].state is State.RUNNING)
    assert world.status.servers_silent == ()


@pytest.mark.parametrize("errors", [(("vda", "I/O error"), ("vdc", "no space left")), ()], ids=["another disk too", "no disk"])
async def test_returning_servers_do_not_resume_other_faults(
    world: World, answers: FakeNetwork, errors: tuple[tuple[str, str], ...]
) -> None:
    answers.ports = {10809, 3260}
    await world.domain.handle(messages.Sync(MACHINE))
    stop(world, *errors)
    await asyncio.sleep(0.1)
    assert world.hypervisor.domains[NAME].state is State.PAUSED


async def test_plugin_socket_is_awaited_like_a_server(world: World, answers: FakeNetwork) -> None:
    listening = answers.listening
    disks = [{"name": "data", "type": "Plugin", "source": {"plugin": "p", "served": SERVED}}]
    domain = {**MACHINE.domain, "devices": {"disks": [*disks, NBD | {"name": "other"}]}}
    request = messages.Sync(dataclasses.replace(MACHINE, domain=domain))
    with pytest.raises(RequestRefused) as refused:
        await world.domain.handle(request)
    assert (refused.value.reason, refused.value.disks) == ("NotReady", ("other", "data"))
    answers.ports, answers.connected = {10809}, [10809]
    listening.add("/var/lib/kubevirt/plugin-disks/data/nbd.sock")
    await world.domain.handle(request)
    listening.clear()
    await world.until(lambda: world.status.servers_silent == ("data",))
    stop(world, ("vda", "I/O error"))
    await asyncio.sleep(0.05)
    assert world.hypervisor.domains[NAME].state is State.PAUSED
    listening.add("/var/lib/kubevirt/plugin-disks/data/nbd.sock")
    await world.until(lambda: world.hypervisor.domains[NAME].state is State.RUNNING)


def test_socket_counts_only_while_listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # sun_path is short, and paths of tests are long
    assert not NETWORK.listens("nbd.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("nbd.sock")
        assert not NETWORK.listens("nbd.sock")
        listener.listen(1)
        assert [NETWORK.listens("nbd.sock") for _ in range(5)] == [True] * 5  # unaccepted connections fill its queue
    assert not NETWORK.listens("nbd.sock")


def test_plugin_file_disk_has_no_server() -> None:
    disks = [
        {"name": each, "type": "Plugin", "source": {"plugin": "p", "served": {**SERVED, "protocol": each}}} for each in ("nbd", "file")
    ]
    found = disk_servers.sockets_of({"devices": {"disks": disks}})
    assert found == {"nbd": "/var/lib/kubevirt/plugin-disks/nbd/nbd.sock"}


def stop(world: World, *errors: tuple[str, str]) -> None:
    world.hypervisor.domains[NAME] = dataclasses.replace(world.hypervisor.domains[NAME], disk_errors=errors)
    world.hypervisor.become(NAME, State.PAUSED, "I/O error")


@pytest.mark.parametrize(
    ("tables", "missing"),
    [
        ([HEAD], {"a", "b", "c"}),
        (["\n".join([HEAD, connection(10809)])], {"a", "b", "c"}),
        (["\n".join([HEAD, connection(10809), connection(3260)])], {"a", "b"}),
        (["\n".join([HEAD, connection(10809)]), "\n".join([HEAD, connection(10809, address="0" * 31 + "1")])], {"c"}),
        (["\n".join([HEAD, connection(10809), connection(10809, "08"), connection(3260, "02")])], {"a", "b", "c"}),
        ([HEAD + "\ngarbage\n\n"], {"a", "b", "c"}),
        ([], {"a", "b", "c"}),
    ],
)
def test_only_established_connections_count(tables: list[str], missing: set[str]) -> None:
    """Tables as in proc_pid_net(5): remote address and port in hexadecimal, and 01 for an established connection."""
    endpoints = {"a": (("one.example", 10809),), "b": (("two.example", 10809),), "c": (("192.0.2.1", 3260),)}
    assert set(disk_servers.disconnected(endpoints, tables)) == missing
