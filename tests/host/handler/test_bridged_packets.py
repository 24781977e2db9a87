from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from apiserver.apis.virt.places import network
from handler.network import namespaces
from tests.host.handler import frames, pods
from tests.host.handler.frames import ARP, IPV4, IPV6, arp, ethernet, tagged, udp
from tests.host.handler.pods import CALLER, POD, Ear, Pod, Tap, run
from tests.host.handler.test_guest_packets import listening

pytestmark = pytest.mark.host

VM = {
    "metadata": {"uid": "3f0e"},
    "spec": {"domain": {"devices": {"interfaces": [{"name": "default", "type": "bridge"}]}}},
}
OTHER = "52:54:00:00:00:66"
EVIL, LAST = b"evil-payload", b"last-payload"


@dataclass
class World:
    pod: Pod
    mac: str
    tap: Tap
    uplink: Ear

    def mine(self, payload: bytes, kind: int = IPV4, destination: str = frames.BROADCAST) -> bytes:
        return ethernet(self.mac, kind, payload, destination)

    def heard(self) -> bytes:
        assert self.tap.send(self.mine(udp(POD, CALLER, LAST)))
        return b"".join(self.uplink.until(LAST))


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        yield made


@pytest.fixture
async def world(pod: Pod) -> AsyncIterator[World]:
    (wired,) = await pods.NETWORKS.prepare(VM, "", pod.launcher)
    made = World(pod, wired.mac, Tap(pod), pod.outside(lambda: Ear("peer")))
    yield made
    made.tap.close()
    made.uplink.close()


async def test_the_pod_has_no_address_and_its_guest_has(world: World) -> None:
    links = {link["ifname"]: link for link in await namespaces.links(world.pod.launcher.network)}
    assert links["eth0"]["addr_info"] == []
    assert {links[name]["master"] for name in ("eth0", "tap0")} == {network.BRIDGE}
    assert world.mac not in {link["address"] for link in links.values()}
    with world.pod.outside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as caller:
        caller.bind((CALLER, 4001))
        caller.settimeout(30)
        caller.sendto(b"hello", (POD, 4000))
        asked = world.tap.receive(lambda frame: frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\1")
        world.tap.send(world.mine(arp(2, world.mac, POD, CALLER), ARP, asked[6:12].hex(":")))
        assert world.tap.receive(lambda frame: b"hello" in frame)[:6] == frames.mac(world.mac)
        world.tap.send(world.mine(udp(POD, CALLER, b"hello to you"), destination=asked[6:12].hex(":")))
        assert caller.recvfrom(100) == (b"hello to you", (POD, 4000))


async def test_guest_is_answered_on_a_network_that_reflects_broadcasts(world: World) -> None:
    """As a CNI bridge in hairpin mode. Forged senders must not take the guest's place."""
    question = world.mine(arp(1, world.mac, POD, CALLER), ARP)
    assert world.tap.send(question)
    world.uplink.until(question[14:])
    for _ in range(2):
        world.uplink.send(question)
    world.uplink.send(ethernet(OTHER, ARP, arp(2, OTHER, CALLER, POD), world.mac))
    answer = world.tap.receive(lambda frame: frame[12:14] == b"\x08\x06" and frame[6:12] == frames.mac(OTHER))
    assert answer[:6] == frames.mac(world.mac)


async def test_frames_that_are_not_of_the_guest_go_nowhere(world: World) -> None:
    mine, foreign = world.mine, udp("10.99.0.77", CALLER, EVIL)
    spoofs = {
        "another IPv4 address": mine(foreign),
        "no address": mine(udp("0.0.0.0", CALLER, EVIL)),
        "another MAC address": ethernet(OTHER, IPV4, udp(POD, CALLER, EVIL)),
        "ARP: the gateway's address is mine": mine(arp(2, world.mac, CALLER, POD) + EVIL, ARP),
        "ARP: my address is another's": mine(arp(2, OTHER, POD, CALLER) + EVIL, ARP),
        "IPv6": mine(frames.udp6("fd99::3", "fd99::1", EVIL, 4001), IPV6),
        "a VLAN": tagged(mine(udp(POD, CALLER, EVIL)), 7),
        "LLDP": mine(EVIL, 0x88CC, "01:80:c2:00:00:0e"),
        "loopback": mine(udp(POD, "127.0.0.1", EVIL)),
        "an answer of DHCP": mine(udp(POD, "255.255.255.255", EVIL, (67, 68))),
        "an answer of DHCP from another port": mine(udp(POD, CALLER, EVIL, (4000, 68))),
    }
    for frame in (*spoofs.values(), frames.bpdu(world.mac)):
        assert world.tap.send(frame)
    heard = world.heard()
    assert EVIL not in heard
    assert b"\x42\x42\x03" not in heard
    told = run("ip", "netns", "exec", world.pod.name, "nft", "list", "counters", "table", "netdev", "kubevirt")
    at_the_tap, _, _ = told.partition("counter to_pod")
    assert sum(int(line.split()[1]) for line in at_the_tap.splitlines() if "packets" in line) == len(spoofs) + 1, told


async def test_requests_of_dhcp_are_heard_in_the_pod_and_nowhere_else(world: World) -> None:
    discover, renew = (udp(source, to, EVIL, (68, 67)) for source, to in (("0.0.0.0", "255.255.255.255"), (POD, network.BRIDGED_SERVER)))
    with world.pod.inside(listening(67)) as dhcp:
        world.tap.send(world.mine(discover))
        world.tap.send(world.mine(renew, destination=OTHER))
        assert EVIL not in world.heard()
        dhcp.setblocking(True)
        dhcp.settimeout(30)
        assert (dhcp.recv(100), dhcp.recv(100)) == (EVIL, EVIL)
        for _ in range(200):
            world.tap.send(world.mine(discover))
        assert EVIL not in world.heard()
        dhcp.setblocking(False)
        arrived = 0
        try:
            while dhcp.recv(100):
                arrived += 1
        except BlockingIOError:
            pass
        assert arrived < 150


async def test_answers_to_everybody_are_heard_by_the_guest_alone(world: World) -> None:
    with world.pod.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, network.BRIDGE.encode())
        server.bind(("", 67))
        server.sendto(EVIL, ("255.255.255.255", 68))
    assert world.tap.receive(lambda frame: EVIL in frame)[:6] == frames.mac(frames.BROADCAST)
    assert EVIL not in world.heard()


async def test_servers_out_there_are_not_heard(world: World) -> None:
    """The guest's DHCP server is in its pod; a client checks only its own port."""
    for ports in ((67, 68), (4000, 68)):
        for destination in (POD, "255.255.255.255"):
            world.uplink.send(ethernet(OTHER, IPV4, udp(CALLER, destination, EVIL, ports)))
    world.uplink.send(ethernet(OTHER, IPV4, udp(CALLER, POD, LAST)))
    assert LAST in world.tap.receive(lambda frame: EVIL in frame or LAST in frame)


async def test_other_senders_do_not_reach_the_rest_of_the_pod(world: World) -> None:
    bridge = network.derived_mac(world.mac, "bridge")
    with world.pod.inside(listening(4001)) as service, world.pod.inside(listening(67)) as dhcp:
        bridge_hears = world.pod.inside(lambda: Ear(network.BRIDGE))
        sender = world.pod.outside(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        sender.bind(("peer", 0))
        for ports in ((4000, 4001), (68, 67)):
            sender.send(ethernet(OTHER, IPV4, udp(CALLER, network.BRIDGED_SERVER, EVIL, ports), bridge))
        sender.close()
        world.tap.send(world.mine(udp(POD, network.BRIDGED_SERVER, EVIL), destination=bridge))
        for _ in range(3):
            bridge_hears.until(EVIL)
        bridge_hears.close()
        for each in (service, dhcp):
            with pytest.raises(BlockingIOError):
                each.recv(100)
