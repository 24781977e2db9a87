from __future__ import annotations

import dataclasses
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from apiserver.apis.virt.places import layout
from launcher.protocol import messages
from tests.host.handler import pods
from tests.host.handler.pods import CALLER, CALLER6, POD, POD6, Pod, run
from tests.host.handler.test_guest_traffic import READY_SECONDS, a_vm, asked, greeting, lease, refused_datagrams, tell
from tests.host.launcher import guest, sandbox
from tests.host.launcher.sandbox import Client, Launcher, Viewer, a_machine, alive, wait_for
from tests.testbed import passt

pytestmark = [pytest.mark.host, pytest.mark.timeout(400)]

PORTS: Final = [{"port": 8080}, {"port": 22}, {"port": 23}, {"port": 53, "protocol": "UDP"}]
ECHO_ONCE: Final = "head -c 11; until [ -e /tmp/send ]; do sleep 2; done; echo more; sleep 600"


@pytest.fixture(scope="module")
def guest_with_network() -> guest.Guest:
    return guest.build(modules=(*guest.MODULES, "virtio_net"))


Start = Callable[[Pod], Launcher]


@pytest.fixture
def start(program: Path, guest_with_network: guest.Guest, tmp_path: Path) -> Iterator[Start]:
    launchers: list[Launcher] = []

    def make(pod: Pod) -> Launcher:
        launchers.append(Launcher(program, tmp_path / "pod", guest_with_network, network=pod.name, passt=passt.directory()))
        return launchers[-1]

    with sandbox.killed_afterwards(launchers):
        yield make


def addresses_of(pod: Pod) -> str:
    """Return ``ip address``, without link-local addresses: the kernel adds these some time after the link is up."""
    found = run("ip", "-n", pod.name, "-oneline", "address", "show").replace(" tentative", "")
    return "\n".join(line for line in found.splitlines() if "scope link" not in line)


async def a_machine_in(pod: Pod, addresses: tuple[str, ...]) -> tuple[messages.Machine, str]:
    vm = a_vm({"name": "lan", "type": "passt", "ports": PORTS})
    before = addresses_of(pod)
    (wired,) = await pods.NETWORKS.prepare(vm, "", pod.launcher)
    assert addresses_of(pod) == before
    assert (wired.addresses, wired.tap) == (addresses, "")
    card = messages.Interface(wired.name, wired.mac, wired.tap, wired.model)
    domain = {"graphics": [], "interfaces": vm["spec"]["domain"]["devices"]["interfaces"]}
    return dataclasses.replace(a_machine(devices=domain), interfaces=(card,)), wired.mac


def process(launcher: Launcher) -> int:
    return int((launcher.run_directory / layout.PASST_PID).read_text())


def has_ipv6(viewer: Viewer) -> bool:
    addresses = [line for line in viewer.sh("ip -6 address show dev eth0").splitlines() if "inet6 fd99:" in line]
    return bool(addresses) and not any("tentative" in line for line in addresses)


def own_mebibytes(pid: int) -> float:
    (line,) = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("RssAnon:"))
    return int(line.split()[1]) / 1024


def asked_inside(pod: Pod, host: str, port: int) -> str:

    def ask() -> str:
        with suppress(OSError), socket.create_connection((host, port), timeout=20) as connection:
            return connection.recv(100).decode().strip()
        return ""

    return pod.inside(ask)


def wait_for_answer(pod: Pod, host: str, port: int = 8080) -> None:
    wait_for(lambda: asked(pod, host, port) == f"hello-from-{port}" or None, 60, f"an answer by port {port} of {host}")


def serve(viewer: Viewer, *ports: int) -> None:
    for port in ports:
        viewer.sh(f"(nc -ll -p {port} -e echo hello-from-{port}) >/dev/null 2>&1 & true")


def connected(pod: Pod, port: int) -> socket.socket:

    def connect() -> socket.socket | None:
        connection = pod.outside(lambda: socket.create_connection((POD, port), timeout=60))
        with suppress(OSError):
            connection.sendall(b"still-there")
            if connection.recv(100) == b"still-there":
                return connection
        connection.close()
        return None

    return wait_for(connect, 60, f"an echo by port {port}")


def open_in_the_guest(viewer: Viewer, port: int) -> int:
    return sum(f"{POD}:{port} " in line and "ESTABLISHED" in line for line in viewer.sh("netstat -tn").splitlines())


@pytest.mark.sample(2, "passt guests in pods with one family")
@pytest.mark.parametrize(("family", "own", "other"), [(4, POD, CALLER), (6, POD6, CALLER6)], ids=["IPv4", "IPv6"])
async def test_a_guest_in_a_pod_with_one_family_has_that_one(start: Start, family: int, own: str, other: str) -> None:
    with pods.a_pod((family,)) as pod:
        machine, _ = await a_machine_in(pod, (own,))
        launcher = start(pod)
        with launcher.client() as client, launcher.console() as viewer:
            client.ask(messages.Sync(machine))
            viewer.expect("GUEST-READY", READY_SECONDS)
            if family == 4:
                assert lease(viewer)["ip"] == POD
            else:
                viewer.sh("ip link set eth0 up")
                wait_for(lambda: has_ipv6(viewer) or None, 60, "an address of IPv6")
            with greeting(pod, other) as callers:
                assert viewer.sh(f"nc {other} 80") == "hello-from-outside"
            assert callers == [own]
            serve(viewer, 8080)
            wait_for_answer(pod, own)


async def test_passt_guest_has_the_pods_addresses_and_reconnects(start: Start, *, is_short: bool) -> None:
    with pods.a_pod() as pod:
        await both(pod, start, reboots=not is_short)


def kill_passt(pod: Pod, launcher: Launcher, client: Client, viewer: Viewer) -> int:
    before = open_in_the_guest(viewer, 23)
    with connected(pod, 23):
        wait_for(lambda: open_in_the_guest(viewer, 23) > before or None, 60, "the connection in the guest")
        killed, ends = process(launcher), client.status.passt_ends
        os.kill(killed, signal.SIGKILL)
        status = client.until(lambda status: status.passt_ends > ends and not status.passt_problem, seconds=60)
        assert (status.domain.state if status.domain else None) == "running"
        wait_for_answer(pod, POD)
        with greeting(pod, CALLER):
            assert viewer.sh(f"nc {CALLER} 80") == "hello-from-outside"
    return killed


async def both(pod: Pod, start: Start, *, reboots: bool) -> None:
    machine, mac = await a_machine_in(pod, (POD, POD6))
    launcher = start(pod)
    with launcher.client() as client, launcher.console() as viewer:
        status = client.ask(messages.Sync(machine))
        assert "interface 'lan' uses passt" in status.not_migratable
        viewer.expect("GUEST-READY", READY_SECONDS)
        told = lease(viewer)
        assert (told["ip"], told["router"]) == (POD, CALLER)
        assert mac in viewer.sh("cat /sys/class/net/eth0/address")

        # Out, over both families: others see the pod's address.
        with greeting(pod, CALLER) as callers:
            assert viewer.sh(f"nc {CALLER} 80") == "hello-from-outside"
        assert callers == [POD]
        assert "1 packets received" in viewer.sh(f"ping -c 1 -W 20 {CALLER}")
        wait_for(lambda: has_ipv6(viewer) or None, 60, "an address of IPv6")
        with greeting(pod, CALLER6) as callers:
            assert viewer.sh(f"nc {CALLER6} 80") == "hello-from-outside"
        assert callers == [POD6]
        assert "1 packets received" in viewer.sh(f"ping -c 1 -W 20 {CALLER6}")

        # In, on the listed ports only, also over the pod's loopback, as kubectl port-forward does.
        serve(viewer, 22, 8080, 8081)
        for host in (POD, POD6):
            wait_for_answer(pod, host)
            wait_for_answer(pod, host, 22)
            assert asked(pod, host, 8081) == ""
        wait_for(lambda: asked_inside(pod, "127.0.0.1", 8080) == "hello-from-8080" or None, 60, "an answer by the loopback address")
        tell(pod, POD, 54, 5)
        tell(pod, POD, 53, 3)
        wait_for(lambda: refused_datagrams(viewer) == 3 or None, 60, "three datagrams, and no more")

        # It ends three times. Open connections in the guest stay so until the guest sends.
        assert own_mebibytes(process(launcher)) < 32
        viewer.sh(f"(nc -ll -p 23 -e sh -c '{ECHO_ONCE}') >/dev/null 2>&1 & true")
        ended = [kill_passt(pod, launcher, client, viewer) for _ in range(3)]
        last = process(launcher)
        assert len({last, *ended}) == 4
        assert client.status.passt_ends == 3
        assert open_in_the_guest(viewer, 23) == 3
        viewer.sh("touch /tmp/send")
        wait_for(lambda: open_in_the_guest(viewer, 23) == 0 or None, 60, "the end of what was open")
        if reboots:
            viewer.type("reboot -f\n")
            viewer.expect("GUEST-READY", READY_SECONDS)
            assert lease(viewer)["ip"] == POD
        with suppress(EOFError):  # the pod may end before it answers
            client.ask(messages.Shutdown(0))
    assert launcher.wait() == 0
    assert not alive(last)


async def test_passt_ends_with_a_launcher_that_is_killed(start: Start) -> None:
    with pods.a_pod((4,)) as pod:
        machine, _ = await a_machine_in(pod, (POD,))
        launcher = start(pod)
        with launcher.client() as client:
            client.ask(messages.Sync(machine))
            pid = process(launcher)
            assert alive(pid)
            launcher.kill()
    wait_for(lambda: not alive(pid) or None, 20, "the end of passt")
