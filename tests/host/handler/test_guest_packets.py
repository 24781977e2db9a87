from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from apiserver.apis.virt.places import network
from handler.network import namespaces, setup
from handler.network.binding import Unsupported
from handler.network.macs import mac_address
from tests.host.handler import frames, pods
from tests.host.handler.frames import ARP, IPV4, IPV6, PROVIDER_VLAN, arp, bpdu, ethernet, ping, tagged, udp, udp6
from tests.host.handler.pods import CALLER, CALLER6, POD, POD6, Ear, Pod, Tap, run

pytestmark = pytest.mark.host

VM = {
    "metadata": {"name": "testvm", "namespace": "default", "uid": "3f0e"},
    "spec": {"domain": {"devices": {"interfaces": [{"name": "default", "type": "masquerade", "model": "virtio"}]}}},
}
MINE = mac_address("3f0e", "default")
OTHER = "52:54:00:00:00:99"
GATEWAY_MAC = network.BRIDGE_MAC
EVIL, LAST = b"EVIL-FRAME", b"LAST-FRAME"


def mine(payload: bytes, kind: int = IPV4, destination: str = GATEWAY_MAC) -> bytes:
    return ethernet(MINE, kind, payload, destination)


def discover(source: str = "0.0.0.0", ports: tuple[int, int] = (68, 67), destination: str = "255.255.255.255") -> bytes:
    return mine(udp(source, destination, EVIL, ports), destination=frames.BROADCAST)


LEGAL = mine(udp(network.GUEST, CALLER, LAST))

SPOOFS = {
    "another IPv4 address": mine(udp("10.99.99.99", CALLER, EVIL)),
    "the pod's IPv4 address": mine(udp(POD, CALLER, EVIL)),
    "the gateway's IPv4 address": mine(udp(network.GATEWAY, CALLER, EVIL)),
    "loopback's IPv4 address": mine(udp("127.0.0.1", CALLER, EVIL)),
    "a caller's IPv4 address": mine(udp(CALLER, CALLER, EVIL)),
    "no IPv4 address, and no DHCP": mine(udp("0.0.0.0", "255.255.255.255", EVIL), destination=frames.BROADCAST),
    "no IPv4 address, DHCP to one server": mine(udp("0.0.0.0", CALLER, EVIL, (68, 67))),
    "no IPv4 address, from another port": discover(ports=(4000, 67)),
    "another IPv4 address, DHCP to everybody": discover("10.99.99.99"),
    "a later fragment from another IPv4 address": mine(udp("10.99.99.99", CALLER, EVIL, offset=1480)),
    "loopback": mine(udp(network.GUEST, "127.0.0.1", EVIL)),
    "another of loopback's addresses": mine(udp(network.GUEST, "127.8.0.1", EVIL)),
    "another MAC address": ethernet(OTHER, IPV4, udp(network.GUEST, CALLER, EVIL), GATEWAY_MAC),
    "the gateway's MAC address": ethernet(GATEWAY_MAC, IPV4, udp(network.GUEST, CALLER, EVIL), frames.BROADCAST),
    "another MAC address, DHCP": ethernet(OTHER, IPV4, udp("0.0.0.0", "255.255.255.255", EVIL, (68, 67))),
    "ARP: the gateway's address is mine": mine(arp(2, MINE, network.GATEWAY, network.GUEST) + EVIL, ARP),
    "ARP: the caller's address is mine": mine(arp(1, MINE, CALLER, POD) + EVIL, ARP),
    "ARP: my address is another's": mine(arp(2, OTHER, network.GUEST, network.GATEWAY) + EVIL, ARP),
    "ARP from another MAC address": ethernet(OTHER, ARP, arp(1, OTHER, network.GUEST, network.GATEWAY) + EVIL),
    "ARP in reverse": mine(arp(3, MINE, network.GUEST, network.GATEWAY) + EVIL, ARP),
    "IPv6 to the pod": mine(udp6("fe80::1", POD6, EVIL, 4001), IPV6),
    "IPv6 to a caller": mine(udp6("fd99::3", CALLER6, EVIL, 4001), IPV6),
    "IPv6 to all nodes": mine(udp6("fe80::1", "ff02::1", EVIL, 4001), IPV6, "33:33:00:00:00:01"),
    "a VLAN": tagged(mine(udp(network.GUEST, CALLER, EVIL)), 7),
    "a priority tag": tagged(mine(udp(network.GUEST, CALLER, EVIL)), 0),
    "a priority tag, another IPv4 address": tagged(mine(udp("10.99.99.99", CALLER, EVIL)), 0),
    "a provider's VLAN": tagged(tagged(mine(udp(network.GUEST, CALLER, EVIL)), 7), 8, PROVIDER_VLAN),
    "a bridge's message": bpdu(MINE) + EVIL,
    "another protocol": mine(EVIL, 0x88CC),
    "MPLS": mine(bytes(4) + udp(network.GUEST, CALLER, EVIL), 0x8847),
    "a short ARP": mine(arp(2, MINE, network.GUEST, network.GATEWAY)[:16], ARP),
}


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        yield made


class World:
    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.tap = Tap(pod)
        self.bridge = pod.inside(lambda: Ear(network.BRIDGE))
        self.uplink = pod.outside(lambda: Ear("peer"))

    def heard(self) -> bytes:
        assert self.tap.send(LEGAL)
        return b"".join(self.bridge.until(LAST) + self.uplink.until(LAST))

    def forget(self) -> None:
        """Drop frames and counts of earlier tests."""
        self.tap.drain(0)
        self.bridge.drain()
        self.uplink.drain()
        pods.reset_counters(self.pod)

    def close(self) -> None:
        self.tap.close()
        self.bridge.close()
        self.uplink.close()


@contextlib.contextmanager
def a_world() -> Iterator[World]:
    with pods.a_pod() as pod:
        asyncio.run(pods.NETWORKS.prepare(VM, "", pod.launcher))
        with contextlib.closing(World(pod)) as made:
            yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    with a_world() as made:
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


@pytest.mark.parametrize("frame", SPOOFS.values(), ids=SPOOFS.keys())
async def test_a_frame_that_is_not_of_the_guest_goes_nowhere(world: World, frame: bytes) -> None:
    for _ in range(3):
        assert world.tap.send(frame)

    assert EVIL not in world.heard()
    counters = run("ip", "netns", "exec", world.pod.name, "nft", "list", "counters", "table", "netdev", "kubevirt")
    assert counters.count("packets 3 ") == 1, counters


async def test_necessary_guest_packets_arrive(own_world: World) -> None:
    own_world.tap.send(mine(arp(1, MINE, "0.0.0.0", network.GUEST), ARP, frames.BROADCAST))  # is my address free? (RFC 5227)
    own_world.tap.send(mine(arp(1, MINE, network.GUEST, network.GATEWAY), ARP, frames.BROADCAST))
    answered = own_world.tap.receive(lambda frame: frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2")
    assert frames.mac(GATEWAY_MAC) == answered[6:12] == answered[22:28]
    own_world.tap.send(mine(ping(network.GUEST, network.GATEWAY)))
    own_world.tap.receive(lambda frame: frame[12:14] == b"\x08\x00" and frame[23] == 1 and frame[34] == 0)  # ICMP: echo reply
    own_world.tap.send(LEGAL)
    (left,) = (frame for frame in own_world.uplink.until(LAST) if LAST in frame)
    assert left[26:34] == socket.inet_aton(POD) + socket.inet_aton(CALLER)


async def test_a_guest_reaches_callers_and_is_reached(own_world: World) -> None:
    caller = own_world.pod.outside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with caller:
        caller.bind((CALLER, 4001))
        caller.settimeout(30)
        caller.sendto(b"hello", (POD, 4000))
        asked = own_world.tap.receive(lambda frame: b"hello" in frame)
        assert asked[26:34] == socket.inet_aton(CALLER) + socket.inet_aton(network.GUEST)
        own_world.tap.send(mine(udp(network.GUEST, CALLER, b"hello to you")))
        assert caller.recvfrom(100) == (b"hello to you", (POD, 4000))


async def test_dhcp_client_port_receives_nothing_from_outside(world: World) -> None:
    with world.pod.outside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as caller:
        caller.sendto(EVIL, (POD, network.DHCP_CLIENT_PORT))
        caller.sendto(LAST, (POD, 4001))
    assert LAST in world.tap.receive(lambda frame: EVIL in frame or LAST in frame)


async def test_a_connection_to_the_pods_own_loopback_is_the_guests(own_world: World) -> None:
    """``kubectl port-forward`` connects there."""
    with own_world.pod.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as client:
        client.setblocking(False)
        assert client.connect_ex(("127.0.0.1", 22)) == errno.EINPROGRESS
        asked = own_world.tap.receive(lambda frame: frame[12:14] == b"\x08\x00" and frame[23] == frames.TCP)
        assert asked[26:34] == socket.inet_aton(network.GATEWAY) + socket.inet_aton(network.GUEST)
        source, destination, number = struct.unpack("!HHI", asked[34:42])
        assert destination == 22
        answer = frames.tcp(network.GUEST, network.GATEWAY, 0x12, b"", ports=(22, source), acknowledged=number + 1)  # SYN, ACK
        own_world.tap.send(mine(answer))
        assert select.select([], [client], [], 5)[1]
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert client.getpeername() == ("127.0.0.1", 22)


def listening(port: int) -> Callable[[], socket.socket]:
    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        made.bind(("::", port))
        made.setblocking(False)
        return made

    return make


@pytest.mark.parametrize(
    ("destination", "to"),
    [
        (network.GATEWAY, GATEWAY_MAC),
        (POD, GATEWAY_MAC),
        ("127.0.0.1", GATEWAY_MAC),
        ("255.255.255.255", frames.BROADCAST),
        (POD, "01:80:c2:00:00:0e"),  # LLDP's address: bridges hand such frames to the node
        (POD, "01:80:c2:00:00:03"),
        (POD, "01:80:c2:00:00:00"),
    ],
)
async def test_nothing_but_dhcp_in_the_pod_hears_the_guest(world: World, destination: str, to: str) -> None:
    with world.pod.inside(listening(4001)) as service, world.pod.inside(listening(67)) as dhcp:
        for source in (network.GUEST, "10.99.99.99"):
            world.tap.send(mine(udp(source, destination, EVIL), destination=to))
        world.tap.send(discover())
        world.heard()
        with pytest.raises(BlockingIOError):
            service.recv(100)
        assert dhcp.recv(100) == EVIL


async def test_guest_answers_queries_of_its_pod(own_world: World) -> None:
    with own_world.pod.inside(listening(4001)) as asker:
        asker.sendto(b"hello", (f"::ffff:{network.GUEST}", 4000))
        own_world.tap.receive(lambda frame: b"hello" in frame)
        own_world.tap.send(mine(udp(network.GUEST, network.GATEWAY, b"hello to you")))
        asker.setblocking(True)
        asker.settimeout(30)
        assert asker.recv(100) == b"hello to you"


async def test_the_guest_hears_no_ipv6_of_a_pod_without() -> None:
    with pods.a_pod((4,)) as pod:
        (wired,) = await pods.NETWORKS.prepare(VM, "", pod.launcher)
        links = {link["ifname"]: link for link in await namespaces.links(pod.launcher.network)}
        assert "table ip6" not in run("ip", "netns", "exec", pod.name, "nft", "list", "tables")
    assert (wired.addresses, wired.lease6) == ((POD,), None)
    assert network.CONTROL_TAP not in links
    for name in (network.BRIDGE, network.TAP):
        assert [each for each in links[name]["addr_info"] if each["family"] == "inet6"] == []


FLOODS = {
    "without an address": discover(),
    "to its server": mine(udp(network.GUEST, network.GATEWAY, EVIL, (68, 67))),
    "to the bridge's network": mine(udp(network.GUEST, network.BROADCAST, EVIL, (68, 67)), destination=frames.BROADCAST),
}


@pytest.mark.parametrize("request_", FLOODS.values(), ids=FLOODS.keys())
async def test_a_flood_of_dhcp_is_held_back_and_counted(own_world: World, request_: bytes) -> None:
    with own_world.pod.inside(listening(67)) as dhcp:
        for _ in range(2000):
            own_world.tap.send(request_)
        own_world.heard()
        arrived = 0
        with contextlib.suppress(BlockingIOError):
            while dhcp.recv(100):
                arrived += 1
    assert 10 < arrived < 200


@pytest.mark.parametrize("destination", [POD, "10.0.2.0", "127.0.0.1"])
async def test_dhcp_gets_past_the_count_by_no_other_address_of_the_pod(world: World, destination: str) -> None:
    with world.pod.inside(listening(67)) as dhcp:
        for _ in range(3):
            world.tap.send(mine(udp(network.GUEST, destination, EVIL, (68, 67))))
        world.heard()
        with pytest.raises(BlockingIOError):
            dhcp.recv(100)


async def test_no_frame_leaves_before_the_filter_or_during_its_renewal(pod: Pod) -> None:
    """Forged frames from before the tap is up, during repeated network setups."""
    run("ip", "-n", pod.name, "tuntap", "add", "dev", "tap0", "mode", "tap", "user", "107", "group", "107")
    tap = Tap(pod)
    uplink = pod.outside(lambda: Ear("peer"))
    over, taken = threading.Event(), [0]

    def flood() -> None:
        while not over.is_set():
            taken[0] += tap.send(SPOOFS["another IPv4 address"])

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        for _ in range(5):
            await pods.NETWORKS.prepare(VM, "", pod.launcher)
    finally:
        over.set()
        thread.join()
    assert taken[0] > 100
    tap.send(LEGAL)
    heard = uplink.until(LAST)
    uplink.close()
    tap.close()
    assert [frame for frame in heard if EVIL in frame] == []


def broken_nft(directory: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    program = directory / "nft"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -f ] || exec /usr/sbin/nft "$@"\ncat >/dev/null\necho "Error: Could not process rule: {said}" >&2\nexit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/sbin:/usr/bin:/sbin:/bin")


async def state_of(pod: Pod, name: str) -> tuple[bool, str]:
    link = next(each for each in await namespaces.links(pod.launcher.network) if each["ifname"] == name)
    return "UP" in link["flags"], link.get("master", "")


async def test_without_a_filter_there_is_no_network(pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_nft(tmp_path, monkeypatch, "Operation not supported")
    with pytest.raises(Unsupported, match="kernel needs CONFIG_NF_TABLES_NETDEV"):
        await setup.Networks().prepare(VM, "", pod.launcher)
    assert await state_of(pod, network.TAP) == (False, "")


async def test_a_running_guest_without_a_filter_loses_its_network(pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await pods.NETWORKS.prepare(VM, "", pod.launcher)
    run("ip", "netns", "exec", pod.name, "nft", "delete", "table", "netdev", "kubevirt")
    broken_nft(tmp_path, monkeypatch, "Cannot allocate memory")
    with pytest.raises(namespaces.CommandFailed, match="Cannot allocate memory"):
        await setup.Networks().prepare(VM, "", pod.launcher)
    assert await state_of(pod, network.TAP) == (False, network.BRIDGE)
    monkeypatch.undo()
    await pods.NETWORKS.prepare(VM, "", pod.launcher)
    assert await state_of(pod, network.TAP) == (True, network.BRIDGE)


async def test_a_filter_that_cannot_be_renewed_stays(own_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_nft(tmp_path, monkeypatch, "Cannot allocate memory")
    with pytest.raises(namespaces.CommandFailed):
        await setup.Networks().prepare(VM, "", own_world.pod.launcher)
    own_world.tap.send(SPOOFS["another IPv4 address"])
    assert EVIL not in own_world.heard()


UNTRACKED = {
    "an answer to no ping": frames.icmp(network.GUEST, CALLER, 0, EVIL),
    "an ICMP message of no known type": frames.icmp(network.GUEST, CALLER, 200, EVIL),
    "a datagram with a wrong checksum": frames.udp(network.GUEST, CALLER, EVIL, checksum_is=0x1234),
    "TCP with flags that exclude each other": frames.tcp(network.GUEST, CALLER, 0x03, EVIL),
    "a protocol without ports": frames.ipv4(network.GUEST, CALLER, 253, EVIL),
}


@pytest.mark.parametrize("packet", UNTRACKED.values(), ids=UNTRACKED.keys())
async def test_no_packet_leaves_with_the_guests_internal_address(world: World, packet: bytes) -> None:
    for _ in range(3):
        assert world.tap.send(mine(packet))
    assert world.tap.send(LEGAL)

    sources = {frame[26:30] for frame in world.uplink.until(LAST) if frame[12:14] == b"\x08\x00"}
    assert socket.inet_aton(POD) in sources
    assert socket.inet_aton(network.GUEST) not in sources
