"""Connections to a pod after its guest left."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from apiserver.apis.virt.places import network
from handler.network import departed, namespaces, setup
from tests.host.handler import pods
from tests.host.handler.pods import CALLER, CALLER6, POD, POD6, Pod, run, within

pytestmark = [pytest.mark.host, pytest.mark.timeout(200)]

SECONDS = 60
"""A connection takes at most three, with the kernel's second try."""
BESIDE, BESIDE6 = pods.addresses_beside(1)
FAMILIES = pytest.mark.parametrize(("pod", "beside"), [(POD, BESIDE), (POD6, BESIDE6)], ids=["IPv4", "IPv6"])


def a_vm(*ports: dict[str, Any], **interface: Any) -> dict[str, Any]:
    given = {"name": "default", "type": "masquerade", **({"ports": list(ports)} if ports else {}), **interface}
    return {"metadata": {"uid": "3f0e"}, "spec": {"domain": {"devices": {"interfaces": [given]}}}}


class Guest:
    def __init__(self) -> None:
        self.name = f"h7g{uuid.uuid4().hex[:6]}"
        self._pod = ""

    async def move(self, pod: Pod, vm: dict[str, Any]) -> None:
        (wired,) = await pods.NETWORKS.prepare(vm, "", pod.launcher)
        if not self._pod:
            run(
                "ip",
                "-n",
                self.name,
                "link",
                "add",
                "eth0",
                "address",
                wired.mac,
                "type",
                "veth",
                "peer",
                "name",
                "cable",
                "netns",
                pod.name,
            )
            self._configure()
        else:
            run("ip", "-n", self._pod, "link", "set", "cable", "netns", pod.name)
        run("ip", "-n", pod.name, "link", "set", "cable", "master", network.BRIDGE, "up")
        self._pod = pod.name

    def _configure(self) -> None:
        run("ip", "-n", self.name, "link", "set", "eth0", "up")
        run("ip", "-n", self.name, "address", "add", f"{network.GUEST}/{network.PREFIX}", "dev", "eth0")
        run("ip", "-n", self.name, "address", "add", f"{network.GUEST6}/64", "dev", "eth0", "nodad")
        for gateway in (network.GATEWAY, network.GATEWAY6):
            run("ip", "-n", self.name, "neighbour", "replace", gateway, "lladdr", network.BRIDGE_MAC, "dev", "eth0", "nud", "permanent")
        run("ip", "-n", self.name, "route", "add", "default", "via", network.GATEWAY)
        run("ip", "-n", self.name, "-6", "route", "add", "default", "via", network.GATEWAY6)

    @contextmanager
    def serving(self) -> Iterator[None]:
        run("ip", "netns", "add", self.name)
        listener = within(self.name, lambda: socket.create_server(("::", 80), family=socket.AF_INET6, dualstack_ipv6=True))
        threads: list[threading.Thread] = []

        def answer(connection: socket.socket, peer: str) -> None:
            with connection, contextlib.suppress(OSError):
                connection.sendall(f"{peer.removeprefix('::ffff:')}\n".encode())
                while heard := connection.recv(100):
                    connection.sendall(heard)

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, address = listener.accept()
                    threads.append(threading.Thread(target=answer, args=(connection, address[0]), daemon=True))
                    threads[-1].start()

        threads.append(threading.Thread(target=listen))
        threads[0].start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            threads[0].join()
            run("ip", "netns", "del", self.name)


def connected(pod: Pod, address: str) -> socket.socket:
    return pod.outside(lambda: socket.create_connection((address, 80), timeout=SECONDS))


def begun(pod: Pod, address: str) -> socket.socket:

    def begin() -> socket.socket:
        connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        connection.connect_ex((address, 80))
        return connection

    connection = pod.outside(begin)
    connection.settimeout(SECONDS)
    return connection


def greeted(connection: socket.socket) -> str:
    return connection.recv(100).decode().strip()


@pytest.fixture
def first() -> Iterator[Pod]:
    with pods.a_pod() as made:
        yield made


@pytest.fixture
def second(first: Pod) -> Iterator[Pod]:
    with pods.a_pod_beside(first, 1) as made:
        yield made


@pytest.fixture
def guest() -> Iterator[Guest]:
    made = Guest()
    with made.serving():
        yield made


@FAMILIES
@pytest.mark.parametrize("ports", [(), ({"port": 80},)], ids=["all", "listed"])
async def test_callers_of_the_former_pod_reach_the_moved_guest(
    first: Pod, second: Pod, guest: Guest, pod: str, beside: str, ports: tuple[dict[str, Any], ...]
) -> None:
    caller = CALLER6 if ":" in pod else CALLER
    await guest.move(first, a_vm(*ports))
    with ExitStack() as stack:
        before = stack.enter_context(connected(first, pod))
        assert greeted(before) == caller
        await guest.move(second, a_vm(*ports))
        between = stack.enter_context(begun(first, pod))
        between.settimeout(2)
        with pytest.raises(TimeoutError):
            between.recv(1)
        between.settimeout(SECONDS)
        assert await setup.forward(first.launcher, (BESIDE6, BESIDE))
        assert greeted(between) == pod
        assert greeted(stack.enter_context(connected(first, pod))) == pod
        assert greeted(stack.enter_context(connected(second, beside))) == f"{beside[:-1]}1"
        before.sendall(b"hello")
        with pytest.raises(ConnectionResetError):
            before.recv(100)
        assert await setup.forward(first.launcher, (BESIDE6, BESIDE))
        between.sendall(b"hello")
        assert between.recv(100) == b"hello"  # a repeated forwarding request keeps connections


async def test_guest_that_moved_twice_is_reached_by_both_former_pods(first: Pod, second: Pod, guest: Guest) -> None:
    with pods.a_pod_beside(first, 2) as third:
        for place in (first, second, third):
            await guest.move(place, a_vm())
        assert await setup.forward(first.launcher, pods.addresses_beside(1))
        assert await setup.forward(second.launcher, pods.addresses_beside(2))
        for asked, seen in ((POD, BESIDE), (BESIDE, BESIDE), (POD6, BESIDE6), (BESIDE6, BESIDE6)):
            with connected(first, asked) as connection:
                assert greeted(connection) == seen


@FAMILIES
async def test_pods_and_callers_may_be_on_one_link(first: Pod, guest: Guest, pod: str, beside: str) -> None:
    """As on nodes with one common bridge. The kernel redirects the caller to the other pod."""
    del beside
    other, prefix = f"{pod[:-1]}3", 64 if ":" in pod else 24
    await guest.move(first, a_vm())
    run("ip", "-n", first.caller, "address", "add", f"{other}/{prefix}", "dev", "peer", *(("nodad",) if prefix == 64 else ()))
    assert await setup.forward(first.launcher, (other,))
    family = socket.AF_INET6 if prefix == 64 else socket.AF_INET
    with first.outside(lambda: socket.create_server((other, 80), family=family)) as listener:
        listener.settimeout(SECONDS)
        for _ in range(2):
            with connected(first, pod) as connection:
                accepted, (peer, *_) = listener.accept()
                with accepted:
                    accepted.sendall(b"hello")
                    assert (peer, connection.recv(100)) == (pod, b"hello")


@pytest.mark.parametrize("type_", ["bridge", "passt"])
async def test_traffic_of_a_pod_without_masquerade_is_not_forwarded(first: Pod, type_: str) -> None:
    run("ip", "-n", first.caller, "address", "add", "10.99.0.3/24", "dev", "peer")
    assert not await setup.forward(first.launcher, ("10.99.0.3",))
    await pods.NETWORKS.prepare(a_vm(type=type_), "", first.launcher)
    assert not await setup.forward(first.launcher, ("10.99.0.3",))
    assert departed.TABLE not in (await namespaces.run(first.launcher.network, ("nft", "list", "ruleset"))).decode()
