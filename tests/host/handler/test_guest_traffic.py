"""Traffic of real guests: QEMU in the network of a pod that virt-handler has set up, with virt-launcher beside it, and a caller."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from handler.network import namespaces, setup
from launcher.protocol import messages
from tests.host.handler import pods
from tests.host.handler.frames import UDP
from tests.host.handler.pods import CALLER, POD, Pod, run
from tests.host.launcher import guest, sandbox
from tests.host.launcher.sandbox import Launcher, Viewer, a_machine, wait_for

pytestmark = [pytest.mark.host, pytest.mark.timeout(400)]
Start = Callable[[Pod], Launcher]

READY_SECONDS: Final = 200
LEASED: Final = (
    "#!/bin/sh",
    '[ "$1" = bound ] || exit 0',
    'ip link set "$interface" mtu "${mtu:-1500}"',
    'ip address add "$ip/$mask" dev "$interface"',
    '[ -z "$router" ] || ip route add default via "$router"',
    "set >/tmp/lease",
)
"""What the guest does with a lease."""


@pytest.fixture(scope="module")
def guest_with_network() -> guest.Guest:
    return guest.build(modules=(*guest.MODULES, "virtio_net"))


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        yield made


@pytest.fixture
def start(program: Path, guest_with_network: guest.Guest, tmp_path: Path) -> Iterator[Start]:
    launchers: list[Launcher] = []

    def make(pod: Pod) -> Launcher:
        launchers.append(Launcher(program, tmp_path / f"pod{len(launchers)}", guest_with_network, network=pod.name))
        return launchers[-1]

    with sandbox.killed_afterwards(launchers):
        yield make


def a_vm(*interfaces: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"uid": "3f0e"}, "spec": {"domain": {"devices": {"interfaces": list(interfaces)}}}}


def lease(viewer: Viewer) -> dict[str, str]:
    """Have the guest ask for its address; return what it was told."""
    for line in LEASED:
        viewer.sh(f"echo '{line}' >>/tmp/leased")
    viewer.sh("chmod +x /tmp/leased; ip link set lo up; ip link set eth0 up")
    viewer.sh("udhcpc -i eth0 -n -q -s /tmp/leased -t 10 -T 3 -O mtu -O search -O staticroutes >/dev/null 2>&1")
    told = (line.partition("=") for line in viewer.sh("cat /tmp/lease").splitlines())
    return {name: value.strip("'") for name, _, value in told}


def asked(pod: Pod, host: str, port: int) -> str:
    """Return what somebody outside of the pod is answered; empty where nobody listens."""

    def ask() -> str:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=20) as connection:
            return connection.recv(100).decode().strip()
        return ""

    return pod.outside(ask)


def tell(pod: Pod, host: str, port: int, times: int) -> None:
    """Send datagrams from outside of the pod."""
    with pod.outside(lambda: socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)) as sender:
        for _ in range(times):
            sender.sendto(b"hello", (host, port))


def refused_datagrams(viewer: Viewer) -> int:
    """Return how many datagrams have come to ports of the guest on which nobody listens."""
    return int(viewer.sh("awk '/^Udp:/ {n = $3} END {print n}' /proc/net/snmp"))


@contextlib.contextmanager
def greeting(pod: Pod, host: str, port: int = 80) -> Iterator[list[str]]:
    """Greet whoever connects to an address outside of the pod; give the list of their addresses."""
    callers: list[str] = []

    def listen() -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, address = server.accept()
                callers.append(address[0])
                with connection:
                    connection.sendall(b"hello-from-outside\n")

    server = pod.outside(listen)
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield callers
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


async def test_a_guest_behind_the_pods_address_is_reached_by_its_ports_alone(pod: Pod, start: Start) -> None:
    """And a card whose cable is not plugged in says so."""
    run("ip", "-n", pod.name, "link", "set", "eth0", "mtu", "1420")
    ports = [{"port": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    vm = a_vm({"name": "lan", "ports": ports, "state": "up"})
    (wired,) = await setup.prepare(vm, pod.launcher)
    run("ip", "-n", pod.name, "tuntap", "add", "dev", "tap1", "mode", "tap", "user", "107", "group", "107")
    domain = {"graphics": [], "interfaces": [*vm["spec"]["domain"]["devices"]["interfaces"], {"name": "unplugged", "state": "down"}]}
    cards = (
        messages.Interface(wired.name, wired.mac, wired.tap, wired.model),
        messages.Interface("unplugged", "02:00:00:00:0e:02", "tap1"),
    )
    launcher = start(pod)
    with launcher.client() as client, launcher.console() as viewer:
        client.ask(messages.Sync(dataclasses.replace(a_machine(devices=domain), interfaces=cards)))
        viewer.expect("GUEST-READY", READY_SECONDS)
        told = lease(viewer)
        assert (told["ip"], told["router"], told["mtu"]) == ("10.0.2.2", "10.0.2.1", "1420")
        viewer.sh("ip link set eth1 up")
        assert viewer.sh("cat /sys/class/net/eth0/carrier /sys/class/net/eth1/carrier") == "1\n0"
        for port in (8080, 8081):
            viewer.sh(f"(while :; do echo hello-from-{port} | nc -l -p {port}; done) 2>/dev/null & true")
        wait_for(lambda: asked(pod, POD, 8080) == "hello-from-8080", 60, "an answer of the guest")
        assert viewer.sh("nc 127.0.0.1 8081") == "hello-from-8081"
        assert asked(pod, POD, 8081) == ""
        tell(pod, POD, 54, 5)
        tell(pod, POD, 53, 3)
        wait_for(lambda: refused_datagrams(viewer) == 3 or None, 60, "three datagrams, and no more")
        with greeting(pod, CALLER) as callers:
            assert viewer.sh(f"nc {CALLER} 80") == "hello-from-outside"
        assert callers == [POD]
        assert "1 packets received" in viewer.sh(f"ping -c 1 -W 20 {CALLER}")


async def test_a_guest_in_the_pods_place_has_its_address_and_reaches_and_is_reached(pod: Pod, start: Start) -> None:
    """As virt-handler sets it up, and again after its restart, while the guest runs."""
    run("ip", "-n", pod.name, "link", "set", "eth0", "mtu", "1420")
    run("ip", "-n", pod.name, "route", "add", "10.96.0.0/12", "via", CALLER)
    (before,) = (link for link in await namespaces.links(pod.launcher.network) if link["ifname"] == "eth0")
    vm = a_vm({"name": "lan", "type": "bridge"})
    (wired,) = await setup.prepare(vm, pod.launcher)
    assert (wired.mac, wired.addresses) == (before["address"], (POD,))
    card = messages.Interface(wired.name, wired.mac, wired.tap, wired.model, wired.lease)
    domain = {"graphics": [], "interfaces": vm["spec"]["domain"]["devices"]["interfaces"]}
    launcher = start(pod)
    with launcher.client() as client, launcher.console() as viewer, greeting(pod, CALLER) as callers:
        status = client.ask(messages.Sync(dataclasses.replace(a_machine(devices=domain), interfaces=(card,))))
        assert "interface 'lan' has its pod's address" in status.not_migratable
        viewer.expect("GUEST-READY", READY_SECONDS)
        uplink = pod.outside(lambda: pods.Ear("peer"))
        told = lease(viewer)
        assert (told["ip"], told["mask"], told["router"], told["mtu"]) == (POD, "24", CALLER, "1420")
        assert told["staticroutes"] == f"0.0.0.0/0 {CALLER} 10.96.0.0/12 {CALLER}"
        assert before["address"] in viewer.sh("cat /sys/class/net/eth0/address")
        viewer.sh("(while :; do echo hello-from-the-guest | nc -l -p 8080; done) 2>/dev/null & true")
        wait_for(lambda: asked(pod, POD, 8080) == "hello-from-the-guest" or None, 60, "an answer of the guest")
        assert viewer.sh(f"nc {CALLER} 80") == "hello-from-outside"
        heard = uplink.until(b"hello-from-the-guest")
        uplink.close()
        assert not [
            frame for frame in heard if frame[12:14] == b"\x08\x00" and frame[23] == UDP and frame[36:38] == b"\0\x43"
        ]  # to port 67

        (again,) = await setup.prepare(vm, pod.launcher)
        assert again == wired
        assert viewer.sh(f"nc {CALLER} 80") == "hello-from-outside"
        assert asked(pod, POD, 8080) == "hello-from-the-guest"
        assert set(callers) == {POD}
        viewer.sh("ip address add 10.99.0.66/24 dev eth0")
        assert " 0 packets received" in viewer.sh(f"ping -c 2 -W 2 -I 10.99.0.66 {CALLER}")
        assert "1 packets received" in viewer.sh(f"ping -c 1 -W 20 -I {POD} {CALLER}")
