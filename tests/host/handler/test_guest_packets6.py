from __future__ import annotations

import errno
import select
import socket
import struct
from collections.abc import AsyncIterator, Iterator

import pytest

from apiserver.apis.virt.places import network
from tests.host.handler import frames, pods
from tests.host.handler.frames import ICMPV6, IPV4, IPV6, TCP, UDP, ethernet, icmpv6, ipv6, neighbour, summed6, tagged, tcp6, udp, udp6
from tests.host.handler.pods import CALLER, CALLER6, POD, POD6, Pod, Tap, run
from tests.host.handler.test_guest_packets import EVIL, GATEWAY_MAC, LAST, MINE, OTHER, VM, World, a_world, listening

pytestmark = pytest.mark.host

GUEST6, LINK, ALL_NODES, ALL_NODES_MAC = network.GUEST6, "fe80::ff:fe00:99", "ff02::1", "33:33:00:00:00:01"
GROUPS_MAC = "33:33:00:01:00:02"


def mine(payload: bytes, destination: str = GATEWAY_MAC) -> bytes:
    return ethernet(MINE, IPV6, payload, destination)


def behind(protocol: int, header: bytes, inner: bytes, source: str = GUEST6, destination: str = CALLER6) -> bytes:
    return mine(ipv6(source, destination, protocol, header + inner[40:], hop_limit=255))


def fragment(following: int, offset: int, payload: bytes) -> bytes:
    return mine(ipv6(GUEST6, CALLER6, 44, struct.pack("!BBHI", following, 0, offset | 1, 7) + payload))


LEGAL = mine(udp6(GUEST6, CALLER6, LAST, 4001))
CLAIM = neighbour(136, GUEST6, CALLER6, CALLER6, 2, MINE)
NOTHING_AFTER = bytes(6)
ROUTER = struct.pack("!BBHII", 64, 0, 9000, 0, 0)

SPOOFS = {
    "another address": mine(udp6("fd10:0:2::3", CALLER6, EVIL, 4001)),
    "the pod's address": mine(udp6(POD6, CALLER6, EVIL, 4001)),
    "the gateway's address": mine(udp6(network.GATEWAY6, CALLER6, EVIL, 4001)),
    "a caller's address": mine(udp6(CALLER6, CALLER6, EVIL, 4001)),
    "a link-local address": mine(udp6(LINK, CALLER6, EVIL, 4001)),
    "the router's address": mine(udp6(network.ROUTER6, ALL_NODES, EVIL, 4001), ALL_NODES_MAC),
    "no address": mine(udp6("::", CALLER6, EVIL, 4001)),
    "loopback's address": mine(udp6("::1", CALLER6, EVIL, 4001)),
    "to loopback": mine(udp6(GUEST6, "::1", EVIL, 4001)),
    "to an IPv4 address in IPv6": mine(udp6(GUEST6, "::ffff:127.0.0.1", EVIL, 4001)),
    "another MAC address": ethernet(OTHER, IPV6, udp6(GUEST6, CALLER6, EVIL, 4001), GATEWAY_MAC),
    "a VLAN": tagged(LEGAL.replace(LAST, EVIL), 7),
    "a router's advertisement": mine(icmpv6(LINK, ALL_NODES, 134, ROUTER + EVIL), ALL_NODES_MAC),
    "a router's advertisement from its own address": mine(icmpv6(GUEST6, ALL_NODES, 134, ROUTER + EVIL), ALL_NODES_MAC),
    "the gateway's address is mine": mine(neighbour(136, network.GATEWAY6, ALL_NODES, network.GATEWAY6, 2, MINE) + EVIL, ALL_NODES_MAC),
    "the caller's address is mine": mine(CLAIM + EVIL),
    "my address is another's": mine(neighbour(136, GUEST6, ALL_NODES, GUEST6, 2, OTHER) + EVIL, ALL_NODES_MAC),
    "a redirect": mine(icmpv6(LINK, GUEST6, 137, bytes(4) + frames.ends6(CALLER6, LINK) + EVIL)),
    "a question about nodes": mine(icmpv6(GUEST6, CALLER6, 139, EVIL)),
    "a report of listeners": behind(0, bytes((ICMPV6, 0)) + b"\x05\x02\0\0\1\0", icmpv6(LINK, "ff02::16", 143, EVIL), LINK, "ff02::16"),
    "a listener's report without an option": mine(icmpv6(GUEST6, CALLER6, 143, EVIL)),
    "an answer of DHCPv6": mine(udp6(LINK, ALL_NODES, EVIL, 546, 547), ALL_NODES_MAC),
    "options for each hop": behind(0, bytes((UDP, 0)) + b"\1\4\0\0\0\0", udp6(GUEST6, CALLER6, EVIL, 4001)),
    "a source route": behind(43, bytes((UDP, 2, 0, 1)) + bytes(4) + frames.ends6(POD6, POD6)[:16], udp6(GUEST6, CALLER6, EVIL, 4001)),
    "options for the destination": behind(60, bytes((ICMPV6, 0)) + b"\1\4\0\0\0\0", CLAIM + EVIL),
    "options for the destination, twice": behind(60, bytes((60, 0)) + b"\1\4\0\0\0\0" + bytes((ICMPV6, 0)) + b"\1\4\0\0\0\0", CLAIM + EVIL),
    "an authentication header": behind(51, bytes((ICMPV6, 4)) + bytes(22), CLAIM + EVIL),
    "a fragment of a claim": fragment(ICMPV6, 0, CLAIM[40:] + EVIL),
    "a later fragment of a claim": fragment(ICMPV6, 8, EVIL),
    "a fragment with options": fragment(60, 0, bytes((ICMPV6, 0)) + b"\1\4\0\0\0\0" + CLAIM[40:] + EVIL),
    "a fragment of a fragment": fragment(44, 0, struct.pack("!BBHI", ICMPV6, 0, 0, 7) + CLAIM[40:] + EVIL),
    "a fragment of another address": mine(ipv6(POD6, CALLER6, 44, struct.pack("!BBHI", UDP, 0, 1, 7) + EVIL)),
    "mobility": behind(135, bytes((59, 0)) + NOTHING_AFTER, udp6(GUEST6, CALLER6, EVIL, 4001)),
}


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
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


def heard(world: World) -> bytes:
    assert world.tap.send(LEGAL)
    return b"".join(world.bridge.until(LAST) + world.uplink.until(LAST))


@pytest.mark.parametrize("frame", SPOOFS.values(), ids=SPOOFS.keys())
async def test_a_frame_that_is_not_of_the_guest_goes_nowhere(world: World, frame: bytes) -> None:
    control = Tap(world.pod, network.CONTROL_TAP)
    for _ in range(3):
        assert world.tap.send(frame)

    assert EVIL not in heard(world)
    counters = run("ip", "netns", "exec", world.pod.name, "nft", "list", "counters", "table", "netdev", "kubevirt")
    assert counters.count("packets 3 ") == 1, counters
    with pytest.raises(TimeoutError):
        control.receive(lambda each: EVIL in each, 0.1)
    control.close()


ASKED = {
    "for routers": mine(icmpv6(LINK, "ff02::2", 133, bytes(4) + EVIL), "33:33:00:00:00:02"),
    "for routers from nowhere": mine(icmpv6("::", "ff02::2", 133, bytes(4) + EVIL), "33:33:00:00:00:02"),
    "for the gateway": mine(neighbour(135, LINK, "ff02::1:ff00:1", network.ROUTER6, 1, MINE) + EVIL, "33:33:ff:00:00:01"),
    "for another, as another": mine(neighbour(135, CALLER6, "ff02::1:ff00:1", POD6, 1, OTHER) + EVIL, "33:33:ff:00:00:01"),
    "for the pod, at its own address": mine(neighbour(135, LINK, POD6, POD6, 1, MINE) + EVIL),
    "for an address": mine(udp6(LINK, network.DHCP6_SERVERS, EVIL, 547, 546), GROUPS_MAC),
}


@pytest.mark.parametrize("frame", ASKED.values(), ids=ASKED.keys())
async def test_router_queries_reach_virt_launcher_only(world: World, frame: bytes) -> None:
    control = Tap(world.pod, network.CONTROL_TAP)
    with world.pod.inside(listening(547)) as service:
        world.tap.send(frame)
        assert control.receive(lambda each: EVIL in each) == frame
        assert EVIL not in heard(world)
        with pytest.raises(BlockingIOError):
            service.recv(100)
    control.close()
    known = run("ip", "-n", world.pod.name, "-6", "neigh", "show", "dev", network.BRIDGE)
    assert [line.split()[0] for line in known.splitlines()] == [GUEST6]


async def test_dhcp_client_port_receives_nothing_from_outside(world: World) -> None:
    with world.pod.outside(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as caller:
        caller.sendto(EVIL, (POD6, network.DHCP6_CLIENT_PORT))
        caller.sendto(LAST, (POD6, 4001))
    assert LAST in world.tap.receive(lambda frame: EVIL in frame or LAST in frame)


async def test_a_flood_of_questions_is_held_back_and_counted(own_world: World) -> None:
    control = Tap(own_world.pod, network.CONTROL_TAP)
    for frame in ASKED.values():
        for _ in range(500):
            own_world.tap.send(frame)
    heard(own_world)
    arrived = 0
    try:
        while control.receive(lambda each: EVIL in each, 0.1):
            arrived += 1
    except TimeoutError:
        control.close()
    assert 10 < arrived < 300


async def test_virt_launchers_frames_reach_the_guest_only(world: World) -> None:
    control = Tap(world.pod, network.CONTROL_TAP)
    legal = ethernet(GATEWAY_MAC, IPV6, icmpv6(network.ROUTER6, ALL_NODES, 134, ROUTER + b"router"), ALL_NODES_MAC)
    forged = ethernet(GATEWAY_MAC, IPV6, udp6(POD6, CALLER6, b"forged" + EVIL, 4001), frames.BROADCAST)
    for frame in (legal, forged):
        control.send(frame)
        assert world.tap.receive(lambda each, sent=frame: each == sent)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    for frame in (
        ethernet(GATEWAY_MAC, IPV4, udp(POD, CALLER, EVIL), frames.BROADCAST),
        tagged(forged, 7),
        frames.bpdu(GATEWAY_MAC) + EVIL,
    ):
        control.send(frame)
    assert EVIL not in heard(world)
    with pytest.raises(TimeoutError):
        world.tap.receive(lambda each: EVIL in each, 0.2)
    control.close()


async def test_a_guest_reaches_callers_and_is_reached(own_world: World) -> None:
    caller = own_world.pod.outside(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
    with caller:
        caller.bind((CALLER6, 4001))
        caller.settimeout(30)
        caller.sendto(b"hello", (POD6, 4000))
        asked = own_world.tap.receive(lambda frame: b"hello" in frame)
        assert (asked[:6], asked[22:54]) == (frames.mac(MINE), frames.ends6(CALLER6, GUEST6))
        own_world.tap.send(mine(udp6(GUEST6, CALLER6, b"hello to you", 4001)))
        assert caller.recvfrom(100)[:2] == (b"hello to you", (POD6, 4000, 0, 0))
    own_world.tap.send(mine(icmpv6(GUEST6, CALLER6, 128, b"\0\7\0\1ping", hop_limit=64)))
    own_world.tap.receive(lambda frame: frame[12:14] == b"\x86\xdd" and frame[20] == ICMPV6 and frame[54] == 129)
    own_world.tap.send(mine(icmpv6(GUEST6, network.GATEWAY6, 128, b"\0\7\0\2ping", hop_limit=64)))
    answered = own_world.tap.receive(lambda frame: frame[12:14] == b"\x86\xdd" and frame[20] == ICMPV6 and frame[54] == 129)
    assert answered[22:54] == frames.ends6(network.GATEWAY6, GUEST6)


async def test_a_packet_in_fragments_arrives_whole(world: World) -> None:
    datagram = struct.pack("!HHHH", 4000, 4001, 8 + 24, 0) + b"in-two-parts" * 2
    whole = summed6(GUEST6, CALLER6, UDP, datagram, 6)
    with world.pod.outside(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as caller:
        caller.bind((CALLER6, 4001))
        caller.settimeout(30)
        world.tap.send(fragment(UDP, 0, whole[:16]))
        world.tap.send(mine(ipv6(GUEST6, CALLER6, 44, struct.pack("!BBHI", UDP, 0, 16, 7) + whole[16:])))
        assert caller.recvfrom(100)[0] == b"in-two-parts" * 2


async def test_a_connection_to_the_pods_own_loopback_is_the_guests(own_world: World) -> None:
    """Without IPv4, ``kubectl port-forward`` connects there."""
    with own_world.pod.inside(lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM)) as client:
        client.setblocking(False)
        assert client.connect_ex(("::1", 22)) == errno.EINPROGRESS
        asked = own_world.tap.receive(lambda frame: frame[12:14] == b"\x86\xdd" and frame[20] == TCP)
        assert asked[22:54] == frames.ends6(network.GATEWAY6, GUEST6)
        source, destination, number = struct.unpack("!HHI", asked[54:62])
        assert destination == 22
        own_world.tap.send(mine(tcp6(GUEST6, network.GATEWAY6, 0x12, ports=(22, source), acknowledged=number + 1)))  # SYN, ACK
        assert select.select([], [client], [], 5)[1]
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert client.getpeername()[:2] == ("::1", 22)


@pytest.mark.parametrize("destination", [network.GATEWAY6, POD6, "::1", ALL_NODES, network.ROUTER6])
async def test_nothing_in_the_pod_hears_the_guest(world: World, destination: str) -> None:
    to = ALL_NODES_MAC if destination == ALL_NODES else GATEWAY_MAC
    with world.pod.inside(listening(4001)) as service:
        for source in (GUEST6, LINK, CALLER6):
            world.tap.send(mine(udp6(source, destination, EVIL, 4001), to))
        heard(world)
        with pytest.raises(BlockingIOError):
            service.recv(100)


UNTRACKED = {
    "an answer to no ping": icmpv6(GUEST6, CALLER6, 129, EVIL, hop_limit=64),
    "a datagram with a wrong checksum": udp6(GUEST6, CALLER6, EVIL, 4001)[:46] + b"\x12\x34" + EVIL,
    "TCP with flags that exclude each other": tcp6(GUEST6, CALLER6, 0x03, ports=(4000, 4001)),
    "a protocol without ports": ipv6(GUEST6, CALLER6, 250, EVIL),
    "an error about nothing": icmpv6(GUEST6, CALLER6, 1, bytes(4) + udp6(CALLER6, GUEST6, EVIL, 4001), hop_limit=64),
}


@pytest.mark.parametrize("packet", UNTRACKED.values(), ids=UNTRACKED.keys())
async def test_no_packet_leaves_with_the_guests_internal_address(world: World, packet: bytes) -> None:
    for _ in range(3):
        assert world.tap.send(mine(packet))
    assert world.tap.send(LEGAL)

    sources = {frame[22:38] for frame in world.uplink.until(LAST) if frame[12:14] == b"\x86\xdd"}
    assert socket.inet_pton(socket.AF_INET6, POD6) in sources
    assert socket.inet_pton(socket.AF_INET6, GUEST6) not in sources


async def test_with_a_list_of_ports_nothing_else_is_the_guests(pod: Pod) -> None:
    interface = {"name": "default", "type": "masquerade", "ports": [{"port": 4000, "protocol": "UDP"}]}
    await pods.NETWORKS.prepare({**VM, "spec": {"domain": {"devices": {"interfaces": [interface]}}}}, "", pod.launcher)
    world = World(pod)
    with pod.outside(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as caller:
        for port in (4001, 4000):
            caller.sendto(b"to-port-%d" % port, (POD6, port))
        first = world.tap.receive(lambda frame: b"to-port" in frame)
        assert b"to-port-4000" in first
    outside = pod.outside(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
    with outside:
        outside.bind(("peer", 0))
        to = next(line.split()[4] for line in run("ip", "-n", pod.caller, "neigh").splitlines() if line.startswith(POD6))
        outside.send(ethernet("02:00:00:00:00:66", IPV6, udp6(CALLER6, GUEST6, EVIL, 4000), to))
        with pytest.raises(TimeoutError):
            world.tap.receive(lambda frame: EVIL in frame, 0.5)
    world.close()


async def test_a_pod_with_ipv6_alone_has_a_guest_that_is_reached() -> None:
    with pods.a_pod((6,)) as pod:
        (wired,) = await pods.NETWORKS.prepare(VM, "", pod.launcher)
        assert (wired.addresses, wired.ipv4) == ((POD6,), False)
        world = World(pod)
        with pod.outside(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as caller:
            caller.sendto(b"hello", (POD6, 4000))
            world.tap.receive(lambda frame: b"hello" in frame)
        world.close()
