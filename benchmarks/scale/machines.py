"""The machines of a run: created through kube-apiserver, and followed by a watch."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from apiserver.apis.core.resources import NAMESPACES
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName, Object, dig, key_of
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.client.informer import Informer
from apiserver.client.rest import Client, TransportError
from benchmarks.scale.nodes import in_parallel
from tests.cluster.manifests import tiny_vm

NAMESPACE_SIZE: Final = 1_000
LOOK_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 1.0
_TEMPORARY: Final = (
    errors.TooManyRequests,
    errors.InternalError,
    errors.ServiceUnavailable,
    errors.ServerTimeout,
    errors.Timeout,
    TransportError,
)


def namespace(number: int) -> str:
    return f"scale-{number // NAMESPACE_SIZE}"


def names(count: int) -> tuple[NamespacedName, ...]:
    return tuple(NamespacedName(namespace(number), f"vm-{number:05}") for number in range(count))


async def create(client: Client, machines: Collection[NamespacedName]) -> None:
    for each in dict.fromkeys(each.namespace for each in machines):
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}})
    await in_parallel(machines, lambda each: create_one(client, each))


async def create_one(client: Client, machine: NamespacedName) -> None:
    """Create a machine; repeat that after temporary errors, because an overloaded server may refuse it."""
    while True:
        try:
            await client.create(VIRTUAL_MACHINES, tiny_vm(machine.name), machine.namespace)
        except errors.AlreadyExists:
            return
        except _TEMPORARY:
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


class Board:
    """The machines' phases and nodes, and when they last changed."""

    def __init__(self, client: Client, patience: float) -> None:
        """``patience``: seconds without a change of a machine, after which :meth:`until` gives up."""
        self._patience = patience
        self._informer = Informer(client, VIRTUAL_MACHINES, trim=trimmed)
        self._informer.subscribe(self._changed)
        self._news = asyncio.Event()
        self.running_at: dict[NamespacedName, float] = {}

    async def run(self) -> None:
        """Follow the machines until cancelled."""
        await self._informer.run()

    def phases(self, among: Iterable[NamespacedName] | None = None) -> Counter[str]:
        """Return the number of machines in each phase, by default of all."""
        found = self._informer.list() if among is None else [self._of(each) for each in among]
        return Counter(phase_of(each) for each in found)

    def on(self, nodes: Collection[str]) -> list[NamespacedName]:
        """Return the machines of these nodes."""
        return [key_of(each) for each in self._informer.list() if dig(each, "status", "nodeName") in nodes]

    def node(self, machine: NamespacedName) -> str:
        """Return a machine's node, or ""."""
        return str(dig(self._of(machine), "status", "nodeName") or "")

    def pod(self, machine: NamespacedName) -> str:
        """Return the name of a machine's pod, or ""."""
        return str(dig(self._of(machine), "status", "podName") or "")

    async def until(self, is_true: Callable[[], bool], what: str) -> float:
        """Wait until ``is_true``; return the monotonic time. TimeoutError if no machine changes for too long."""
        while not is_true():
            self._news.clear()
            try:
                async with asyncio.timeout(self._patience):
                    await self._news.wait()
            except TimeoutError:
                raise TimeoutError(f"waited until {what}: {dict(self.phases())}") from None
            await asyncio.sleep(LOOK_SECONDS)
        return time.monotonic()

    def _of(self, machine: NamespacedName) -> Object:
        return self._informer.get(*machine) or {}

    def _changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None and phase_of(new) == "Running" != phase_of(old or {}):
            self.running_at[key_of(new)] = time.monotonic()
        self._news.set()


def phase_of(vm: Object) -> str:
    return str(dig(vm, "status", "phase") or "")


def trimmed(vm: Object) -> Object:
    metadata, status = vm["metadata"], vm.get("status") or {}
    return {
        "metadata": {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")},
        "status": {key: status[key] for key in ("phase", "nodeName", "podName") if key in status},
    }


def spread(seconds: Iterable[float]) -> dict[str, Any]:
    found = sorted(seconds)
    return {"p50": round(found[len(found) // 2], 1), "p95": round(found[len(found) * 95 // 100], 1), "most": round(found[-1], 1)}
