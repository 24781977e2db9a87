from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from apiserver.apis.virt.places import network
from apiserver.apis.virt.spec import attachments
from handler.network import namespaces, setup
from tests.host.handler import frames, pods
from tests.host.handler.frames import ARP, IPV4, arp, bpdu, ethernet, ping, tagged, udp
from tests.host.handler.pods import CALLER, POD, Ear, Pod, Tap, run
from tests.host.launcher.sandbox import wait_for

pytestmark = pytest.mark.host

MAC, OTHER = "52:54:00:00:00:77", "52:54:00:00:00:99"
GUEST, NEIGHBOUR = "192.168.7.9", "192.168.7.1"
LINK, BRIDGE, TAP = attachments.link("lan"), attachments.bridge("lan"), attachments.tap("lan")
EVIL, LAST = b"EVIL-FRAME", b"LAST-FRAME"
ARP_REPLY = b"\x08\x06\0\1\x08\0\6\4\0\2"
VM: dict[str, Any] = {
    "metadata": {"name": "testvm", "namespace": "default", "uid": "3f0e"},
    "spec": {"domain": {"devices": {"interfaces": [{"name": "default"}, {"name": "lan", "network": "lan", "mac": MAC}]}}},
}


@contextlib.contextmanager
def a_pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        run("ip", "-n", made.caller, "link", "add", "lan", "mtu", "1400", "type", "veth", "peer", "name", LINK, "netns", made.name)
        run("ip", "-n", made.name, "link", "set", LINK, "mtu", "1400", "address", MAC)
        run("ip", "-n", made.name, "address", "add", f"{GUEST}/24", "dev", LINK)
        run("ip", "-n", made.caller, "address", "add", f"{NEIGHBOUR}/24", "dev", "lan")
        for name, link in ((made.name, LINK), (made.caller, "lan")):
            run("ip", "-n", name, "link", "set", link, "up")
        yield made


@pytest.fixture
def pod() -> Iterator[Pod]:
    with a_pod() as made:
        yield made


class World:
    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.tap = Tap(pod, TAP)
        self.lan = pod.outside(lambda: Ear("lan"))
        self.peer = pod.outside(lambda: Ear("peer"))

    def forget(self) -> None:
        """Drop frames and counts of earlier tests."""
        self.tap.drain(0)
        self.lan.drain()
        self.peer.drain()
        pods.reset_counters(self.pod, f"kubevirt_{TAP}")

    def close(self) -> None:
        self.tap.close()
        self.lan.close()
        self.peer.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    with a_pod() as pod:
        asyncio.run(pods.NETWORKS.prepare(VM, "", pod.launcher))
        with contextlib.closing(World(pod)) as made:
            yield made


@pytest.fixture
def world(shared: World) -> World:
    """Return the module's World, for tests that leave the pod unchanged."""
    shared.forget()
    return shared


@pytest.fixture
async def own_world(pod: Pod) -> AsyncIterator[World]:
    await pods.NETWORKS.prepare(VM, "", pod.launcher)
    made = World(pod)
    yield made
    made.close()


def mine(payload: bytes, kind: int = IPV4, destination: str = frames.BROADCAST) -> bytes:
    return ethernet(MAC, kind, payload, destination)


LEGAL = mine(udp(GUEST, NEIGHBOUR, LAST))


async def test_guest_is_answered_on_a_network_that_reflects_broadcasts(own_world: World) -> None:
    question = mine(arp(1, MAC, GUEST, "192.168.7.7"), ARP)
    assert own_world.tap.send(question)
    own_world.lan.until(question[14:])
    own_world.lan.send(question)
    own_world.lan.send(ethernet(OTHER, ARP, arp(2, OTHER, "192.168.7.7", GUEST), MAC))
    assert own_world.tap.receive(lambda frame: frame[6:12] == frames.mac(OTHER))[:6] == frames.mac(MAC)


async def test_guest_is_a_neighbour_with_its_mac_and_ipam_address(world: World) -> None:
    meet(world, GUEST)


async def test_without_ipam_the_guest_chooses_its_address(pod: Pod) -> None:
    run("ip", "-n", pod.name, "address", "flush", "dev", LINK)
    await pods.NETWORKS.prepare(VM, "", pod.launcher)
    made = World(pod)
    for address in ("192.168.7.2", "192.168.7.3"):
        meet(made, address)
    tag = tagged(mine(udp(GUEST, NEIGHBOUR, EVIL)), 7)
    assert made.tap.send(tag)
    assert made.tap.send(LEGAL)
    assert EVIL in b"".join(made.lan.until(LAST))
    made.close()


async def test_link_left_down_stays_silent_until_the_guest_speaks(pod: Pod) -> None:
    """The pod's kernel would use the guest's MAC address for IPv6 before the guest arrives."""
    run("ip", "-n", pod.name, "address", "flush", "dev", LINK)
    run("ip", "-n", pod.name, "link", "set", LINK, "down")
    early = pod.outside(lambda: Ear("lan"))
    await pods.NETWORKS.prepare(VM, "", pod.launcher)
    made = World(pod)
    wait_for(lambda: "bridge_slave state forwarding" in run("ip", "-n", pod.name, "-d", "link", "show", LINK), 30, "its cable")
    assert made.tap.send(LEGAL)
    assert [frame for frame in early.until(LAST) if frame[6:12] == frames.mac(MAC)] == [LEGAL]
    meet(made, "192.168.7.2")
    early.close()
    made.close()


def meet(world: World, address: str) -> None:
    assert world.tap.send(mine(arp(1, MAC, address, NEIGHBOUR), ARP))
    answered = world.tap.receive(lambda frame: frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2")
    assert answered[:6] == frames.mac(MAC)
    neighbour = ":".join(f"{byte:02x}" for byte in answered[6:12])
    world.tap.send(mine(ping(address, NEIGHBOUR), destination=neighbour))
    world.tap.receive(lambda frame: frame[12:14] == b"\x08\x00" and frame[23] == 1 and frame[34] == 0)  # ICMP: echo reply


async def test_both_networks_exist_and_the_pod_keeps_its_address(world: World) -> None:
    links = {each["ifname"]: each for each in await namespaces.links(world.pod.launcher.network)}
    assert {"eth0", network.BRIDGE, network.TAP, LINK, BRIDGE, TAP} <= links.keys()
    addresses = {name: [each["local"] for each in link["addr_info"]] for name, link in links.items()}
    assert POD in addresses["eth0"]
    assert addresses[LINK] == addresses[TAP] == []
    assert addresses[BRIDGE] == [network.BRIDGED_SERVER]
    assert [links[name]["mtu"] for name in (LINK, BRIDGE, TAP)] == [1400, 1400, 1400]
    assert MAC not in {link["address"] for link in links.values()}


@pytest.mark.parametrize(
    "frame",
    [
        ethernet(OTHER, IPV4, udp(GUEST, NEIGHBOUR, EVIL)),
        ethernet(OTHER, ARP, arp(2, OTHER, GUEST, NEIGHBOUR) + EVIL),
        tagged(ethernet(OTHER, IPV4, udp(GUEST, NEIGHBOUR, EVIL)), 7),
        bpdu(MAC) + EVIL,
        mine(udp("192.168.7.2", NEIGHBOUR, EVIL)),
        mine(udp("0.0.0.0", NEIGHBOUR, EVIL)),
        mine(arp(2, MAC, NEIGHBOUR, "192.168.7.3") + EVIL, ARP),
        mine(arp(2, OTHER, GUEST, NEIGHBOUR) + EVIL, ARP),
        tagged(mine(udp(GUEST, NEIGHBOUR, EVIL)), 7),
        tagged(mine(udp("192.168.7.2", NEIGHBOUR, EVIL)), 0),
        tagged(tagged(mine(udp("192.168.7.2", NEIGHBOUR, EVIL)), 0), 0, frames.PROVIDER_VLAN),
        mine(udp(GUEST, "255.255.255.255", EVIL, (67, 68))),
        mine(EVIL, 0x88CC),
    ],
    ids=[
        "another MAC address",
        "ARP from another MAC address",
        "another MAC address in a VLAN",
        "a bridge's message",
        "another address",
        "no address",
        "ARP: the neighbour's address is mine",
        "ARP: my address is another's",
        "a VLAN, which may be the network's own",
        "another address with a priority tag",
        "another address with two tags",
        "an answer of DHCP",
        "another protocol",
    ],
)
async def test_a_frame_that_is_not_of_the_guest_goes_nowhere(world: World, frame: bytes) -> None:
    for _ in range(3):
        assert world.tap.send(frame)
    world.tap.send(LEGAL)
    assert EVIL not in b"".join(world.lan.until(LAST))
    counters = run("ip", "netns", "exec", world.pod.name, "nft", "list", "counters", "table", "netdev", f"kubevirt_{TAP}")
    at_the_tap, _, _ = counters.partition("counter to_pod")
    assert at_the_tap.count("packets 3 ") == 1, counters


@pytest.mark.parametrize("sender", ["guest", "neighbour"])
async def test_network_peers_reach_neither_the_pod_nor_beyond(world: World, sender: str) -> None:
    (bridge,) = (each["address"] for each in await namespaces.links(world.pod.launcher.network) if each["ifname"] == BRIDGE)
    source = MAC if sender == "guest" else OTHER
    sent = [
        ethernet(source, IPV4, udp(GUEST, CALLER, EVIL), bridge),
        ethernet(source, IPV4, udp(GUEST, network.GUEST, EVIL), bridge),
        ethernet(source, ARP, arp(1, source, GUEST, POD), frames.BROADCAST),
    ]
    own = Tap(world.pod)
    wait_for(lambda: "bridge_slave state forwarding" in run("ip", "-n", world.pod.name, "-d", "link", "show", network.TAP), 30, "its cable")
    for frame in sent:
        if sender == "guest":
            world.tap.send(frame)
        else:
            world.pod.outside(functools.partial(_send, "lan", frame))
    world.tap.send(LEGAL)
    assert ARP_REPLY not in b"".join(world.lan.until(LAST))
    own.send(ethernet(setup.wanted(VM)[0].mac, IPV4, udp(network.GUEST, CALLER, LAST), network.BRIDGE_MAC))
    assert EVIL not in b"".join(world.peer.until(LAST))
    assert LAST in _called(world.pod, own)
    own.close()


def _send(device: str, frame: bytes) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((device, 0))
        raw.send(frame)


def _called(pod: Pod, guest: Tap) -> bytes:
    for _ in range(30):
        pod.outside(_call)
        with contextlib.suppress(TimeoutError):
            return guest.receive(lambda frame: EVIL in frame or LAST in frame, 1.0)
    raise AssertionError("no call arrived")


def _call() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        caller.sendto(LAST, (POD, 4001))


async def test_repeated_setup_keeps_the_filters(own_world: World) -> None:
    await pods.NETWORKS.prepare(VM, "", own_world.pod.launcher)
    meet(own_world, GUEST)
    for _ in range(3):
        own_world.tap.send(ethernet(OTHER, IPV4, udp(GUEST, NEIGHBOUR, EVIL)))
    own_world.tap.send(LEGAL)
    assert EVIL not in b"".join(own_world.lan.until(LAST))
