"""The course of one run: each step returns its figures."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.apis.core.resources import NODES
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName
from apiserver.client.rest import Client
from benchmarks.scale import machines
from benchmarks.scale.cluster import GRACE, Cluster
from benchmarks.scale.machines import Board, spread
from benchmarks.scale.meter import Meter, Reading
from benchmarks.scale.nodes import RACK, Groups, in_parallel
from benchmarks.scale.report import STEPS

SETTLE_SECONDS: Final = 20.0
SETTLE_MOST_SECONDS: Final = 1800.0
PATIENCE_SECONDS: Final = 300.0
"""Without a change of a machine, after a loss was due to be seen."""
IDLE_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 1.0
TELL_SECONDS: Final = 30.0
DRAINED: Final = 200
RETRY_SECONDS: Final = 5.0
"""Between two evictions of a pod, as in kubectl drain."""
OUT_OF_SERVICE: Final = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}

Figures = dict[str, Any]


@dataclass
class Course:
    """One run, on a cluster with nodes and without machines."""

    cluster: Cluster
    client: Client
    groups: Groups
    count: int
    idle_seconds: float = IDLE_SECONDS
    chosen: Sequence[str] = STEPS
    figures: Figures = field(default_factory=dict)
    tell: Callable[[str], None] = print

    def __post_init__(self) -> None:
        self.meter = Meter(self.cluster)
        self.board = Board(self.client, PATIENCE_SECONDS + GRACE * self.cluster.renew)
        self.every = machines.names(self.count)
        self._failed_evictions = 0

    async def run(self, finished: Callable[[str], None]) -> None:
        """Run the ``chosen`` steps in order; call ``finished`` with each one's name after it."""
        steps: Sequence[Callable[[], Awaitable[Figures]]] = (
            self.start,
            self.idle,
            lambda: self.restart(signal.SIGTERM, "canary-1"),
            lambda: self.restart(signal.SIGKILL, "canary-2"),
            self.drain,
            self.unreachable,
            self.loss,
        )
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow())
            for name, step in zip(STEPS, steps, strict=True):
                if name not in self.chosen:
                    continue
                self.figures[name] = await step()
                finished(name)
            following.cancel()

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.board.run())
            tasks.create_task(self._tell())
            while True:
                self.cluster.keep_controller()
                await asyncio.sleep(LOOK_SECONDS)

    async def _tell(self) -> None:
        told = ""
        while True:
            await asyncio.sleep(TELL_SECONDS)
            now = ", ".join(f"{count:,} {phase or 'new'}" for phase, count in sorted(self.board.phases().items()))
            if now != told:
                self.tell(now)
            told = now

    @contextmanager
    def measured(self) -> Iterator[Figures]:
        """Add to the yielded figures what the block took."""
        figures: Figures = {}
        before, restarts = self.meter.read(), self.cluster.restarts
        yield figures
        figures.update(self._spent(before))
        figures["restarts"] = self.cluster.restarts - restarts

    def _spent(self, before: Reading) -> Figures:
        spent = self.meter.read().since(before)
        return {
            "seconds": round(spent.seconds, 1),
            "processor": spent.processor,
            "etcd_writes": spent.writes,
            "writes": spent.changed(),
            "objects": spent.objects(),
        }

    def all_running(self, count: int) -> Callable[[], bool]:
        """Return a function that returns whether exactly ``count`` machines run."""
        return lambda: self.board.phases()["Running"] == count

    async def start(self) -> Figures:
        """Create all machines; measure until all are ``Running``."""
        with self.measured() as figures:
            began = time.monotonic()
            await machines.create(self.client, self.every)
            figures["created"] = round(time.monotonic() - began, 1)
            await self.board.until(self.all_running(self.count), "all machines run")
        figures["memory"] = self.meter.memory()
        return figures

    async def idle(self) -> Figures:
        """Measure ``idle_seconds`` without changes."""
        await self._settle()
        with self.measured() as figures:
            await asyncio.sleep(self.idle_seconds)
        figures["memory"] = self.meter.memory()
        return figures

    async def _settle(self) -> None:
        """Wait until only Leases are written: the last statuses and Events are late. Raises TimeoutError."""
        async with asyncio.timeout(SETTLE_MOST_SECONDS):
            while True:
                before = self.meter.read()
                await asyncio.sleep(SETTLE_SECONDS)
                spent = self.meter.read().since(before)
                if not spent.objects() and not spent.writes["virt-etcd"]:
                    return

    async def restart(self, number: signal.Signals, canary: str) -> Figures:
        """End virt-controller by a signal, create ``canary``, start virt-controller; measure until that machine is ``Running``."""
        machine = NamespacedName(machines.namespace(0), canary)
        with self.measured() as figures:
            self.cluster.end("virt-controller", number)
            began = time.monotonic()
            await machines.create_one(self.client, machine)
            self.cluster.start_controller()
            at = await self.board.until(lambda: self.board.phases([machine])["Running"] == 1, f"{canary} runs")
        figures["recovered"] = round(at - began, 1)
        figures["memory"] = {"virt-controller": self.meter.memory()["virt-controller"]}
        return figures

    async def drain(self) -> Figures:
        """Evict the machines of enough nodes for ``DRAINED`` machines, at most half a hall; measure until all run elsewhere."""
        chosen: list[str] = []
        group = self.groups.drained
        for each in group[: len(group) // 2]:
            if len(self.board.on(chosen)) >= DRAINED:
                break
            chosen.append(each)
        moving = self.board.on(chosen)
        others = [each for members in self.groups.members.values() if members != group for each in members]
        await self._cordon([*chosen, *others])  # both ends of a simulated migration are in one process
        took: dict[NamespacedName, float] = {}
        with self.measured() as figures:
            began = time.monotonic()

            async def evict(machine: NamespacedName) -> None:
                await self._evict(machine, chosen)
                took[machine] = time.monotonic() - began

            await in_parallel(moving, evict, at_once=len(moving))
            await self.board.until(lambda: self.board.phases(moving)["Running"] == len(moving), "the guests run elsewhere")
            figures |= {"machines": len(moving), "nodes": len(chosen), "moved": spread(took.values()), "failed": self._failed_evictions}
        await self._cordon([*chosen, *others], cordoned=None)
        return figures

    async def _cordon(self, chosen: list[str], *, cordoned: bool | None = True) -> None:
        await in_parallel(chosen, lambda each: self.client.patch(NODES, each, {"spec": {"unschedulable": cordoned}}))

    async def _evict(self, machine: NamespacedName, chosen: list[str]) -> None:
        """Evict a machine's pod until the guest has left the nodes, as kubectl drain does."""
        while self.board.node(machine) in chosen:
            pod = self.board.pod(machine)
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": machine.namespace}}
            try:
                await self.client.request("POST", f"/api/v1/namespaces/{machine.namespace}/pods/{pod}/eviction", body=body)
            except (errors.TooManyRequests, errors.NotFound):
                await asyncio.sleep(RETRY_SECONDS)
            except errors.StatusError:
                self._failed_evictions += 1
                await asyncio.sleep(RETRY_SECONDS)

    async def unreachable(self) -> Figures:
        """Stop the rack's kubelets and virt-handlers until its machines are ``Unknown``; continue them; measure until all run."""
        lost = self.board.on(self.groups.rack)
        with self.measured() as figures:
            began = time.monotonic()
            self._signal_rack(signal.SIGSTOP)
            unknown = await self.board.until(lambda: self.board.phases(lost)["Unknown"] == len(lost), "the lost machines are Unknown")
            self._signal_rack(signal.SIGCONT)
            back = await self.board.until(lambda: self.board.phases(lost)["Running"] == len(lost), "the machines are back")
            figures |= {"machines": len(lost), "nodes": len(self.groups.rack)}
            figures |= {"unknown": round(unknown - began, 1), "back": round(back - unknown, 1)}
        return figures

    async def loss(self) -> Figures:
        """Stop the rack for good; once its machines are ``Unknown``, taint its nodes as switched off; measure until they run elsewhere."""
        lost = self.board.on(self.groups.rack)
        with self.measured() as figures:
            began = time.monotonic()
            self._signal_rack(signal.SIGSTOP)
            unknown = await self.board.until(lambda: self.board.phases(lost)["Unknown"] == len(lost), "the lost machines are Unknown")
            await in_parallel(self.groups.rack, self._fence)
            again = await self.board.until(self._elsewhere(lost), "the lost machines run elsewhere")
            figures |= {"machines": len(lost), "nodes": len(self.groups.rack)}
            figures |= {"unknown": round(unknown - began, 1), "elsewhere": round(again - unknown, 1)}
        figures["memory"] = self.meter.memory()
        return figures

    def _elsewhere(self, lost: list[NamespacedName]) -> Callable[[], bool]:
        rack = frozenset(self.groups.rack)
        return lambda: self.board.phases(lost)["Running"] == len(lost) and not any(self.board.node(each) in rack for each in lost)

    async def _fence(self, node: str) -> None:
        found = await self.client.get(NODES, node)
        taints = [*(found["spec"].get("taints") or ()), OUT_OF_SERVICE]
        await self.client.patch(NODES, node, {"spec": {"taints": taints}})

    def _signal_rack(self, number: signal.Signals) -> None:
        for name in (f"kubelets-{RACK}", f"handlers-{RACK}"):
            self.cluster.programs[name].process.send_signal(number)
