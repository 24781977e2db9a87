"""Watches the Leases of guardians, and seals those that no longer change (:mod:`controller.sealing.seal_plan`)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from apiserver.apis.core.resources import LEASES, NODES
from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import Object, annotations_of, resource_version_of
from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Promise, Times
from apiserver.apis.virt.places import names, node_states
from apiserver.client.rest import Client, TransportError
from controller.runtime.clock import Clock
from controller.runtime.recorder import Recorder
from controller.sealing import seal_plan
from controller.sealing.seal_plan import Refuse, Seal, Watch

logger = logging.getLogger(__name__)

FORGET_SECONDS: Final = 600.0
"""A replica removes the beats of another one after so long without a new one."""
REFUSAL_SECONDS: Final = 60.0
"""Between Events about the same refusal."""
PARALLEL: Final = 16
"""Decisions at a time."""
FIELD_MANAGER: Final = "virt-controller"


class Sealing:
    """Seals guardians' Leases, by what one replica sees. ``elapsed`` is CLOCK_BOOTTIME; ``identity`` is unique per run of the process.

    ``may_seal``: no hypervisor can pause this replica, with its clocks, or the administrator accepts that.
    """

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        namespace: str,
        identity: str,
        elapsed: Callable[[], float],
        protocol: Times = guards.DEFAULT,
        *,
        may_seal: bool = True,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._namespace = namespace
        self._identity = identity
        self._elapsed = elapsed
        self._times = protocol
        self._may_seal = may_seal
        self._watches: dict[str, Watch] = {}
        self._sent: dict[str, float] = {}
        """When the write of each beat began."""
        self._number = 0
        self._others: dict[str, tuple[str, float]] = {}
        """The newest beat of other replicas, and when it was first seen."""
        self._refused: dict[str, tuple[str, float]] = {}
        self._gone: dict[str, str] = {}
        """By name, the version of the Lease of a deleted Node."""

    async def run(self) -> None:
        """Write beats, and read and seal Leases, both periodically, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._recorder.run())
            tasks.create_task(self._repeat(self.beat, self._times.beat))
            tasks.create_task(self._repeat(self.look, self._times.read))

    async def _repeat(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            began = self._elapsed()
            try:
                await work()
            except (errors.StatusError, TransportError, TimeoutError) as error:
                logger.warning("a request to kube-apiserver about guardians failed; retrying", extra={"error": str(error) or "timeout"})
            await asyncio.sleep(max(0.0, began + seconds - self._elapsed()))

    async def beat(self) -> None:
        """Write this replica's next beat, a number that guardians echo. Raises StatusError, TransportError, TimeoutError."""
        self._number += 1
        beat, now = str(self._number), self._elapsed()
        self._sent = {each: at for each, at in self._sent.items() if now - at <= 2 * self._times.fresh} | {beat: now}
        written: Object = {guards.BEAT_PREFIX + self._identity: beat, **dict.fromkeys(self._stopped_replicas(now))}
        async with asyncio.timeout(self._times.read_limit):
            try:
                patch = {"metadata": {"annotations": written}}
                found = await self._client.patch(LEASES, guards.BEATS_LEASE, patch, self._namespace, field_manager=FIELD_MANAGER)
            except errors.NotFound:
                lease = {"metadata": {"name": guards.BEATS_LEASE, "annotations": {guards.BEAT_PREFIX + self._identity: beat}}}
                found = await self._client.create(LEASES, lease, self._namespace)
        self._note_others(annotations_of(found))

    def _stopped_replicas(self, now: float) -> tuple[str, ...]:
        return tuple(key for key, (_, since) in self._others.items() if now - since > FORGET_SECONDS)

    def _note_others(self, annotations: Mapping[str, str]) -> None:
        now, others = self._elapsed(), {}
        for key, beat in annotations.items():
            if key.startswith(guards.BEAT_PREFIX) and key != guards.BEAT_PREFIX + self._identity:
                known = self._others.get(key)
                others[key] = known if known is not None and known[0] == beat else (beat, now)
        self._others = others

    async def look(self) -> None:
        """Read all Leases of guardians, and seal those that may be sealed, unless their node's kubelet reports. Raises as :meth:`beat`."""
        async with asyncio.timeout(self._times.read_limit):
            selector = f"{names.COMPONENT_LABEL}={names.GUARDIAN}"
            leases = (await self._client.list(LEASES, self._namespace, label_selector=selector))["items"]
        now = self._elapsed()
        promises = {guards.guardian_of(each): promise for each in leases if (promise := guards.promise_of(each)) is not None}
        fresh = seal_plan.fresh_voters(promises, self._sent, self._identity, now, self._times)
        self._watches = {
            name: seal_plan.observe(
                self._watches.get(name), resource_version_of(each), now, self._times, fresh=guards.majority(fresh, promises[name].voters)
            )
            for each in leases
            if (name := guards.guardian_of(each)) in promises
        }
        present = {guards.guardian_of(each): resource_version_of(each) for each in leases}
        self._gone = {name: version for name, version in self._gone.items() if present.get(name) == version}
        slots = asyncio.Semaphore(PARALLEL)
        async with asyncio.TaskGroup() as tasks:
            for each in leases:
                name = guards.guardian_of(each)
                if name in promises and name not in self._gone and not guards.is_sealed(each):
                    tasks.create_task(self._decide_one(slots, each, name, promises[name], fresh))
        if self._elapsed() - now > self._times.read:
            logger.warning("reading the guardians' Leases took too long", extra={"seconds": round(self._elapsed() - now, 1)})

    async def _decide_one(self, slots: asyncio.Semaphore, lease: Object, name: str, promise: Promise, fresh: frozenset[str]) -> None:
        async with slots:
            try:
                await self._decide(lease, name, promise, fresh)
            except (errors.StatusError, TransportError, TimeoutError) as error:
                logger.warning("cannot decide about a Lease", extra={"node": name, "error": str(error) or "timeout"})

    async def _decide(self, lease: Object, name: str, promise: Promise, fresh: frozenset[str]) -> None:
        decision = seal_plan.plan(self._watches[name], promise, fresh, self._times, allowed=self._may_seal)
        if not isinstance(decision, Seal | Refuse):
            self._refused.pop(name, None)
            return
        async with asyncio.timeout(self._times.read_limit):
            found = await self._client.list(NODES, field_selector=f"metadata.name={name}")
        node = next(iter(found["items"]), None)
        if node is None:  # until the Lease changes: a person deleted it
            self._gone[name] = resource_version_of(lease)
            return
        if not node_states.kubelet_is_unreachable(node):
            return
        if isinstance(decision, Refuse):
            if not node_states.is_fenced(node):
                self._refuse(node, name, decision)
            return
        at = times.to_rfc3339(self._clock.now())
        try:
            async with asyncio.timeout(self._times.read_limit):
                await self._client.update(LEASES, guards.sealed(lease, at), field_manager=FIELD_MANAGER)
        except (errors.Conflict, errors.NotFound):
            return  # the guardian renewed it, another replica sealed it, or a person deleted it
        watch, voters = self._watches[name], sorted(fresh & set(promise.voters))
        unchanged = round(watch.read_at - watch.unchanged_since, 1)
        logger.warning("sealed a Lease", extra={"node": name, "unchanged": unchanged, "fresh": voters, "pods": len(promise.pods)})
        self._recorder.event(node, NODES, "Warning", "NodeSealed", _words(name, unchanged, voters))

    def _refuse(self, node: Object, name: str, refusal: Refuse) -> None:
        now, (before, at) = self._elapsed(), self._refused.get(name, ("", float("-inf")))
        if before == refusal.message and now - at < REFUSAL_SECONDS:
            return
        self._refused[name] = (refusal.message, now)
        told = f"the guardian of node {name} is unreachable, but {refusal.message}, so machines of the node do not restart elsewhere"
        remedy = f"If you are certain that the node is off: kubectl virt fence {name} --off"
        agent = "With a fence agent, they restart. " if refusal.reason == seal_plan.VIRTUAL_NODE else ""
        self._recorder.event(node, NODES, "Warning", refusal.reason, f"{told}. {agent}{remedy}")


def _words(name: str, unchanged: float, voters: list[str]) -> str:
    return (
        f"the guardian of node {name} has not renewed its Lease for {unchanged:.0f} s, and {', '.join(voters)} report: the node's guests "
        "have ended, and restart elsewhere"
    )


def identity_of(text: str) -> str:
    """Return a replica's identity as part of an annotation's key."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
