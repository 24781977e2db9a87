from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver.apis.virt.places import layout, network
from launcher.dhcp import message
from launcher.protocol import messages
from tests.host.handler import breakout, frames, pods
from tests.host.handler.frames import IPV4, ethernet, udp
from tests.host.handler.pods import Pod, Tap, run
from tests.host.handler.test_guest_packets import MINE, VM
from tests.host.launcher import guest, sandbox
from tests.unit.launcher.dhcp.test_answers import packet

pytestmark = [pytest.mark.host, pytest.mark.timeout(90)]

GUEST, GATEWAY = socket.inet_aton(network.GUEST), socket.inet_aton(network.GATEWAY)


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        yield made


class World:
    def __init__(self, pod: Pod, launcher: sandbox.Launcher) -> None:
        self.pod, self.launcher = pod, launcher
        self.tap = Tap(pod)

    def send(self, data: bytes, source: str = "0.0.0.0", destination: str = "255.255.255.255") -> None:
        to = frames.BROADCAST if destination == "255.255.255.255" else network.BRIDGE_MAC
        self.tap.send(ethernet(MINE, IPV4, udp(source, destination, data, (68, 67)), to))

    def ask(
        self, kind: int, data: bytes, source: str = "0.0.0.0", destination: str = "255.255.255.255"
    ) -> tuple[str, bytes, message.Request]:
        for _ in range(8):
            self.send(data, source, destination)
            try:
                frame = self.tap.receive(lambda frame: (found := answer_in(frame)) is not None and found.kind == kind, 2)
            except TimeoutError:
                continue
            found = answer_in(frame)
            assert found is not None
            return frame[:6].hex(":"), frame[58:62], found
        raise TimeoutError

    def lease(self) -> None:
        _, address, _ = self.ask(message.OFFER, packet(message.DISCOVER, mac=MINE))
        assert address == GUEST
        _, address, granted = self.ask(message.ACK, packet(message.REQUEST, (50, GUEST), (54, GATEWAY), mac=MINE))
        assert address == GUEST
        assert granted.options[message.ROUTER] == GATEWAY
        assert granted.options[message.HOST_NAME] == b"testvm"
        assert granted.options[message.MTU] == (1500).to_bytes(2, "big")


def answer_in(frame: bytes) -> message.Request | None:
    is_answer = frame[12:14] == b"\x08\x00" and frame[34:38] == b"\x00\x43\x00\x44"
    return message.parse(b"\x01" + frame[43:]) if is_answer else None


@pytest.fixture(scope="module")
def world(program: Path, test_guest: guest.Guest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a World with a launcher that prepares for a migration, so no QEMU holds the tap."""
    with pods.a_pod() as pod, contextlib.ExitStack() as stack:
        (interface,) = asyncio.run(pods.NETWORKS.prepare(VM, "", pod.launcher))
        launcher = pod.inside(lambda: sandbox.Launcher(program, tmp_path_factory.mktemp("dhcp") / "pod", test_guest))
        stack.enter_context(sandbox.killed_afterwards([launcher]))
        with launcher.client() as client:
            interfaces = {"graphics": [], "interfaces": [{"name": "default"}]}
            machine = sandbox.a_machine(devices=interfaces)
            wired = messages.Interface(interface.name, interface.mac, interface.tap, interface.model)
            machine = messages.Machine(machine.namespace, machine.name, machine.uid, machine.domain, "qemu", (wired,), 5.0)
            client.ask(messages.PrepareMigrationTarget("m-1", machine))
        made = World(pod, launcher)
        yield made
        made.tap.close()


async def test_a_guest_is_given_its_address_and_renews_it(world: World) -> None:
    world.lease()
    for destination in (network.GATEWAY, "255.255.255.255"):  # renewing, rebinding (RFC 2131, 4.3.2)
        to, address, _ = world.ask(message.ACK, packet(message.REQUEST, mac=MINE, ciaddr=GUEST), network.GUEST, destination)
        assert (to, address) == (MINE, GUEST)


async def test_guest_without_address_is_answered_by_mac_or_broadcast(world: World) -> None:
    assert world.ask(message.OFFER, packet(message.DISCOVER, mac=MINE))[0] == MINE
    assert world.ask(message.OFFER, packet(message.DISCOVER, mac=MINE, flags=0x8000))[0] == frames.BROADCAST


async def test_packet_reader_has_no_privileges(world: World) -> None:
    world.lease()
    (line,) = run(
        "ip", "netns", "exec", world.pod.name, "ss", "--udp", "--listening", "--processes", "--no-header", "sport = :67"
    ).splitlines()
    assert f"pid={world.launcher.process.pid}," in line
    assert network.BRIDGE in line
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{world.launcher.process.pid}/status").read_text().splitlines())
    user = "\t".join([str(layout.USER_ID)] * 4)
    assert (status["Uid"], status["Gid"], status["Groups"].strip()) == (user, user, "")
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[capabilities], 16) == 0
    assert status["NoNewPrivs"] == "1"


async def test_flood_of_malformed_packets_is_harmless(world: World) -> None:
    world.lease()
    source = random.Random(10)
    good = packet(message.DISCOVER, (61, b"abc"), (55, bytes(range(1, 100))), mac=MINE)
    before, started = processor_seconds(world.launcher.process.pid), time.monotonic()
    sent = 0
    while time.monotonic() - started < 3:
        data = bytearray(good)
        for _ in range(source.randrange(8)):
            data[source.randrange(len(data))] = source.randrange(256)
        world.send(bytes(data[: source.randrange(len(data) + 1)]))
        sent += 1

    assert sent > 3000
    assert processor_seconds(world.launcher.process.pid) - before < 1
    counters = run("ip", "netns", "exec", world.pod.name, "nft", "list", "counter", "netdev", "kubevirt", "too_much_dhcp")
    assert int(counters.split("packets ")[1].split()[0]) > sent / 2
    with world.launcher.client() as client:
        assert client.status.ending is None
    world.tap.drain(3)
    world.lease()


async def test_a_second_server_on_the_bridge_is_an_error_that_says_so(
    pod: Pod, program: Path, test_guest: guest.Guest, tmp_path: Path
) -> None:
    (interface,) = await pods.NETWORKS.prepare(VM, "", pod.launcher)
    wired = messages.Interface(interface.name, interface.mac, interface.tap, interface.model)
    with pod.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as holder:
        holder.bind(("", 67))
        launcher = pod.inside(lambda: sandbox.Launcher(program, tmp_path / "pod", test_guest))
        with sandbox.killed_afterwards([launcher]), launcher.client() as client:
            machine = sandbox.a_machine()
            machine = messages.Machine(machine.namespace, machine.name, machine.uid, machine.domain, "qemu", (wired,), 5.0)
            answer = client.call(messages.Sync(machine))
    assert isinstance(answer, messages.Refusal)
    assert "serve DHCP on k6t-eth0: Address already in use" in answer.message


def processor_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / 100


async def test_each_attempt_of_a_break_out_works_for_root(pod: Pod) -> None:
    """Otherwise failures of other users would prove nothing."""
    await pods.NETWORKS.prepare(VM, "", pod.launcher)
    program = (Path(__file__).parent / "breakout.py").read_text()
    ended = json.loads(run("ip", "netns", "exec", pod.name, "unshare", "--mount", sandbox.PYTHON, "-I", "-c", program))
    assert set(ended.values()) == {"done"}
    assert run("ip", "netns", "exec", pod.name, "nft", "list", "tables") == ""


async def test_compromised_packet_reader_cannot_change_the_network(world: World) -> None:
    program = (Path(__file__).parent / "breakout.py").read_text()
    user = str(layout.USER_ID)
    confined = [
        "setpriv",
        f"--reuid={user}",
        f"--regid={user}",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--no-new-privs",
    ]
    ended = json.loads(run("ip", "netns", "exec", world.pod.name, *confined, sandbox.PYTHON, "-I", "-c", program))

    assert ended.keys() == breakout.NETWORK.keys()
    assert {name: end for name, end in ended.items() if end not in ("Operation not permitted", "Permission denied")} == {}
    world.lease()
