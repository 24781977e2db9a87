from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.virt.places import layout, network
from apiserver.apis.virt.spec import attachments
from handler.devices import macvtap
from handler.network import namespaces
from launcher.protocol import messages
from tests.host.handler import frames, pods
from tests.host.handler.frames import ICMPV6, UDP
from tests.host.handler.macvtaps import given_by_the_kubelet
from tests.host.handler.pods import CALLER, CALLER6, POD, POD6, Pod, run
from tests.host.launcher import guest, sandbox
from tests.host.launcher.sandbox import Launcher, Viewer, a_machine, wait_for

pytestmark = [pytest.mark.host, pytest.mark.timeout(400)]
Start = Callable[..., Launcher]

MAC: Final = "52:54:00:00:00:77"
READY_SECONDS: Final = 200
LEASED: Final = (
    "#!/bin/sh",
    '[ "$1" = bound ] || exit 0',
    'ip link set "$interface" mtu "${mtu:-1500}"',
    'ip address add "$ip/$mask" dev "$interface"',
    '[ -z "$router" ] || ip route add default via "$router"',
    "set >/tmp/lease",
)


@pytest.fixture(scope="module")
def guest_with_network() -> guest.Guest:
    return guest.build(modules=(*guest.MODULES, "virtio_net"), programs=("dhcpcd",))


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        yield made


@pytest.fixture
def start(program: Path, guest_with_network: guest.Guest, tmp_path: Path) -> Iterator[Start]:
    launchers: list[Launcher] = []

    def make(pod: Pod, resolv_conf: str = "", *, macvtaps: bool = False) -> Launcher:
        directory = tmp_path / f"pod{len(launchers)}"
        launchers.append(Launcher(program, directory, guest_with_network, network=pod.name, resolv_conf=resolv_conf, macvtaps=macvtaps))
        return launchers[-1]

    with sandbox.killed_afterwards(launchers):
        yield make


def a_vm(*interfaces: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"uid": "3f0e"}, "spec": {"domain": {"devices": {"interfaces": list(interfaces)}}}}


def lease(viewer: Viewer, device: str = "eth0") -> dict[str, str]:
    viewer.sh("rm -f /tmp/leased /tmp/lease")
    for line in LEASED:
        viewer.sh(f"echo '{line}' >>/tmp/leased")
    viewer.sh(f"chmod +x /tmp/leased; ip link set lo up; ip link set {device} up")
    viewer.sh(f"udhcpc -i {device} -n -q -s /tmp/leased -t 10 -T 3 -O mtu -O search -O staticroutes >/dev/null 2>&1")
    told = (line.partition("=") for line in viewer.sh("cat /tmp/lease").splitlines())
    return {name: value.strip("'") for name, _, value in told}


def lease6(viewer: Viewer) -> str:
    viewer.sh("mkdir -p /run/dhcpcd /var/lib/dhcpcd; dhcpcd -6 -1 -w -t 120 -f /dev/null eth0 >/tmp/dhcpcd 2>&1")
    return viewer.sh("cat /tmp/dhcpcd; ip -6 address show dev eth0; ip -6 route")


def asked(pod: Pod, host: str, port: int) -> str:

    def ask() -> str:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=20) as connection:
            return connection.recv(100).decode().strip()
        return ""

    return pod.outside(ask)


def tell(pod: Pod, host: str, port: int, times: int) -> None:
    with pod.outside(lambda: socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)) as sender:
        for _ in range(times):
            sender.sendto(b"hello", (host, port))


def refused_datagrams(viewer: Viewer) -> int:
    return int(viewer.sh("awk '/^Udp:/ {n = $3} END {print n}' /proc/net/snmp"))


@contextlib.contextmanager
def greeting(pod: Pod, host: str, port: int = 80) -> Iterator[list[str]]:
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


def require_masquerade_by_ports(pod: Pod, viewer: Viewer) -> None:
    """Test the traffic of a masqueraded guest with a lease and the ports 8080 and 53 (UDP)."""
    for port in (8080, 8081):
        viewer.sh(f"(while :; do echo hello-from-{port} | nc -l -p {port}; done) 2>/dev/null & true")
    wait_for(lambda: asked(pod, POD, 8080) == "hello-from-8080", 60, "an answer of the guest")
    wait_for(lambda: viewer.sh("nc 127.0.0.1 8081") == "hello-from-8081", 60, "an answer within the guest")
    assert asked(pod, POD, 8081) == ""
    tell(pod, POD, 54, 5)
    tell(pod, POD, 53, 3)
    wait_for(lambda: refused_datagrams(viewer) == 3 or None, 60, "three datagrams, and no more")
    with greeting(pod, CALLER) as callers:
        assert viewer.sh(f"nc {CALLER} 80") == "hello-from-outside"
    assert callers == [POD]
    assert "1 packets received" in viewer.sh(f"ping -c 1 -W 20 {CALLER}")

    told6 = lease6(viewer)
    assert "inet6 fd10:0:2::2/128" in told6
    assert "default via fe80::1 dev eth0" in told6
    assert "mtu 1420" in told6
    wait_for(lambda: asked(pod, POD6, 8080) == "hello-from-8080", 60, "an answer of the guest")
    assert asked(pod, POD6, 8081) == ""
    with greeting(pod, CALLER6) as callers:
        assert viewer.sh(f"nc {CALLER6} 80") == "hello-from-outside"
    assert callers == [POD6]
    assert "1 packets received" in viewer.sh(f"ping -6 -c 1 -W 20 {CALLER6}")
    assert "1 packets received" in viewer.sh("ping -6 -c 1 -W 20 fd10:0:2::1")
    viewer.sh("ip -6 address add fd10:0:2::3/128 dev eth0; while ip -6 address show dev eth0 | grep -q tentative; do sleep 1; done")
    assert " 0 packets received" in viewer.sh(f"ping -6 -c 2 -W 2 -I fd10:0:2::3 {CALLER6}")


@pytest.mark.sample(4, "guests in pods with one family")
@pytest.mark.parametrize(("family", "own", "other"), [(4, POD, CALLER), (6, POD6, CALLER6)], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("kind", ["masquerade", "bridge"])
async def test_a_guest_in_a_pod_with_one_family_reaches_and_is_reached(start: Start, kind: str, family: int, own: str, other: str) -> None:
    """On every port, and behind the pod's address also as ``kubectl port-forward`` connects."""
    its = own if kind == "bridge" else {4: "10.0.2.2", 6: "fd10:0:2::2"}[family]
    with pods.a_pod((family,)) as pod:
        vm = a_vm({"name": "lan", "type": kind})
        (wired,) = await pods.NETWORKS.prepare(vm, "", pod.launcher)
        assert (wired.addresses, wired.ipv4) == ((own,), family == 4)
        card = messages.Interface(wired.name, wired.mac, wired.tap, wired.model, wired.lease, wired.lease6, wired.ipv4)
        domain = {"graphics": [], "interfaces": vm["spec"]["domain"]["devices"]["interfaces"]}
        launcher = start(pod)
        with launcher.client() as client, launcher.console() as viewer:
            client.ask(messages.Sync(dataclasses.replace(a_machine(devices=domain), interfaces=(card,))))
            viewer.expect("GUEST-READY", READY_SECONDS)
            if family == 4:
                assert lease(viewer)["ip"] == its
                assert "scope global" not in viewer.sh("ip -6 address show dev eth0")
            else:
                viewer.sh("ip link set lo up; ip link set eth0 up")
                assert f"inet6 {its}/128" in lease6(viewer)
                assert viewer.sh("udhcpc -i eth0 -n -q -s /bin/true -t 2 -T 1 >/dev/null 2>&1 || echo no-lease") == "no-lease"
            viewer.sh("(while :; do echo hello-from-the-guest | nc -l -p 8080; done) 2>/dev/null & true")
            wait_for(lambda: asked(pod, own, 8080) == "hello-from-the-guest" or None, 60, "an answer of the guest")
            with greeting(pod, other) as callers:
                assert viewer.sh(f"nc {other} 80") == "hello-from-outside"
            assert callers == [own]

            def forwarded() -> str:
                with socket.create_connection(("127.0.0.1" if family == 4 else "::1", 8080), timeout=20) as connection:
                    return connection.recv(100).decode().strip()

            if kind == "masquerade":
                assert pod.inside(forwarded) == "hello-from-the-guest"


async def test_bridge_guest_has_the_pods_address_and_is_reachable(pod: Pod, start: Start) -> None:
    away = "fd98::1"
    run("ip", "-n", pod.caller, "address", "add", f"{away}/128", "dev", "peer", "nodad")
    run("ip", "-n", pod.name, "link", "set", "eth0", "mtu", "1420")
    run("ip", "-n", pod.name, "route", "add", "10.96.0.0/12", "via", CALLER)
    (before,) = (link for link in await namespaces.links(pod.launcher.network) if link["ifname"] == "eth0")
    vm = a_vm({"name": "lan", "type": "bridge"})
    (wired,) = await pods.NETWORKS.prepare(vm, "", pod.launcher)
    assert (wired.mac, wired.addresses) == (before["address"], (POD, POD6))
    card = messages.Interface(wired.name, wired.mac, wired.tap, wired.model, wired.lease, wired.lease6)
    domain = {"graphics": [], "interfaces": vm["spec"]["domain"]["devices"]["interfaces"]}
    launcher = start(pod, "search svc.cluster.local\nnameserver 10.96.0.10\n")
    with launcher.client() as client, launcher.console() as viewer, greeting(pod, CALLER) as callers:
        status = client.ask(messages.Sync(dataclasses.replace(a_machine(devices=domain), interfaces=(card,))))
        assert "interface 'lan' has its pod's address" in status.not_migratable
        viewer.expect("GUEST-READY", READY_SECONDS)
        uplink = pod.outside(lambda: pods.Ear("peer"))
        told = lease(viewer)
        assert (told["ip"], told["mask"], told["router"], told["mtu"]) == (POD, "24", CALLER, "1420")
        assert told["staticroutes"] == f"0.0.0.0/0 {CALLER} 10.96.0.0/12 {CALLER}"
        assert (told["dns"], told["search"], told["hostname"]) == ("10.96.0.10", "svc.cluster.local", "testvm")
        assert viewer.sh("cat /sys/class/net/eth0/mtu") == "1420"
        assert before["address"] in viewer.sh("cat /sys/class/net/eth0/address")
        viewer.sh("(while :; do echo hello-from-the-guest | nc -l -p 8080; done) 2>/dev/null & true")
        wait_for(lambda: asked(pod, POD, 8080) == "hello-from-the-guest" or None, 60, "an answer of the guest")
        assert viewer.sh(f"nc {CALLER} 80") == "hello-from-outside"
        told6 = lease6(viewer)
        assert f"inet6 {POD6}/128" in told6
        assert f"default via {network.BRIDGED_ROUTER6} dev eth0" in told6
        assert "fd99::/64 dev eth0" in told6
        wait_for(lambda: asked(pod, POD6, 8080) == "hello-from-the-guest" or None, 60, "an answer of the guest")
        for address in (CALLER6, away):
            with greeting(pod, address) as callers6:
                assert viewer.sh(f"nc {address} 80") == "hello-from-outside"
            assert callers6 == [POD6]
        heard = uplink.until(socket.inet_pton(socket.AF_INET6, away))
        uplink.close()
        sent = [frame for frame in heard if frame[6:12] == frames.mac(wired.mac) and frame[12:14] == b"\x86\xdd"]
        assert [frame for frame in sent if frame[20] == ICMPV6 and frame[54] == 135]
        assert not [
            frame for frame in sent if (frame[20] == ICMPV6 and frame[54] == 133) or (frame[20] == UDP and frame[56:58] == b"\2\x23")
        ]
        assert not [frame for frame in heard if frame[12:14] == b"\x08\x00" and frame[23] == UDP and frame[36:38] == b"\0\x43"]

        (again,) = await pods.NETWORKS.prepare(vm, "", pod.launcher)
        assert again == wired
        assert viewer.sh(f"nc {CALLER} 80") == "hello-from-outside"
        wait_for(lambda: asked(pod, POD, 8080) == "hello-from-the-guest" or None, 60, "an answer of the guest")
        wait_for(lambda: asked(pod, POD6, 8080) == "hello-from-the-guest" or None, 60, "an answer of the guest")
        assert set(callers) == {POD}
        assert "1 packets received" in viewer.sh(f"ping -6 -c 1 -W 20 {away}")
        viewer.sh("ip address add 10.99.0.66/24 dev eth0")
        assert " 0 packets received" in viewer.sh(f"ping -c 2 -W 2 -I 10.99.0.66 {CALLER}")
        assert "1 packets received" in viewer.sh(f"ping -c 1 -W 20 -I {POD} {CALLER}")


async def test_macvtap_guest_is_reachable_by_its_own_mac_only(start: Start) -> None:
    vm = a_vm({"name": "default"}, {"name": "lan", "type": "macvtap", "network": "lan", "mac": MAC})
    link, tap = attachments.link("lan"), attachments.tap("lan")
    with given_by_the_kubelet() as minor, pods.a_pod() as pod:
        run("ip", "-n", pod.caller, "link", "add", "lan", "mtu", "1400", "type", "veth", "peer", "name", link, "netns", pod.name)
        run("ip", "-n", pod.caller, "address", "add", "192.168.7.1/24", "dev", "lan")
        run("ip", "-n", pod.caller, "link", "set", "lan", "up")
        wired = (await pods.NETWORKS.prepare(vm, "", pod.launcher))[1]
        assert (wired.mac, wired.tap, wired.addresses, wired.lease) == (MAC, tap, (), None)
        assert Path(macvtap.path_of(minor)).stat().st_uid == layout.USER_ID
        card = messages.Interface(wired.name, wired.mac, wired.tap, wired.model)
        domain = {"graphics": [], "interfaces": [vm["spec"]["domain"]["devices"]["interfaces"][1]]}
        launcher = start(pod, macvtaps=True)
        with launcher.client() as client, launcher.console() as viewer, greeting(pod, "192.168.7.1") as callers:
            status = client.ask(messages.Sync(dataclasses.replace(a_machine(devices=domain), interfaces=(card,))))
            assert "lan" not in status.not_migratable
            viewer.expect("GUEST-READY", READY_SECONDS)
            heard = pod.outside(lambda: pods.Ear("lan"))
            viewer.sh("ip link set eth0 up mtu 1400; ip address add 192.168.7.2/24 dev eth0")
            assert MAC in viewer.sh("cat /sys/class/net/eth0/address")
            wait_for(lambda: viewer.sh("nc 192.168.7.1 80") == "hello-from-outside" or None, 60, "an answer of the neighbour")
            assert callers[-1] == "192.168.7.2"
            viewer.sh("(while :; do echo hello-from-the-guest | nc -l -p 8080; done) 2>/dev/null & true")
            wait_for(lambda: asked(pod, "192.168.7.2", 8080) == "hello-from-the-guest" or None, 60, "an answer of the guest")
            viewer.sh(
                "ip link set eth0 down; ip link set eth0 address 52:54:00:00:00:99; ip link set eth0 up; ping -c 2 -W 2 192.168.7.1; true"
            )
            viewer.sh(f"ip link set eth0 down; ip link set eth0 address {MAC}; ip link set eth0 up; true")
            wait_for(lambda: viewer.sh("nc 192.168.7.1 80") == "hello-from-outside" or None, 60, "an answer to its own address")
            frames_heard = heard.until(b"hello-from-outside")
            heard.close()
            assert not [each for each in frames_heard if each[6:12] == frames.mac("52:54:00:00:00:99")]
            counters = run("ip", "netns", "exec", pod.name, "nft", "list", "counters", "table", "netdev", f"kubevirt_{tap}")
            assert "packets 0 bytes" not in counters.partition("counter other_protocol")[0], counters
