"""The pod's network on a real kernel: two namespaces of the test's own stand in for the pod and for somebody who calls it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.network import masquerade, namespaces, setup
from handler.network.dhcp import Servers
from handler.pods.process import Launcher

pytestmark = pytest.mark.host

VM = {
    "metadata": {"name": "testvm", "namespace": "default", "uid": "3f0e"},
    "spec": {"domain": {"devices": {"interfaces": [{"name": "default", "type": "masquerade", "model": "virtio"}]}}},
}


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def pod() -> Iterator[Launcher]:
    """A namespace with an eth0 (10.99.0.2) whose other end (10.99.0.1) lies in a second namespace."""
    tag = uuid.uuid4().hex[:6]
    inner, outer = f"h7p{tag}", f"h7o{tag}"
    for name in (inner, outer):
        run("ip", "netns", "add", name)
    run("ip", "-n", outer, "link", "add", "peer", "type", "veth", "peer", "name", "eth0", "netns", inner)
    run("ip", "-n", inner, "address", "add", "10.99.0.2/24", "dev", "eth0")
    run("ip", "-n", outer, "address", "add", "10.99.0.1/24", "dev", "peer")
    for name, link in ((inner, "eth0"), (inner, "lo"), (outer, "peer")):
        run("ip", "-n", name, "link", "set", link, "up")
    with subprocess.Popen(["ip", "netns", "exec", inner, "sleep", "300"]) as sleeper:
        network = os.open(f"/run/netns/{inner}", os.O_RDONLY)
        launcher = Launcher(sleeper.pid, os.pidfd_open(sleeper.pid), network, os.open("/", os.O_PATH))
        yield launcher
        launcher.close()
        sleeper.kill()
    for name in (inner, outer):
        run("ip", "netns", "del", name)


@pytest.fixture
def servers(tmp_path: Path) -> Servers:
    return Servers(tmp_path / "state")


async def test_preparing_twice_leaves_one_bridge_one_table_and_one_dhcp_server(pod: Launcher, servers: Servers) -> None:
    first = await setup.prepare(VM, "pod-1", pod, servers)
    (before,) = servers.running()
    second = await setup.prepare(VM, "pod-1", pod, servers)

    assert first == second
    assert first[0].addresses == ("10.99.0.2",)
    assert servers.running() == [before]
    links = {link["ifname"]: link for link in await namespaces.links(pod.network)}
    assert links["k6t-eth0"]["address"] == masquerade.BRIDGE_MAC
    assert links["tap0"]["master"] == "k6t-eth0"
    rules = (await namespaces.run(pod.network, ("nft", "list", "table", "ip", "kubevirt"))).decode()
    assert rules.count("dnat to 10.0.2.2") == 1
    assert rules.count("masquerade") == 1
    forwarding = await namespaces.run(pod.network, ("cat", "/proc/sys/net/ipv4/ip_forward"))
    assert forwarding.strip() == b"1"
    await servers.end("pod-1")


async def test_a_dhcp_server_is_found_by_a_restarted_handler_and_ended_with_its_pod(
    pod: Launcher, servers: Servers, tmp_path: Path
) -> None:
    await setup.prepare(VM, "pod-1", pod, servers)
    (before,) = servers.running()

    again = Servers(tmp_path / "state")
    await setup.prepare(VM, "pod-1", pod, again)
    assert again.running() == [before]
    await again.sweep(lambda pod_uid: pod_uid == "pod-1")
    assert again.running() == [before]
    await again.sweep(lambda _: False)

    for child in servers._children.values():
        await child.wait()
    assert again.running() == []
    assert not Path(f"/proc/{before.pid}/ns/net").exists()


async def test_a_guest_is_given_its_address_and_is_reached_by_the_pods(pod: Launcher, servers: Servers) -> None:
    """The tap's other end is held by the test, which speaks DHCP and answers ARP: a real exchange of frames without a guest."""
    (interface,) = await setup.prepare(VM, "pod-1", pod, servers)
    program = Path(__file__).parent / "guest_on_tap.py"
    child = await asyncio.create_subprocess_exec(
        *namespaces.inside(pod.network, ("python3", str(program), interface.tap, interface.mac)),
        stdout=asyncio.subprocess.PIPE,
        pass_fds=(pod.network,),
    )
    async with asyncio.timeout(15):
        output, _ = await child.communicate()
    await servers.end("pod-1")

    assert output.decode().split() == ["10.0.2.2", "10.0.2.1", "testvm"]


async def test_what_the_process_holds_ends_with_the_process(pod: Launcher) -> None:
    os.kill(pod.pid, 9)
    started = time.monotonic()
    await pod.ended()

    assert time.monotonic() - started < 5
    assert pod.has_ended


async def test_a_pod_that_ends_while_its_dhcp_server_starts_leaves_no_server_and_no_complaint(pod: Launcher, servers: Servers) -> None:
    await setup.prepare(VM, "pod-1", pod, servers)
    (server,) = servers.running()
    await servers.end("pod-1")
    for milliseconds in range(0, 30, 3):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(servers.ensure("pod-1", pod.network, server.command))
            await asyncio.sleep(milliseconds / 1000)
            tasks.create_task(servers.end("pod-1"))
        assert servers.running() == []


async def test_two_who_want_a_server_at_once_get_one(pod: Launcher, servers: Servers) -> None:
    await setup.prepare(VM, "pod-1", pod, servers)
    (server,) = servers.running()
    await servers.end("pod-1")
    for _ in range(5):
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):
                tasks.create_task(servers.ensure("pod-1", pod.network, server.command))
        assert len(servers.running()) == 1
        await servers.end("pod-1")


async def test_a_dhcp_server_that_cannot_start_says_why(pod: Launcher, servers: Servers) -> None:
    program = "import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 67)); print(flush=True); time.sleep(60)"
    command = namespaces.inside(pod.network, ("python3", "-c", program))
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=(pod.network,)) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            with pytest.raises(namespaces.CommandFailed, match=r"Address already in use \(exit status 2\)"):
                await setup.prepare(VM, "pod-1", pod, servers)
        finally:
            holder.kill()


async def test_a_dhcp_server_that_is_killed_before_it_is_ready_is_told_as_that(pod: Launcher, servers: Servers) -> None:
    with pytest.raises(namespaces.CommandFailed, match=r"it said nothing \(signal 9\)"):
        await servers.ensure("pod-1", pod.network, ("sh", "-c", "kill -9 $$"))
