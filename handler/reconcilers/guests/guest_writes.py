"""Writes changed statuses of machines, at a limited rate, with the resourceVersion that they are based on.

A guest can change its state at any rate. Per machine, a burst of ``Limits.writes_burst`` writes is allowed, then one every
``write_seconds``. Changes of the phase, three per attempt, are written at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import NamespacedName, Object
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from controller.runtime.flowcontrol import TokenBucket
from handler.reconcilers.guests import ending_causes, guest_operations, guest_status
from handler.reconcilers.guests.guest_ports import Ports
from handler.reconcilers.guests.guest_status import End
from launcher.protocol import messages


class StatusWriter:
    """Writes statuses of machines, at a limited rate for each."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._agreed: dict[str, tuple[Object, Object]] = {}
        """By pod uid: the status the server stored at our last write, and the one we sent. Otherwise a server that normalizes a value would
        cause endless writes.
        """
        self._buckets: dict[NamespacedName, TokenBucket] = {}

    async def write(self, vm: Object, status: Object) -> bool:
        """Write the status if it differs, and the rate limit or a change of phase allows it; return whether it did.

        Raises StatusError, TransportError.
        """
        if status == vm.get("status"):
            return False
        bucket, now = self._bucket(vm), asyncio.get_running_loop().time()
        if bucket.delay(now) and status.get("phase") == phases.phase_of(vm):
            return False
        bucket.spend(now)
        written = await self._ports.api.update(VIRTUAL_MACHINES, {**vm, "status": status}, subresource="status")
        self._ports.machines.remember(written)
        self._agreed[_pod_uid(vm)] = (written.get("status") or {}, status)
        return True

    async def write_end(self, vm: Object, end: End, told: Sequence[messages.OperationStatus] = ()) -> None:
        """Write the end of the attempt and of its operations, and emit their Events."""
        status = guest_status.ended(vm, end, self._ports.clock.now(), told)
        await self.write(vm, status)
        ready = objects.condition(status.get("conditions"), conditions.READY) or {}  # of a suspended machine, with what helps
        self._ports.emit(vm, ending_causes.event_type(vm, end), end.reason, str(ready.get("message") or end.message))
        for event in guest_operations.events(vm, status):
            self._ports.emit(vm, *event)

    def is_written(self, vm: Object, status: Object) -> bool:
        """Return whether the status is stored, perhaps in the server's normalized form."""
        return status == vm.get("status") or self._agreed.get(_pod_uid(vm)) == (vm.get("status"), status)

    def delay(self, vm: Object) -> float:
        """Return in how many seconds the machine's status may be written; 0: now."""
        return self._bucket(vm).delay(asyncio.get_running_loop().time())

    def forget_machine(self, key: NamespacedName) -> None:
        """Drop the rate limit of a machine that is gone."""
        self._buckets.pop(key, None)

    def forget_pods(self, is_alive: Callable[[str], bool]) -> None:
        """Drop the last written statuses of pods that are gone."""
        self._agreed = {uid: agreed for uid, agreed in self._agreed.items() if is_alive(uid)}

    def _bucket(self, vm: Object) -> TokenBucket:
        key, limits = objects.key_of(vm), self._ports.limits
        if key not in self._buckets:
            now = asyncio.get_running_loop().time()
            self._buckets[key] = TokenBucket(limits.writes_burst, 1 / limits.write_seconds, now, debt=limits.writes_burst)
        return self._buckets[key]


def _pod_uid(vm: Object) -> str:
    return dig_vm(vm, "status", "podUID") or ""
