from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from launcher.dhcp import message
from launcher.dhcp.answers import Lease
from launcher.dhcp.server import TURN_PACKETS, Ports, Server
from launcher.protocol import messages
from tests.unit.launcher.dhcp.test_answers import MAC, packet

TAP = messages.Interface("default", MAC, "tap0")
GIVEN = Lease(MAC, "127.0.0.1", "127.0.0.1", "255.0.0.0", 1500)
"""The guest is a socket on loopback."""


def machine(*interfaces: messages.Interface) -> messages.Machine:
    return messages.Machine("default", "testvm", "u-1", {}, "qemu", interfaces)


@dataclass
class World:
    guest: socket.socket
    ports: Ports
    bridge: str = "lo"
    asked: list[messages.Machine] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)

    def find(self, wanted: messages.Machine, interface: messages.Interface, bridge: socket.socket) -> Lease:
        assert interface in wanted.interfaces
        self.asked.append(wanted)
        self.sockets.append(bridge)
        return GIVEN

    def server(self) -> Server:
        return Server(self.find, lambda _: self.bridge, self.ports)

    def ask(self, count: int) -> None:
        for _ in range(count):
            self.guest.sendto(packet(message.DISCOVER), ("127.0.0.1", self.ports.server))

    def heard(self) -> int:
        for got in itertools.count():
            try:
                self.guest.recv(2048)
            except BlockingIOError:
                return got
        raise AssertionError

    async def offered(self, count: int = 1) -> int:
        self.ask(count)
        got = 0
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(0.5 if count == 1 else 2):
                while True:
                    data = await loop.sock_recv(self.guest, 2048)
                    got += data[16:20] == socket.inet_aton(GIVEN.address)
                    if got == count:
                        return got
        except TimeoutError:
            return got


@pytest.fixture
def world() -> Iterator[World]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as guest, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        guest.setblocking(False)
        guest.bind(("127.0.0.1", 0))
        free.bind(("127.0.0.1", 0))
        ports = Ports(server=free.getsockname()[1], client=guest.getsockname()[1])
        free.close()
        yield World(guest, ports)


async def test_single_server_answers_and_none_after_the_end(world: World) -> None:
    with world.server() as server:
        assert await world.offered() == 0
        server.serve(machine(TAP))
        assert await world.offered() == 1
        server.serve(machine(TAP))
        server.serve(machine(TAP))
        assert await world.offered() == 1
        assert (len(world.asked), len(set(world.sockets))) == (1, 1)
    assert world.sockets[0].fileno() == -1


async def test_removed_card_is_served_again_when_it_returns(world: World) -> None:
    with world.server() as server:
        server.serve(machine(TAP))
        server.serve(machine())
        assert world.sockets[0].fileno() == -1
        assert await world.offered() == 0
        server.serve(machine(TAP))
        assert await world.offered() == 1
    assert await world.offered() == 0
    with world.server() as another:
        another.serve(machine(TAP))
        assert await world.offered() == 1


async def test_a_machine_without_interfaces_has_no_server(world: World) -> None:
    world.bridge = "absent0"
    with world.server() as server:
        server.serve(machine())
    assert world.asked == []


async def test_server_listens_on_the_bridge_only(world: World) -> None:
    with world.server() as server:
        server.serve(machine(TAP))
        bound = world.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")
        assert bound == b"lo"
        assert not world.sockets[0].get_inheritable()


@pytest.mark.parametrize("trouble", ["no bridge", "taken"])
async def test_obstacle_is_reported_and_nothing_stays_open(world: World, trouble: str) -> None:
    with world.server() as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        if trouble == "no bridge":
            world.bridge = "absent0"
        else:
            holder.bind(("", world.ports.server))
        with pytest.raises(OSError, match=f"serve DHCP on {world.bridge}: "):
            server.serve(machine(TAP))
        holder.close()
        world.bridge = "lo"
        server.serve(machine(TAP))
        assert await world.offered() == 1


async def test_flood_is_answered_completely_over_several_turns(world: World) -> None:
    with world.server() as server:
        server.serve(machine(TAP))
        assert await world.offered(3 * TURN_PACKETS) == 3 * TURN_PACKETS
        world.ask(3 * TURN_PACKETS)
        for _ in range(2):
            await asyncio.sleep(0)
        heard = world.heard()
        assert 0 < heard <= 2 * TURN_PACKETS
        while heard < 3 * TURN_PACKETS:
            await asyncio.sleep(0)
            heard += world.heard()
