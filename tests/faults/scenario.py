"""client-go's informers on our server during faults; at rest they must hold exactly etcd's content."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import aiohttp

from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.server import dev
from storage.etcd.store import EtcdStorage, Settings
from storage.port import Entry, StorageError
from tests.fakes.etcd_server import EtcdServer
from tests.faults.processes import Informers, Server
from tests.faults.proxy import Proxy
from tests.faults.writing import SECONDS, Writer

PREFIX: Final = f"/registry/{VIRTUAL_MACHINES.group}/{VIRTUAL_MACHINES.plural}/"
NAMESPACE: Final = "red"
LABEL: Final = ("kind", "watched")
WRITERS: Final = 3
ROUND_SECONDS: Final = (5.0, 25.0)
ROUNDS: Final = 2
"""At least."""
REST_SECONDS: Final = 150.0
"""client-go waits up to 30 s, and with jitter twice that."""
HISTORY_SECONDS: Final = 20.0
"""client-go's detector would repeat a compacted revision forever."""


class Difference(AssertionError):
    """An informer's content differs, or its events are impossible."""


@dataclass
class Summary:
    seed: int
    aggressive: bool
    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    told: dict[str, dict[str, int]] = field(default_factory=dict)
    slowest_rest: float = 0.0

    def __str__(self) -> str:
        return json.dumps(
            {
                "seed": self.seed,
                "compaction": "to the present, no detector" if self.aggressive else f"to {HISTORY_SECONDS:.0f} s ago, detectors on",
                "rounds": self.rounds,
                "faults": dict(self.faults),
                "writes": dict(self.writes),
                "told": self.told,
                "slowest_rest_seconds": round(self.slowest_rest, 1),
            }
        )


class Scenario:
    """A run of informers with random faults. An odd seed compacts to the present, and turns off client-go's detector, which that breaks."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._random = Random(seed)
        self.summary = Summary(seed, aggressive=bool(seed % 2))
        self._etcd = EtcdServer(directory / "etcd", durable=True)
        self._revisions: deque[tuple[float, int]] = deque()
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession
        self._server: Server
        self._proxy: Proxy
        self._storage: EtcdStorage
        self._informers: list[Informers] = []

    async def play(self, seconds: float) -> Summary:
        async with self._stack:
            await self._set_up()
            writers = [Writer(self._session, self._server.url, Random(self._random.random())) for _ in range(WRITERS)]
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(each.run()) for each in writers]
                until = time.monotonic() + seconds
                while self.summary.rounds < ROUNDS or time.monotonic() < until:
                    await self._round(writers)
                for each in running:
                    each.cancel()
            self.summary.writes = sum((each.outcomes for each in writers), Counter())
            await self._server.end(signal.SIGTERM)
        if text := self._server.tracebacks():
            raise AssertionError(f"virt-api had an error it did not expect: {text}")
        return self.summary

    async def _set_up(self) -> None:
        paths = dev.Paths(self._directory)
        dev.make_certificates(paths)
        await asyncio.to_thread(self._etcd.start)
        self._stack.callback(self._etcd.close)
        context = ssl.create_default_context(cafile=str(paths.authority))
        context.load_cert_chain(*paths.certificate("client"))
        connector = aiohttp.TCPConnector(ssl=context)
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        self._storage = EtcdStorage(Settings((self._etcd.endpoint,)))
        self._stack.push_async_callback(self._storage.close)
        self._server = Server(paths, self._etcd.endpoint, self._session)
        self._stack.push_async_callback(self._server.end, signal.SIGKILL)
        await self._server.start()
        self._proxy = Proxy(self._server.port)
        await self._stack.enter_async_context(self._proxy.serving())
        paths.kubeconfig.write_text(dev.kubeconfig(paths, self._proxy.port))
        for name, watch_list in (("watchlist", True), ("list", False)):
            informers = Informers(name, self._directory, watch_list=watch_list, detectors=not self.summary.aggressive)
            await informers.start(
                f"--kubeconfig={paths.kubeconfig}",
                f"--group={VIRTUAL_MACHINES.group}",
                f"--version={VIRTUAL_MACHINES.version}",
                f"--resource={VIRTUAL_MACHINES.plural}",
                f"--namespace={NAMESPACE}",
                f"--selector={'='.join(LABEL)}",
            )
            self._stack.push_async_callback(informers.end)
            self._informers.append(informers)

    async def _round(self, writers: list[Writer]) -> None:
        for each in writers:
            each.begin()
        until = time.monotonic() + self._random.uniform(*ROUND_SECONDS)
        while time.monotonic() < until:
            await asyncio.sleep(self._random.uniform(0.1, 3))
            await self._remember()
            name, fault = self._random.choice(self._faults())
            self.summary.faults[name] += 1
            await fault()
        for each in writers:
            each.pause()
        await asyncio.sleep(SECONDS / 10)
        began = time.monotonic()
        await self._rest()
        self.summary.slowest_rest = max(self.summary.slowest_rest, time.monotonic() - began)
        self.summary.rounds += 1

    def _faults(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        frequent = [("drop connections", self._drop), ("compact", self._compact), ("stall the network", self._stall)]
        rare = [
            ("kill virt-api", self._kill_server),
            ("stop virt-api", self._stop_server),
            ("kill etcd", self._kill_etcd),
            ("pause etcd", self._pause_etcd),
        ]
        return [*frequent, *frequent, *rare]

    async def _drop(self) -> None:
        self._proxy.drop()

    async def _stall(self) -> None:
        self._proxy.block()
        await asyncio.sleep(self._random.uniform(0, 3))
        self._proxy.unblock()

    async def _compact(self) -> None:
        try:
            if self.summary.aggressive:
                await self._storage.compact(await self._storage.revision())
            elif self._revisions and self._revisions[0][0] < time.monotonic() - HISTORY_SECONDS:
                await self._storage.compact(self._revisions.popleft()[1])
        except StorageError:
            self.summary.faults["compaction failed"] += 1

    async def _remember(self) -> None:
        try:
            self._revisions.append((time.monotonic(), await self._storage.revision()))
        except StorageError:
            return
        while len(self._revisions) > 1 and self._revisions[1][0] < time.monotonic() - HISTORY_SECONDS:
            self._revisions.popleft()

    async def _kill_server(self) -> None:
        await self._server.end(signal.SIGKILL)
        await self._server.start()

    async def _stop_server(self) -> None:
        await self._server.end(signal.SIGTERM)
        await self._server.start()

    async def _kill_etcd(self) -> None:
        self._etcd.kill()
        await asyncio.sleep(self._random.choice((0, 0, 2)))
        await asyncio.to_thread(self._etcd.start)

    async def _pause_etcd(self) -> None:
        self._etcd.pause()
        await asyncio.sleep(self._random.uniform(0.5, 5))
        self._etcd.resume()

    async def _rest(self) -> None:
        until = time.monotonic() + REST_SECONDS
        while True:
            expected = [_object(entry) for entry in (await self._storage.range(PREFIX)).entries]
            wrong = [problem for each in self._informers for problem in await self._compare(each, expected)]
            if not wrong:
                return
            if time.monotonic() > until:
                raise Difference(f"seed {self.summary.seed}, round {self.summary.rounds}, logs in {self._directory}:\n" + "\n".join(wrong))
            await asyncio.sleep(0.5)

    async def _compare(self, informers: Informers, expected: list[dict[str, Any]]) -> list[str]:
        problems = []
        for name, held in (await informers.dump()).items():
            if held["faults"]:
                raise Difference(f"seed {self.summary.seed}: {informers.name}/{name} was told what cannot be: {held['faults']}")
            wanted = {_key(each): each for each in expected if _is_of(name, each)}
            problems += [f"{informers.name}/{name}: {each}" for each in differences(wanted, held)]
            self.summary.told[f"{informers.name}/{name}"] = {each: held[each] for each in ("added", "updated", "deleted")}
        return problems


def differences(wanted: dict[str, dict[str, Any]], held: dict[str, Any]) -> list[str]:
    objects, folded = held["objects"], held["folded"]
    revisions = {key: int(each["metadata"]["resourceVersion"]) for key, each in wanted.items()}
    problems = [f"{key} is missing" for key in sorted(wanted.keys() - objects.keys())]
    problems += [f"{key} is there and should not be" for key in sorted(objects.keys() - wanted.keys())]
    problems += [
        f"{key} is {objects[key]}, not {wanted[key]}" for key in sorted(wanted.keys() & objects.keys()) if objects[key] != wanted[key]
    ]
    if folded != revisions:
        problems.append(f"the events made {folded}, not {revisions}")
    return problems


def _is_of(name: str, obj: dict[str, Any]) -> bool:
    match name:
        case "namespace":
            return bool(obj["metadata"]["namespace"] == NAMESPACE)
        case "label":
            return bool((obj["metadata"].get("labels") or {}).get(LABEL[0]) == LABEL[1])
        case _:
            return True


def _key(obj: dict[str, Any]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _object(entry: Entry) -> dict[str, Any]:
    obj: dict[str, Any] = json.loads(entry.value)
    obj["metadata"]["resourceVersion"] = str(entry.mod_revision)
    return obj
