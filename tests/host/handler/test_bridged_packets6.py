from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from apiserver.apis.virt.places import network
from handler.network import namespaces
from tests.host.handler import frames, pods
from tests.host.handler.frames import ICMPV6, IPV4, IPV6, UDP, arp, ethernet, icmpv6, ipv6, neighbour, tagged, udp, udp6
from tests.host.handler.pods import CALLER, CALLER6, POD, POD6, Ear, Pod, Tap, run
from tests.host.handler.test_bridged_packets import EVIL, LAST, OTHER, VM, World
from tests.host.handler.test_guest_packets6 import ALL_NODES, ALL_NODES_MAC, GROUPS_MAC, ROUTER

pytestmark = pytest.mark.host

ANOTHER = "fd99::66"
OTHER_LINK = "fe80::66"
OURS = network.BRIDGED_ROUTER6


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


def mine(world: World, payload: bytes, destination: str = frames.BROADCAST) -> bytes:
    return ethernet(world.mac, IPV6, payload, destination)


def is_about(kind: int, address: str) -> Callable[[bytes], bool]:
    target = socket.inet_pton(socket.AF_INET6, address)
    return lambda frame: frame[12:14] == b"\x86\xdd" and frame[20] == ICMPV6 and frame[54] == kind and frame[62:78] == target


async def test_guest_has_the_pods_addresses_and_meets_neighbours(pod: Pod) -> None:
    (before,) = (link for link in await namespaces.links(pod.launcher.network) if link["ifname"] == "eth0")
    (wired,) = await pods.NETWORKS.prepare(VM, "", pod.launcher)
    assert (wired.mac, wired.addresses) == (before["address"], (POD, POD6))
    caller_mac = run("ip", "netns", "exec", pod.caller, "cat", "/sys/class/net/peer/address").strip()
    assert wired.lease6 is not None
    assert (wired.lease6.address, wired.lease6.router_mac, wired.lease6.is_default) == (f"{POD6}/64", caller_mac, True)
    assert (await pods.NETWORKS.prepare(VM, "", pod.launcher)) == (wired,)
    links = {link["ifname"]: link for link in await namespaces.links(pod.launcher.network)}
    assert [each for name in ("eth0", "tap0", network.BRIDGE) for each in links[name]["addr_info"] if each["family"] == "inet6"] == []

    world = World(pod, wired.mac, Tap(pod), pod.outside(lambda: Ear("peer")))
    with pod.outside(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as caller:
        caller.bind((CALLER6, 4001))
        caller.settimeout(30)
        run("ip", "-n", pod.caller, "-6", "neigh", "flush", "dev", "peer")
        caller.sendto(b"hello", (POD6, 4000))
        asked = world.tap.receive(is_about(135, POD6))
        assert asked[6:12] == frames.mac(caller_mac)
        claim = icmpv6(POD6, CALLER6, 136, b"\x60\0\0\0" + socket.inet_pton(socket.AF_INET6, POD6) + b"\2\1" + frames.mac(wired.mac))
        world.tap.send(mine(world, claim, caller_mac))
        assert world.tap.receive(lambda frame: b"hello" in frame)[:6] == frames.mac(wired.mac)
        world.tap.send(mine(world, udp6(POD6, CALLER6, b"hello to you", 4001), caller_mac))
        assert caller.recvfrom(100)[:2] == (b"hello to you", (POD6, 4000, 0, 0))
    world.tap.send(mine(world, neighbour(135, POD6, "ff02::1:ff00:1", CALLER6, 1, wired.mac), "33:33:ff:00:00:01"))
    world.tap.receive(is_about(136, CALLER6))
    world.tap.close()
    world.uplink.close()


async def test_frames_that_are_not_of_the_guest_go_nowhere(world: World) -> None:
    def own(payload: bytes, to: str = frames.BROADCAST) -> bytes:
        return mine(world, payload, to)

    def claim(source: str, target: str, of: str, flags: bytes = b"\x60\0\0\0", **other: int) -> bytes:
        body = flags + socket.inet_pton(socket.AF_INET6, target) + b"\2\1" + frames.mac(of)
        return own(icmpv6(source, ALL_NODES, 136, body + other.pop("more", 0) * b"\0" + EVIL, **other), ALL_NODES_MAC)

    mac, link = world.mac, network.link_local(world.mac)
    spoofs = {
        "another address": own(udp6(ANOTHER, CALLER6, EVIL, 4001)),
        "the gateway's address": own(udp6(CALLER6, POD6, EVIL, 4001)),
        "a link-local address": own(udp6(link, CALLER6, EVIL, 4001)),
        "another's link-local address": own(udp6(OTHER_LINK, ALL_NODES, EVIL, 4001)),
        "no address": own(udp6("::", CALLER6, EVIL, 4001)),
        "another MAC address": ethernet(OTHER, IPV6, udp6(POD6, CALLER6, EVIL, 4001)),
        "a router's advertisement": own(icmpv6(link, ALL_NODES, 134, ROUTER + EVIL), ALL_NODES_MAC),
        "a redirect": own(icmpv6(link, CALLER6, 137, bytes(4) + frames.ends6(CALLER6, link) + EVIL)),
        "an answer of DHCPv6": own(udp6(link, ALL_NODES, EVIL, 546, 547), ALL_NODES_MAC),
        "an answer of DHCPv6 from its own address": own(udp6(POD6, OTHER_LINK, EVIL, 546, 547)),
        "an answer of DHCPv6 from another port": own(udp6(POD6, OTHER_LINK, EVIL, 546, 4000)),
        "the beginning of an answer of DHCPv6": own(
            ipv6(POD6, OTHER_LINK, 44, struct.pack("!BBHI", UDP, 0, 1, 7) + udp6(POD6, OTHER_LINK, EVIL, 546, 547)[40:])
        ),
        "the gateway is mine": claim(POD6, CALLER6, mac),
        "another's address is mine": claim(link, ANOTHER, mac),
        "mine is another's": claim(POD6, POD6, OTHER),
        "from another's": claim(CALLER6, POD6, mac),
        "mine, and more": claim(POD6, POD6, mac),
        "mine, from far away": claim(POD6, POD6, mac, hop_limit=254),
        "mine, with a code": claim(POD6, POD6, mac, code=1),
        "who has it, as another": own(neighbour(135, CALLER6, "ff02::1:ff00:66", ANOTHER, 1, mac) + EVIL),
        "who has it, with another's MAC address": own(neighbour(135, POD6, "ff02::1:ff00:66", ANOTHER, 1, OTHER)[:72] + EVIL),
        "is another's free": own(icmpv6("::", "ff02::1:ff00:66", 135, bytes(4) + socket.inet_pton(socket.AF_INET6, ANOTHER)) + EVIL),
        "is mine free, and a MAC address": own(neighbour(135, "::", "ff02::1:ff00:2", POD6, 1, mac) + EVIL),
        "a claim behind options": own(
            ipv6(POD6, ALL_NODES, 60, bytes((ICMPV6, 0)) + b"\1\4\0\0\0\0" + claim(POD6, CALLER6, mac)[54:], hop_limit=255), ALL_NODES_MAC
        ),
        "a claim in a fragment": own(ipv6(POD6, ALL_NODES, 44, struct.pack("!BBHI", ICMPV6, 0, 1, 7) + claim(POD6, CALLER6, mac)[54:])),
        "a listener's report as another": own(
            ipv6(OTHER_LINK, "ff02::16", 0, bytes((ICMPV6, 0)) + b"\x05\x02\0\0\1\0" + icmpv6(OTHER_LINK, "ff02::16", 143, EVIL)[40:])
        ),
        "a question to listeners": own(
            ipv6(link, ALL_NODES, 0, bytes((ICMPV6, 0)) + b"\x05\x02\0\0\1\0" + icmpv6(link, ALL_NODES, 130, EVIL)[40:])
        ),
        "options for each hop": own(ipv6(POD6, CALLER6, 0, bytes((UDP, 0)) + b"\1\4\0\0\0\0" + udp6(POD6, CALLER6, EVIL, 4001)[40:])),
        "loopback": own(udp6(POD6, "::1", EVIL, 4001)),
        "a VLAN": tagged(own(udp6(POD6, CALLER6, EVIL, 4001)), 7),
    }
    for frame in spoofs.values():
        assert world.tap.send(frame)
    heard = world.heard()
    assert EVIL not in heard
    told = run("ip", "netns", "exec", world.pod.name, "nft", "list", "counters", "table", "netdev", "kubevirt")
    at_the_tap = told.partition("counter to_pod")[0]
    assert sum(int(line.split()[1]) for line in at_the_tap.splitlines() if "packets" in line) == len(spoofs), told


async def test_guest_packets_go_out(world: World) -> None:
    mac, link = world.mac, network.link_local(world.mac)
    nonce = b"\x0e\1" + bytes(6)
    group = "ff02::1:ff00:2"
    for payload in (
        icmpv6("::", group, 135, bytes(4) + socket.inet_pton(socket.AF_INET6, POD6) + nonce),  # is mine free? (RFC 7527)
        icmpv6("::", group, 135, bytes(4) + socket.inet_pton(socket.AF_INET6, link)),
        neighbour(135, link, "ff02::1:ff00:1", CALLER6, 1, mac),
        neighbour(135, POD6, "ff02::1:ff00:1", CALLER6, 1, mac),
        icmpv6(POD6, CALLER6, 136, b"\x60\0\0\0" + socket.inet_pton(socket.AF_INET6, link)),
        ipv6(link, "ff02::16", 0, bytes((ICMPV6, 0)) + b"\x05\x02\0\0\1\0" + icmpv6(link, "ff02::16", 143, bytes(4))[40:], hop_limit=1),
        icmpv6(POD6, CALLER6, 128, b"\0\7\0\1ping", hop_limit=64),
    ):
        world.tap.send(mine(world, payload))
    world.tap.send(mine(world, udp6(POD6, CALLER6, LAST, 4001)))
    sent = [frame for frame in world.uplink.until(LAST) if frame[6:12] == frames.mac(mac)]
    assert len(sent) == 8


async def test_router_and_dhcp_queries_stay_in_the_pod(world: World) -> None:
    control = Tap(world.pod, network.CONTROL_TAP)
    link = network.link_local(world.mac)
    for payload in (
        icmpv6(link, "ff02::2", 133, bytes(4) + EVIL),
        icmpv6("::", "ff02::2", 133, bytes(4) + EVIL),
        neighbour(135, POD6, "ff02::1:fffe:4b01", OURS, 1, world.mac) + EVIL,
    ):
        world.tap.send(mine(world, payload))
        assert control.receive(lambda frame: EVIL in frame)[54:] == mine(world, payload)[54:]
    for source in (link, OTHER_LINK):  # towards virt-launcher a guest may use another link-local address
        world.tap.send(mine(world, udp6(source, network.DHCP6_SERVERS, EVIL, 547, 546), GROUPS_MAC))
        control.receive(lambda frame: EVIL in frame)
    control.send(ethernet(OTHER, IPV6, icmpv6(OURS, ALL_NODES, 134, ROUTER + b"router" + EVIL), ALL_NODES_MAC))
    world.tap.receive(lambda frame: b"router" in frame)
    assert EVIL not in world.heard()
    control.close()


async def test_routers_and_servers_out_there_are_not_heard(world: World) -> None:
    with world.pod.outside(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) as sender:
        sender.bind(("peer", 0))
        hidden = ipv6(
            "fe80::1", ALL_NODES, 60, bytes((ICMPV6, 0)) + b"\1\4\0\0\0\0" + icmpv6("fe80::1", ALL_NODES, 134, ROUTER + EVIL)[40:]
        )
        behind = hidden[40:]
        for payload in (
            icmpv6("fe80::1", ALL_NODES, 134, ROUTER + EVIL),
            hidden,
            # two fragments, the first one with options only (RFC 6980)
            ipv6("fe80::1", ALL_NODES, 44, struct.pack("!BBHI", 60, 0, 1, 7) + behind[:8], hop_limit=255),
            ipv6("fe80::1", ALL_NODES, 44, struct.pack("!BBHI", 60, 0, 8, 7) + behind[8:], hop_limit=255),
            udp6("fe80::1", network.link_local(world.mac), EVIL, 546, 547),
            udp6("fe80::1", network.link_local(world.mac), EVIL, 546, 4000),
        ):
            sender.send(ethernet(OTHER, IPV6, payload, ALL_NODES_MAC))
        group = "ff02::1:ff00:2"
        own_question = icmpv6("::", group, 135, bytes(4) + socket.inet_pton(socket.AF_INET6, POD6)) + EVIL
        sender.send(mine(world, own_question, "33:33:ff:00:00:02"))  # as a bridge in hairpin mode reflects it
        of_datagram = struct.pack("!BBHI", UDP, 0, 1, 8) + udp6(CALLER6, POD6, LAST, 4001)[40:]
        sender.send(ethernet(OTHER, IPV6, ipv6(CALLER6, POD6, 44, of_datagram), ALL_NODES_MAC))
    first = world.tap.receive(lambda frame: EVIL in frame or LAST in frame)
    assert LAST in first


async def test_a_guest_in_the_place_of_a_pod_without_ipv4_has_none() -> None:
    with pods.a_pod((6,)) as pod:
        (wired,) = await pods.NETWORKS.prepare(VM, "", pod.launcher)
        assert (wired.addresses, wired.lease, wired.ipv4) == ((POD6,), None, False)
        world = World(pod, wired.mac, Tap(pod), pod.outside(lambda: Ear("peer")))
        for source in (POD, network.BRIDGED_SERVER, "0.0.0.0"):
            world.tap.send(world.mine(udp(source, CALLER, EVIL), IPV4))
            world.tap.send(world.mine(arp(1, wired.mac, source, CALLER) + EVIL, frames.ARP))
        world.tap.send(mine(world, udp6(POD6, CALLER6, LAST, 4001)))
        assert EVIL not in b"".join(world.uplink.until(LAST))
        world.tap.close()
        world.uplink.close()


async def test_silent_gateway_is_reported_and_the_pod_stays_as_it_is(pod: Pod) -> None:
    run("ip", "-n", pod.caller, "link", "set", "peer", "arp", "off")
    run("ip", "-n", pod.caller, "-6", "address", "flush", "dev", "peer")
    with pytest.raises(namespaces.CommandFailed, match=f"the pod's gateway {CALLER6} does not answer"):
        await pods.NETWORKS.prepare(VM, "", pod.launcher)
    (uplink,) = (link for link in await namespaces.links(pod.launcher.network) if link["ifname"] == "eth0")
    assert POD6 in [each["local"] for each in uplink["addr_info"]]


async def test_cni_bridge_gateway_is_the_guests_gateway(tmp_path: Path) -> None:
    """The bridge in hairpin mode reflects the guest's multicasts to the pod."""
    with pods.a_pod_of_the_bridge_plugin(tmp_path) as pod:
        (wired,) = await pods.NETWORKS.prepare(VM, "", pod.launcher)
        gateway = run("ip", "netns", "exec", pod.caller, "cat", "/sys/class/net/cni0/address").strip()
        assert wired.addresses == (POD, POD6)
        assert wired.lease6 is not None
        assert (wired.lease6.address, wired.lease6.router, wired.lease6.router_mac) == (f"{POD6}/64", OURS, gateway)
        tap, mac = Tap(pod), wired.mac
        own_question = icmpv6("::", "ff02::1:ff00:2", 135, bytes(4) + socket.inet_pton(socket.AF_INET6, POD6))
        tap.send(ethernet(mac, IPV6, own_question, "33:33:ff:00:00:02"))
        asked = b""
        for number in range(50):
            tap.send(ethernet(mac, IPV6, icmpv6(POD6, CALLER6, 128, struct.pack("!HH", 7, number), hop_limit=64), gateway))
            try:
                asked = tap.receive(lambda frame: frame[20] == ICMPV6 and frame[54] in (129, 135), 0.5)
            except TimeoutError:
                continue
            assert asked[6:12] != frames.mac(mac)
            if asked[54] == 129:
                break
            claim = icmpv6(POD6, CALLER6, 136, b"\x60\0\0\0" + socket.inet_pton(socket.AF_INET6, POD6) + b"\2\1" + frames.mac(mac))
            tap.send(ethernet(mac, IPV6, claim, gateway))
        assert asked[22:54] == frames.ends6(CALLER6, POD6)
        told = run("ip", "netns", "exec", pod.name, "nft", "list", "counter", "netdev", "kubevirt", "sent_back")
        assert "packets 0 " not in told
        tap.close()
