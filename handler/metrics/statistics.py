"""Reads the statistics of this node's guests when a metrics page is requested."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, name_of, namespace_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import phases
from apiserver.metrics.exposition import heading
from handler.metrics import guests
from handler.metrics.guests import Guest
from handler.pods.reads import Reads
from launcher.protocol import statistics

MISSING = "kubevirt_guest_statistics_missing"


class GuestStatistics:
    """Makes the metrics page's part about the node's guests."""

    def __init__(self, node: str, machines: Callable[[], Iterable[Object]], reads: Reads) -> None:
        """``machines`` returns the node's; ``reads`` limits each read's time."""
        self._node = node
        self._machines = machines
        self._reads = reads

    async def page(self) -> bytes:
        """Return the metrics of all guests, in Prometheus' text format; guests without an answer are only counted."""
        with_guest = [each for each in self._machines() if phases.phase_of(each) in phases.WITH_GUEST]
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(self._ask(each)) for each in with_guest]
        found = [guest for each in asked if (guest := each.result()) is not None]
        lines = [
            *guests.lines(self._node, found),
            *heading(MISSING, "gauge", "Guests of this node without statistics in this answer."),
            f"{MISSING} {len(with_guest) - len(found)}",
        ]
        return "".join(f"{line}\n" for line in lines).encode()

    async def _ask(self, vm: Object) -> Guest | None:
        try:
            found = statistics.decoded(await self._reads.read(str(dig_vm(vm, "status", "podUID") or ""), statistics.NAME))
        except (errors.StatusError, ValueError):
            return None
        devices = dig_vm(vm, "status", "devices") or ()
        return Guest(namespace_of(vm), name_of(vm), found, {each["target"]: each["name"] for each in devices if each.get("target")})
