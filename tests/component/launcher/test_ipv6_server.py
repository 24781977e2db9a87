"""Router advertisements and DHCPv6, with a socket as tap; tests of ``launcher.ipv6`` cover the answers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import socket
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from launcher.ipv6.server import TURN_FRAMES, Server
from launcher.ipv6.settings import Settings
from launcher.protocol import leases, messages
from tests.unit.launcher.ipv6.test_discovery import OWN_MAC, SETTINGS, asked

CARD = messages.Interface("default", "52:54:00:c0:ff:ee", "tap0", lease6=leases.Lease6("fd10:0:2::2/128", "fe80::1"))
ASKED = asked(bytes(4) + OWN_MAC)


def machine(*interfaces: messages.Interface) -> messages.Machine:
    return messages.Machine("default", "testvm", "u-1", {}, "qemu", interfaces)


class World:
    def __init__(self, guest: socket.socket, ours: socket.socket) -> None:
        self.guest, self._ours, self.opened = guest, ours, 0
        self.taps: list[int] = []

    def open(self) -> int:
        self.opened += 1
        self.taps.append(os.dup(self._ours.fileno()))
        return self.taps[-1]

    def find(self, mac: str, told: leases.Lease6, any_socket: socket.socket) -> Settings:
        del mac, told, any_socket
        return SETTINGS

    def server(self, **limits: Any) -> Server:
        return Server(self.open, self.find, **limits)

    async def heard(self, count: int) -> int:
        got = 0
        try:
            async with asyncio.timeout(10):
                while got < count:
                    await asyncio.get_running_loop().sock_recv(self.guest, 2048)
                    got += 1
        except TimeoutError:
            pass
        return got


@pytest.fixture
def world() -> Iterator[World]:
    guest, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with guest, ours:
        for each in (guest, ours):
            each.setblocking(False)
        yield World(guest, ours)


async def test_router_is_advertised_at_once_and_on_request(world: World) -> None:
    with world.server() as server:
        server.serve(machine(CARD))
        server.serve(machine(CARD))
        assert (world.opened, await world.heard(1)) == (1, 1)
        world.guest.send(ASKED)
        assert await world.heard(1) == 1
    (tap,) = world.taps
    assert not asyncio.get_running_loop().remove_reader(tap)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(tap)


async def test_removed_card_is_served_again_when_it_returns(world: World) -> None:
    with world.server() as server:
        server.serve(machine(CARD))
        server.serve(machine())
        (tap,) = world.taps
        assert not asyncio.get_running_loop().remove_reader(tap)
        server.serve(machine(CARD))
        assert (world.opened, await world.heard(2)) == (2, 2)


async def test_router_is_advertised_periodically(world: World) -> None:
    with world.server(advertise_seconds=0.01) as server:
        server.serve(machine(CARD))
        assert await world.heard(5) == 5


async def test_flood_is_answered_completely_over_several_turns(world: World) -> None:
    with world.server() as server:
        server.serve(machine(CARD))
        sent = 0
        try:
            while sent < 3 * TURN_FRAMES:
                world.guest.send(ASKED)
                sent += 1
        except BlockingIOError:
            pass
        assert await world.heard(1 + sent) == 1 + sent


async def test_a_few_frames_are_read_in_one_turn(world: World) -> None:
    with world.server(turn_frames=1) as server:
        server.serve(machine(CARD))
        assert await world.heard(1) == 1
        for _ in range(5):
            world.guest.send(ASKED)
        for _ in range(2):
            await asyncio.sleep(0)
        got = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                world.guest.recv(2048)
                got += 1
        assert 0 < got <= 2
        assert await world.heard(5 - got) == 5 - got


async def test_nothing_waits_for_a_server_that_has_ended(world: World) -> None:
    server = world.server()
    with server:
        server.serve(machine(CARD))
    ended = weakref.ref(server)
    del server
    gc.collect()
    assert ended() is None


async def test_a_tap_that_went_away_is_opened_again(world: World) -> None:
    gone = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    gone.setblocking(False)
    failures = [OSError(errno.ENODEV, "No such device")] * 3

    def opened() -> int:
        if not world.opened:
            world.opened += 1
            return os.dup(gone.fileno())
        if failures:
            raise failures.pop()
        return world.open()

    with gone, Server(opened, world.find, again_seconds=0.01) as server:
        server.serve(machine(CARD))
        assert await world.heard(1) == 1
        assert (failures, world.opened) == ([], 2)
        world.guest.send(ASKED)
        assert await world.heard(1) == 1


async def test_failing_tap_does_not_cause_a_busy_loop(world: World) -> None:
    gone = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    gone.setblocking(False)

    def opened() -> int:
        world.opened += 1
        return os.dup(gone.fileno())

    with gone, Server(opened, world.find, again_seconds=0.2) as server:
        server.serve(machine(CARD))
        await asyncio.sleep(0.5)
    assert 2 <= world.opened <= 4


async def test_a_tap_that_is_down_is_not_read_in_a_circle(world: World) -> None:
    """It stays readable, and each read fails with EIO, like a pseudo-terminal without its other side."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    os.close(theirs)

    def opened() -> int:
        if world.opened:
            return world.open()
        world.opened += 1
        return ours

    with Server(opened, world.find, again_seconds=0.2) as server:
        server.serve(machine(CARD))
        world.guest.send(ASKED)
        assert await world.heard(2) == 2
    assert world.opened == 2


async def test_no_server_runs_without_ipv6(world: World) -> None:
    with world.server() as server:
        server.serve(machine(messages.Interface("default", CARD.mac, "tap0")))
    assert world.opened == 0


async def test_a_tap_that_is_missing_is_told(world: World) -> None:
    def missing() -> int:
        raise FileNotFoundError(2, "No such file or directory")

    with Server(missing, world.find) as server, pytest.raises(OSError, match="serve IPv6 on tap-ipv6: No such file"):
        server.serve(machine(CARD))
