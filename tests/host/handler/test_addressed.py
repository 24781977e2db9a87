from __future__ import annotations

import dataclasses
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from apiserver.apis.virt.places import network
from handler.network import namespaces, setup
from launcher.protocol import leases, messages
from tests.host.handler import frames, pods
from tests.host.handler.frames import ARP, IPV4, arp, ethernet, tagged, udp
from tests.host.handler.pods import Ear, Pod, Tap, run
from tests.host.handler.test_attached import BRIDGE, LINK, MAC, NEIGHBOUR, OTHER, TAP, VM
from tests.host.handler.test_guest_packets import listening
from tests.host.handler.test_guest_traffic import (  # noqa: F401 - fixtures
    READY_SECONDS,
    Start,
    guest_with_network,
    lease,
    require_masquerade_by_ports,
    start,
)
from tests.host.launcher.sandbox import a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(400)]

GIVEN = "192.168.7.9"
EVIL, LAST = b"EVIL-FRAME", b"LAST-FRAME"
TABLE = f"kubevirt_{TAP}"


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        run("ip", "-n", made.name, "link", "set", "eth0", "mtu", "1420")
        run("ip", "-n", made.caller, "link", "add", "lan", "mtu", "1400", "type", "veth", "peer", "name", LINK, "netns", made.name)
        run("ip", "-n", made.name, "link", "set", LINK, "mtu", "1400", "address", MAC)
        run("ip", "-n", made.name, "address", "add", f"{GIVEN}/24", "dev", LINK)
        run("ip", "-n", made.caller, "address", "add", f"{NEIGHBOUR}/24", "dev", "lan")
        for name, link in ((made.name, LINK), (made.caller, "lan")):
            run("ip", "-n", name, "link", "set", link, "up")
        run("ip", "-n", made.name, "route", "add", "172.16.0.0/12", "via", NEIGHBOUR)
        yield made


class World:
    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.tap = Tap(pod, TAP)
        self.lan = pod.outside(lambda: Ear("lan"))

    def close(self) -> None:
        self.tap.close()
        self.lan.close()

    def heard(self) -> bytes:
        assert self.tap.send(mine(udp(GIVEN, NEIGHBOUR, LAST)))
        return b"".join(self.lan.until(LAST))


@pytest.fixture
async def world(pod: Pod) -> AsyncIterator[World]:
    await pods.NETWORKS.prepare(VM, "", pod.launcher)
    made = World(pod)
    yield made
    made.close()


def mine(payload: bytes, kind: int = IPV4, destination: str = frames.BROADCAST) -> bytes:
    return ethernet(MAC, kind, payload, destination)


DISCOVER = udp("0.0.0.0", "255.255.255.255", EVIL, (68, 67))


async def test_guest_requests_are_heard_in_the_pod_only(world: World) -> None:
    with world.pod.inside(listening(67)) as dhcp:
        world.tap.send(mine(DISCOVER))
        world.tap.send(mine(udp(GIVEN, network.BRIDGED_SERVER, EVIL, (68, 67)), destination=OTHER))
        assert EVIL not in world.heard()
        dhcp.setblocking(True)
        dhcp.settimeout(30)
        assert (dhcp.recv(100), dhcp.recv(100)) == (EVIL, EVIL)
        for _ in range(200):
            world.tap.send(mine(DISCOVER))
        assert EVIL not in world.heard()
        dhcp.setblocking(False)
        arrived = 0
        try:
            while dhcp.recv(100):
                arrived += 1
        except BlockingIOError:
            pass
        assert arrived < 150


async def test_other_senders_are_not_heard_in_the_pod(world: World) -> None:
    bridge = network.derived_mac(MAC, "bridge")
    with world.pod.inside(listening(67)) as dhcp, world.pod.inside(listening(4001)) as service:
        bridge_hears = world.pod.inside(lambda: Ear(BRIDGE))
        sender = world.pod.outside(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        sender.bind(("lan", 0))
        sender.send(ethernet(OTHER, IPV4, DISCOVER))
        sender.send(ethernet(OTHER, IPV4, udp(NEIGHBOUR, network.BRIDGED_SERVER, EVIL, (68, 67)), bridge))
        sender.send(ethernet(OTHER, IPV4, udp(NEIGHBOUR, network.BRIDGED_SERVER, EVIL), bridge))
        sender.close()
        world.tap.send(mine(udp(GIVEN, network.BRIDGED_SERVER, EVIL), destination=bridge))
        for _ in range(4):
            bridge_hears.until(EVIL)
        bridge_hears.close()
        for each in (dhcp, service):
            with pytest.raises(BlockingIOError):
                each.recv(100)
    world.tap.send(tagged(mine(udp("0.0.0.0", "255.255.255.255", b"in a VLAN", (68, 67))), 7))
    assert b"in a VLAN" not in world.heard()


async def test_dhcp_answers_of_the_network_do_not_reach_the_guest(world: World) -> None:
    for ports in ((67, 68), (4000, 68)):
        for destination in (GIVEN, "255.255.255.255"):
            world.lan.send(ethernet(OTHER, IPV4, udp(NEIGHBOUR, destination, EVIL, ports)))
    world.lan.send(ethernet(OTHER, IPV4, udp(NEIGHBOUR, GIVEN, LAST)))
    assert LAST in world.tap.receive(lambda frame: EVIL in frame or LAST in frame)


async def test_of_ipv6_the_guest_has_what_the_network_gives(world: World) -> None:
    """Routers on the network assign addresses, the pod none."""
    advertised = frames.icmpv6("fe80::1", "ff02::1", 134, b"advertised")
    world.lan.send(ethernet(OTHER, frames.IPV6, advertised, "33:33:00:00:00:01"))
    world.tap.receive(lambda frame: b"advertised" in frame)
    world.tap.send(mine(frames.udp6("fd77::9", "fd77::1", b"by IPv6", 4001), frames.IPV6))
    assert b"by IPv6" in world.heard()


async def test_pods_broadcasts_reach_the_guest_only(world: World) -> None:
    world.tap.send(mine(arp(1, MAC, GIVEN, NEIGHBOUR), ARP))
    with world.pod.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, BRIDGE.encode())
        server.bind(("", 67))
        for destination in ("255.255.255.255", GIVEN, "192.168.7.77"):
            server.sendto(EVIL + destination.encode(), (destination, 68))
    everybody = world.tap.receive(lambda frame: EVIL + b"255.255.255.255" in frame)
    assert everybody[:6] == frames.mac(frames.BROADCAST)
    alone = world.tap.receive(lambda frame: EVIL + GIVEN.encode() in frame)
    assert alone[:6] == frames.mac(MAC)
    heard = world.heard()
    assert EVIL not in heard
    assert socket.inet_aton("192.168.7.77") not in heard
    counters = run("ip", "netns", "exec", world.pod.name, "nft", "list", "counters", "table", "bridge", TABLE)
    assert "packets 0 " not in counters


async def test_link_settings_are_restored_after_a_restart(pod: Pod) -> None:
    first = await pods.NETWORKS.prepare(VM, "", pod.launcher)
    lan = next(each for each in first if each.name == "lan")
    assert lan.addresses == (GIVEN,)
    assert lan.lease == leases.Lease(f"{GIVEN}/24", network.BRIDGED_SERVER, (leases.Route("172.16.0.0/12", NEIGHBOUR),))
    links = {each["ifname"]: each for each in await namespaces.links(pod.launcher.network)}
    assert links[LINK]["addr_info"] == []
    assert await setup.Networks().prepare(VM, "", pod.launcher) == first


async def test_guest_has_its_pods_settings_and_is_reached_by_ports(pod: Pod, start: Start) -> None:  # noqa: F811 - a fixture
    resolv_conf = "search default.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\nnameserver 10.96.0.11\noptions ndots:5\n"
    ports = [{"port": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    default, lan_card = VM["spec"]["domain"]["devices"]["interfaces"]
    asked = [{**default, "ports": ports, "state": "up"}, lan_card]
    vm = {**VM, "spec": {"domain": {"devices": {"interfaces": asked}}}}
    wired = await pods.NETWORKS.prepare(vm, "", pod.launcher)
    run("ip", "-n", pod.name, "tuntap", "add", "dev", "tap1", "mode", "tap", "user", "107", "group", "107")
    cards = tuple(messages.Interface(each.name, each.mac, each.tap, each.model, each.lease, each.lease6, each.ipv4) for each in wired)
    cards = (*cards, messages.Interface("unplugged", "02:00:00:00:0e:02", "tap1"))
    domain = {"graphics": [], "interfaces": [*asked, {"name": "unplugged", "state": "down"}]}
    launcher = start(pod, resolv_conf)
    with launcher.client() as client, launcher.console() as viewer:
        status = client.ask(messages.Sync(dataclasses.replace(a_machine(devices=domain), interfaces=cards)))
        assert "interface 'lan' has an address from its pod's IPAM" in status.not_migratable
        viewer.expect("GUEST-READY", READY_SECONDS)
        own = lease(viewer)
        assert (own["ip"], own["router"], own["mtu"], own["hostname"]) == ("10.0.2.2", "10.0.2.1", "1420", "testvm")
        assert own["dns"] == "10.96.0.10 10.96.0.11"
        assert own["search"] == "default.svc.cluster.local svc.cluster.local"
        viewer.sh("ip link set eth2 up")
        assert viewer.sh("cat /sys/class/net/eth0/carrier /sys/class/net/eth2/carrier") == "1\n0"
        require_masquerade_by_ports(pod, viewer)
        lan = lease(viewer, "eth1")
        assert (lan["ip"], lan["mask"], lan["mtu"]) == (GIVEN, "24", "1400")
        assert lan["staticroutes"] == f"172.16.0.0/12 {NEIGHBOUR}"
        assert not {"router", "dns", "search", "hostname"} & lan.keys()
        assert "1 packets received" in viewer.sh(f"ping -c 1 -W 20 {NEIGHBOUR}")
        assert viewer.sh("cat /sys/class/net/eth0/mtu /sys/class/net/eth1/mtu") == "1420\n1400"
        for payload, answers in ((1372, 1), (1373, 0)):
            whole = viewer.sh(f"ping -c 1 -W 20 -s {payload} -M do {NEIGHBOUR} 2>&1; true")
            assert (f"{answers} packets received" in whole) or "unrecognized" in whole or "invalid option" in whole

        viewer.sh("ip address flush dev eth0; ip address flush dev eth1")
        assert (lease(viewer)["ip"], lease(viewer, "eth1")["ip"]) == ("10.0.2.2", GIVEN)
        assert launcher.process.poll() is None
