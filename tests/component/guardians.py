"""Guardians and a replica of virt-controller over one API server, with a clock that the test moves, and connections that it cuts."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.apis.meta import errors
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Promise
from apiserver.apis.virt.places import names
from apiserver.client.rest import Client, TransportError
from controller.runtime.clock import SystemClock
from controller.runtime.recorder import Recorder
from controller.sealing.sealing import Sealing
from handler.guardian.guarding import Guardian, Settings
from handler.guardian.killer import Killer
from handler.guardian.processes import Process
from tests.fakes.kubeapi import FakeAPI

NAMESPACE: Final = "kubevirt-node-lease"
LEASES: Final = "/apis/coordination.k8s.io/v1/leases"
NODES: Final = "/api/v1/nodes"
VOTERS: Final = ("a", "b", "c")
POD: Final = "00000000-0000-4000-8000-00000000000a"


@dataclass
class Link:
    client: Client
    now: Callable[[], float]
    up: bool = True
    refuses: bool = False
    """An admission webhook refuses writes."""
    lands_after: float | None = None
    """Writes get no answer, and are carried out so many seconds later."""
    late: list[tuple[float, Callable[[], Coroutine[Any, Any, Object]]]] = field(default_factory=list)

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        self._check()
        return await self.client.get(resource, name, namespace)

    async def create(self, resource: Resource, obj: Object, namespace: str | None = None) -> Object:
        return await self._write(lambda: self.client.create(resource, obj, namespace))

    async def update(self, resource: Resource, obj: Object) -> Object:
        return await self._write(lambda: self.client.update(resource, obj))

    async def _write(self, send: Callable[[], Coroutine[Any, Any, Object]]) -> Object:
        if self.lands_after is not None:
            self.late.append((self.now() + self.lands_after, send))
            raise TransportError("no answer")
        self._check()
        if self.refuses:
            raise errors.Forbidden("a webhook refuses Leases")
        return await send()

    def _check(self) -> None:
        if not self.up:
            raise TransportError("cut off")

    async def deliver(self) -> None:
        due = [each for each in self.late if each[0] <= self.now()]
        self.late = [each for each in self.late if each[0] > self.now()]
        for _, send in due:
            with contextlib.suppress(StatusError):
                await send()


@dataclass
class Memory:
    until: float | None = None

    def read(self) -> float | None:
        return self.until

    def write(self, until: float | None) -> None:
        self.until = until


class Side:
    def __init__(self, world: World, name: str, client: Client, boot: str = "boot-1") -> None:
        self.world = world
        self.name = name
        self.boot = boot
        self.link = Link(client, lambda: world.now)
        self.file = Memory()
        self.pods: set[str] = set()
        self.killed_at: float | None = None
        self.due = self.ask_due = 0.0
        self.unkillable = False
        self.start()

    def start(self, *, promises: bool = True) -> None:
        self.killer = Killer(lambda: self.world.now, self._end)
        settings = Settings(self.name, NAMESPACE, VOTERS, self.boot, promises=promises)
        self.guardian = Guardian(
            self.link, settings, self.killer, self.file, lambda: self.pods, SystemClock(), lambda: self.world.now, self._ask
        )
        self.runs = True

    def _end(self, pods: Collection[str] | None) -> tuple[Process, ...]:
        found = tuple(Process(1, each) for each in sorted(self.pods) if pods is None or each in pods)
        if found and not self.unkillable:
            self.pods -= {each.pod_uid for each in found}
            self.killed_at = self.world.now
        return found

    async def _ask(self, voters: Mapping[str, Promise]) -> frozenset[str]:
        others = (self.world.sides[name] for name in voters)
        return frozenset(
            each.name
            for each in others
            if each.runs and frozenset({each.name, self.name}) not in self.world.apart and each.guardian.is_cut_off()
        )

    async def tick(self) -> None:
        await self.link.deliver()
        if not self.runs:
            return
        if self.world.now >= self.due:
            self.due = self.world.now + max(await self.guardian.step(), 0.01)
        if self.world.now >= self.ask_due:
            self.ask_due = self.world.now + await self.guardian.ask()
        self.killer.look()

    @property
    def lease(self) -> Object:
        return self.world.api.get(LEASES, NAMESPACE, names.guardian_lease(self.name))

    @property
    def is_sealed(self) -> bool:
        return guards.is_sealed(self.lease)


class World:
    """Three guardians that vote, and virt-controller."""

    def __init__(self, api: FakeAPI, client: Client) -> None:
        self.api = api
        self.now = 1000.0
        self.apart: set[frozenset[str]] = set()
        self.sides = {name: Side(self, name, client) for name in VOTERS}
        self.controller_up = True
        self.recorder = Recorder(client, "test", SystemClock())
        self.sealing = Sealing(client, self.recorder, SystemClock(), NAMESPACE, "replica", lambda: self.now)
        self.sealed_at: float | None = None
        self.ticks = 0

    async def pass_time(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let up to ``seconds`` pass, a second at a time, until ``until``; fail if a guardian is sealed while its guest runs."""
        for _ in range(int(seconds)):
            if until():
                return
            self.now += 1.0
            self.ticks += 1
            for each in self.sides.values():
                await each.tick()
            if not self.controller_up:
                continue
            if self.ticks % 2 == 0:
                await self.sealing.beat()
            if self.ticks % 3 == 0:
                await self.sealing.look()
            self.check()

    def check(self) -> None:
        for each in self.sides.values():
            key = (LEASES, NAMESPACE, names.guardian_lease(each.name))
            if key in self.api.objects and each.is_sealed:
                self.sealed_at = self.now if self.sealed_at is None else self.sealed_at
                promise = guards.promise_of(each.lease)
                assert promise is not None
                assert not each.pods & set(promise.pods), f"{each.name} was sealed at {self.now}, and its guest runs"

    async def shake(self, rng: random.Random) -> None:
        for each in self.sides.values():
            each.link.up = rng.random() < 0.5
            each.link.refuses = rng.random() < 0.2
            each.link.lands_after = rng.choice((None, None, 1.0, 12.0, 45.0))
        pairs = [frozenset(pair) for pair in (("a", "b"), ("a", "c"), ("b", "c"))]
        self.apart = {pair for pair in pairs if rng.random() < 0.3}
        self.controller_up = rng.random() < 0.9
