from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import os
import secrets
import socket
import stat
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import layout, network
from apiserver.apis.virt.spec import attachments
from handler.devices import macvtap
from handler.network import namespaces
from handler.network.namespaces import CommandFailed
from tests.host.handler import frames, pods
from tests.host.handler.frames import ARP, IPV4, arp, bpdu, ethernet, ping, tagged, udp
from tests.host.handler.macvtaps import free_minor
from tests.host.handler.pods import CALLER, IFF_NO_PI, IFF_TAP, POD, TUNSETIFF, Ear, Pod, Tap, run

pytestmark = pytest.mark.host

MAC, OTHER = "52:54:00:00:00:77", "52:54:00:00:00:99"
GUEST, NEIGHBOUR = "192.168.7.2", "192.168.7.1"
LINK, TAP = attachments.link("lan"), attachments.tap("lan")
EVIL, LAST = b"EVIL-FRAME", b"LAST-FRAME"
KINDS = ("veth", "macvlan")
SWITCH = "02:00:00:00:aa:01"
VM: dict[str, Any] = {
    "metadata": {"name": "testvm", "namespace": "default", "uid": "3f0e"},
    "spec": {
        "domain": {"devices": {"interfaces": [{"name": "default"}, {"name": "lan", "type": "macvtap", "network": "lan", "mac": MAC}]}}
    },
}


@contextlib.contextmanager
def with_device(pod: Pod, root: Path) -> Iterator[tuple[Pod, int]]:
    (root / "dev").mkdir(parents=True)
    minor = free_minor()
    for each in (minor, minor + 1):
        os.mknod(root / macvtap.path_of(each)[1:], 0o600 | stat.S_IFCHR, os.makedev(macvtap.driver() or 0, each))
    descriptor = os.open(root, os.O_PATH)
    try:
        yield dataclasses.replace(pod, launcher=dataclasses.replace(pod.launcher, root=descriptor)), minor
    finally:
        os.close(descriptor)


def is_link(minor: int) -> bool:
    return Path(f"/sys/dev/char/{macvtap.driver()}:{minor}").is_symlink()


def occupy(pod: Pod, last: int) -> None:
    while not all(map(is_link, range(1, last + 1))):
        name = f"other{secrets.token_hex(4)}"
        run("ip", "-n", pod.caller, "link", "add", "link", "lower", "name", name, "type", "macvtap", "mode", "bridge")


@contextlib.contextmanager
def a_pod(kind: str, root: Path) -> Iterator[tuple[Pod, int]]:
    with pods.a_pod() as pod, with_device(pod, root) as found:
        node = f"{pod.caller}n"
        if kind == "veth":
            run(
                "ip",
                "-n",
                pod.caller,
                "link",
                "add",
                "lan",
                "address",
                SWITCH,
                "mtu",
                "1400",
                "type",
                "veth",
                "peer",
                "name",
                LINK,
                "netns",
                pod.name,
            )
            run("ip", "-n", pod.name, "link", "set", LINK, "mtu", "1400", "address", MAC)
        else:
            run("ip", "netns", "add", node)
            run(
                "ip",
                "-n",
                pod.caller,
                "link",
                "add",
                "lan",
                "address",
                SWITCH,
                "mtu",
                "1400",
                "type",
                "veth",
                "peer",
                "name",
                "card",
                "netns",
                node,
            )
            run("ip", "-n", node, "link", "set", "card", "mtu", "1400", "up")
            run("ip", "-n", node, "link", "add", "link", "card", "name", "new", "address", MAC, "type", "macvlan", "mode", "bridge")
            run("ip", "-n", node, "link", "set", "new", "netns", pod.name, "name", LINK)
        run("ip", "-n", pod.caller, "address", "add", f"{NEIGHBOUR}/24", "dev", "lan")
        for name, link in ((pod.name, LINK), (pod.caller, "lan")):
            run("ip", "-n", name, "link", "set", link, "up")
        yield found
        if kind == "macvlan":
            run("ip", "netns", "del", node)


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Pod, int]]:
    with a_pod(request.param, tmp_path / "root") as found:
        yield found


class Macvtap(Tap):
    def __init__(self, pod: Pod, minor: int) -> None:
        at = pod.launcher.root
        self._file = pod.inside(lambda: os.open(macvtap.path_of(minor)[1:], os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=at))
        fcntl.ioctl(self._file, TUNSETIFF, struct.pack("16sH22x", b"", IFF_TAP | IFF_NO_PI))


class World:
    def __init__(self, pod: Pod, minor: int) -> None:
        self.pod, self.minor = pod, minor
        self.tap = Macvtap(pod, minor)
        self.lan = pod.outside(lambda: Ear("lan"))

    def forget(self) -> None:
        """Drop frames and counts of earlier tests."""
        self.tap.drain(0)
        self.lan.drain()
        pods.reset_counters(self.pod, f"kubevirt_{TAP}")

    def close(self) -> None:
        self.tap.close()
        self.lan.close()


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_pod(request.param, tmp_path_factory.mktemp("shared") / "root") as made:
        asyncio.run(pods.NETWORKS.prepare(VM, "", made[0].launcher))
        with contextlib.closing(World(*made)) as found:
            yield found


@pytest.fixture
def world(shared: World) -> World:
    """Return the module's World, for tests that leave the pod unchanged."""
    shared.forget()
    return shared


@pytest.fixture
async def own_world(made: tuple[Pod, int]) -> AsyncIterator[World]:
    await pods.NETWORKS.prepare(VM, "", made[0].launcher)
    found = World(*made)
    yield found
    found.close()


def mine(payload: bytes, kind: int = IPV4, destination: str = frames.BROADCAST) -> bytes:
    return ethernet(MAC, kind, payload, destination)


LEGAL = mine(udp(GUEST, NEIGHBOUR, LAST))


async def test_guest_is_a_neighbour_with_its_mac_and_any_address(world: World) -> None:
    assert world.tap.send(mine(arp(1, MAC, GUEST, NEIGHBOUR), ARP))
    answered = world.tap.receive(lambda frame: frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2")
    assert answered[:6] == frames.mac(MAC)
    neighbour = ":".join(f"{byte:02x}" for byte in answered[6:12])
    world.tap.send(mine(ping(GUEST, NEIGHBOUR), destination=neighbour))
    world.tap.receive(lambda frame: frame[12:14] == b"\x08\x00" and frame[23] == 1 and frame[34] == 0)  # ICMP: echo reply


async def test_guest_hears_multicast_and_no_foreign_unicast(world: World) -> None:
    for destination, payload in ((OTHER, EVIL), ("33:33:ff:00:00:01", LAST)):
        world.lan.send(ethernet(OTHER, IPV4, udp(NEIGHBOUR, GUEST, payload), destination))
    assert LAST in world.tap.receive(lambda frame: EVIL in frame or LAST in frame)


async def test_the_pods_user_may_open_only_the_guests_device(world: World) -> None:
    found = [os.stat(macvtap.path_of(each)[1:], dir_fd=world.pod.launcher.root) for each in (world.minor, world.minor + 1)]
    assert [(each.st_uid, stat.S_IMODE(each.st_mode)) for each in found] == [(layout.USER_ID, 0o660), (0, 0o600)]
    links = {each["ifname"]: each for each in await namespaces.links(world.pod.launcher.network)}
    assert (links[TAP]["ifindex"], links[TAP]["mtu"], links[TAP]["address"]) == (network.MACVTAP_INDEX + world.minor, 1400, MAC)
    assert not [each for each in links if each.startswith(network.MACVTAP_HOLDER)]
    assert [each["local"] for each in links["eth0"]["addr_info"] if each["family"] == "inet"] == [POD]
    assert links[LINK]["addr_info"] == links[TAP]["addr_info"] == []


@pytest.mark.parametrize(
    "frame",
    [
        ethernet(OTHER, IPV4, udp(GUEST, NEIGHBOUR, EVIL)),
        ethernet(OTHER, ARP, arp(2, OTHER, GUEST, NEIGHBOUR) + EVIL),
        tagged(ethernet(OTHER, IPV4, udp(GUEST, NEIGHBOUR, EVIL)), 7),
        bpdu(MAC) + EVIL,
    ],
    ids=["another MAC address", "ARP from another MAC address", "another MAC address in a VLAN", "a bridge's message"],
)
async def test_a_frame_that_is_not_of_the_guest_goes_nowhere(world: World, frame: bytes) -> None:
    for _ in range(3):
        world.tap.send(frame)
    world.tap.send(LEGAL)
    assert EVIL not in b"".join(world.lan.until(LAST))
    counters = run("ip", "netns", "exec", world.pod.name, "nft", "list", "counters", "table", "netdev", f"kubevirt_{TAP}")
    assert counters.count("packets 3 ") == 1, counters


async def test_pod_neither_answers_nor_forwards_on_the_network(world: World) -> None:
    (link,) = (each["address"] for each in await namespaces.links(world.pod.launcher.network) if each["ifname"] == LINK)
    peer = world.pod.outside(lambda: Ear("peer"))
    for destination in (link, frames.BROADCAST):
        world.lan.send(ethernet(OTHER, ARP, arp(1, OTHER, NEIGHBOUR, POD), destination))
        world.lan.send(ethernet(OTHER, IPV4, udp(NEIGHBOUR, CALLER, EVIL), destination))
        world.lan.send(ethernet(OTHER, IPV4, ping(NEIGHBOUR, POD), destination))
    world.tap.send(LEGAL)
    assert [each for each in world.lan.until(LAST) if each[6:12] not in (frames.mac(MAC), frames.mac(OTHER), frames.mac(SWITCH))] == []
    world.pod.inside(_call)
    assert EVIL not in b"".join(peer.until(LAST))
    peer.close()


def _call() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        caller.sendto(LAST, (CALLER, 4001))


async def test_repeated_setup_keeps_the_filters(own_world: World) -> None:
    await pods.NETWORKS.prepare(VM, "", own_world.pod.launcher)
    await test_guest_is_a_neighbour_with_its_mac_and_any_address(own_world)
    for _ in range(3):
        own_world.tap.send(ethernet(OTHER, IPV4, udp(GUEST, NEIGHBOUR, EVIL)))
    own_world.tap.send(LEGAL)
    assert EVIL not in b"".join(own_world.lan.until(LAST))


async def test_used_device_number_is_reported_and_its_device_kept(made: tuple[Pod, int]) -> None:
    pod, minor = made
    run("ip", "-n", pod.caller, "tuntap", "add", "dev", "lower", "mode", "tap")
    occupy(pod, minor)
    with pytest.raises(CommandFailed, match=f"has another device than {macvtap.driver()}:{minor}"):
        await pods.NETWORKS.prepare(VM, "", pod.launcher)
    assert TAP not in {each["ifname"] for each in await namespaces.links(pod.launcher.network)}
    assert os.stat(macvtap.path_of(minor)[1:], dir_fd=pod.launcher.root).st_uid == 0
    run("ip", "-n", pod.caller, "link", "delete", "lower")
    await pods.NETWORKS.prepare(VM, "", pod.launcher)
    assert os.stat(macvtap.path_of(minor)[1:], dir_fd=pod.launcher.root).st_uid == layout.USER_ID


async def test_leftover_macvtap_of_another_pod_is_not_used(made: tuple[Pod, int]) -> None:
    """Two tenants' equal interfaces have equally named links, and an open descriptor keeps a deleted pod's link."""
    pod, minor = made
    run("ip", "-n", pod.caller, "tuntap", "add", "dev", "lower", "mode", "tap")
    like = ("name", TAP, "index", str(network.MACVTAP_INDEX + minor))
    while True:
        occupy(pod, minor - 1)
        run("ip", "-n", pod.caller, "link", "add", "link", "lower", *like, "type", "macvtap", "mode", "bridge")
        if is_link(minor):
            break
        run("ip", "-n", pod.caller, "link", "delete", TAP)
    with pytest.raises(CommandFailed, match=f"has another device than {macvtap.driver()}:{minor}"):
        await pods.NETWORKS.prepare(VM, "", pod.launcher)
    assert TAP not in {each["ifname"] for each in await namespaces.links(pod.launcher.network)}
    assert os.stat(macvtap.path_of(minor)[1:], dir_fd=pod.launcher.root).st_uid == 0
