"""Costs of storage: ``python -m benchmarks.storage [--only WAY,…] [--count N] [--rounds N] [--no-uvloop]``.

Prints one JSON object per line: operations per second and microseconds of our own processor time for each, with values of 2.5 KB and 16
callers (``alone``: one). The ways are memory, and etcd through gRPC's own library, grpclib or our client, over mTLS unless the name has
``clear``. etcd runs without fsync, so the disk is not measured.
"""

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import uvloop

from benchmarks.measuring import measured, repeated
from benchmarks.other_grpc import GrpcioStorage, GrpclibStorage
from storage.etcd.connection import Tls
from storage.etcd.store import EtcdStorage, Settings
from storage.memory import MemoryStorage
from storage.port import Batch, Condition, Entry, Page, Put
from tests.fakes.etcd_server import EtcdServer
from tests.fakes.etcd_tls import Authority

CALLERS = 16
VALUE = json.dumps({"kind": "VirtualMachine", "metadata": {"name": "vm"}, "spec": {str(n): "x" * 60 for n in range(36)}}).encode()
WAYS = ("memory", "grpcio", "grpclib", "ours", "grpcio-clear", "ours-clear")


class Measurable(Protocol):
    """The measured part of ``storage.port.Storage``."""

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Any]) -> int:
        """Apply ``writes`` if ``conditions`` hold; return the new revision."""
        ...

    async def get(self, key: str) -> Entry | None:
        """Return the entry of ``key``, or None."""
        ...

    async def revision(self) -> int:
        """Return the store's revision."""
        ...

    async def range(self, prefix: str) -> Page:
        """Return all entries with ``prefix``."""
        ...

    def watch(self, prefix: str, *, after: int) -> AbstractAsyncContextManager[AsyncIterator[Batch]]:
        """Watch changes with ``prefix`` after revision ``after``."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


async def measure(way: str, storage: Measurable, count: int) -> None:
    base = f"{way}/"
    revisions: dict[int, int] = {}

    async def create(number: int) -> None:
        key = f"{base}{number:06}"
        revisions[number] = await storage.commit([Condition(key, 0)], [Put(key, VALUE)])

    async def update(number: int) -> None:
        key = f"{base}{number:06}"
        revisions[number] = await storage.commit([Condition(key, revisions[number])], [Put(key, VALUE)])

    async def drain(after: int, expected: int) -> None:
        seen = 0
        async with storage.watch(base, after=after) as batches:
            async for batch in batches:
                seen += len(batch.changes)
                if seen >= expected:
                    return

    begin = await storage.revision()
    await repeated(f"{way}: commit", count, create, callers=CALLERS)
    await repeated(f"{way}: commit, alone", count // 4, update, callers=1)
    await repeated(f"{way}: get", count, lambda number: storage.get(f"{base}{number:06}"), callers=CALLERS)
    await repeated(f"{way}: revision", count, lambda _: storage.revision(), callers=CALLERS)
    await repeated(f"{way}: revision, alone", count // 4, lambda _: storage.revision(), callers=1)
    with measured(f"{way}: range, per key", count):
        await storage.range(base)
    with measured(f"{way}: watch, replayed, per change", count):
        await drain(begin, count)
    after = await storage.revision()
    async with asyncio.TaskGroup() as tasks:
        with measured(f"{way}: commit and its event on a watch", count):
            watching = tasks.create_task(drain(after, count))
            async with asyncio.TaskGroup() as writers:
                for caller in range(CALLERS):
                    writers.create_task(each(update, range(caller, count, CALLERS)))
            await watching


async def each(work: Callable[[int], Awaitable[object]], numbers: Sequence[int]) -> None:
    for number in numbers:
        await work(number)


def made(way: str, clear: str, secure: str, tls: Tls) -> Measurable:
    match way:
        case "memory":
            return MemoryStorage()
        case "grpcio":
            return GrpcioStorage(secure, tls)
        case "grpclib":
            return GrpclibStorage(secure, tls)
        case "grpcio-clear":
            return GrpcioStorage(clear, None)
        case "ours":
            return EtcdStorage(Settings((secure,), tls))
        case "ours-clear":
            return EtcdStorage(Settings((clear,)))
        case _:
            raise SystemExit(f"no way to store is called {way}: want one of {', '.join(WAYS)}")


async def run(ways: Sequence[str], count: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority()
        servers = [
            EtcdServer(Path(directory, "clear"), durable=False),
            EtcdServer(Path(directory, "secure"), durable=False, tls=authority.issue(Path(directory, "server"), "etcd")),
        ]
        tls = Tls(*authority.issue(Path(directory, "client"), "virt-api"), server_name="etcd.test")
        for server in servers:
            server.start()
        try:
            for number in range(rounds):
                for way in ways:
                    storage = made(way, servers[0].endpoint, servers[1].endpoint, tls)
                    await measure(f"{way}" if rounds == 1 else f"{number + 1}. {way}", storage, count)
                    await storage.close()
        finally:
            for server in servers:
                server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(WAYS), help="ways, separated by commas")
    parser.add_argument("--count", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-uvloop", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    with asyncio.Runner(loop_factory=None if options.no_uvloop else uvloop.new_event_loop) as runner:
        runner.run(run(options.only.split(","), options.count, options.rounds))


if __name__ == "__main__":
    main()
