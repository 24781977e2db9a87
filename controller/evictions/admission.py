"""Admission of evictions of launcher pods and etcd pods, as kube-apiserver's webhook: gather, plan, apply.

If two replicas decide to move a guest, only one can create the Migration. If a read fails, the eviction is refused with 429 so that the
client retries.

A tenant can send any number of requests, so they do not queue, and share reads (``looks``). No await separates the plan from the record of
its Migration, so concurrent evictions on one node count each other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from apiserver.apis.core.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from apiserver.apis.meta import errors, names
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import NamespacedName, Object, key_of, labels_of, name_of, namespace_of
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt import structure
from apiserver.apis.virt.lifecycle import evictions, phases
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.informer import Informer
from apiserver.client.rest import Client, TransportError
from controller.evictions import etcd, eviction_plan
from controller.evictions.eviction_plan import Decision, Limits, Observed
from controller.evictions.looks import Kept, Look, Shared
from controller.evictions.outcomes import NOTHING, Outcomes
from controller.evictions.places import CLUSTER
from controller.evictions.waiting import Waiting
from controller.reconcilers import applying, disk_claims
from controller.reconcilers.migrations import ended_drains
from controller.reconcilers.pods import ownership, pod_state
from controller.reconcilers.settings import FIELD_MANAGER
from controller.runtime.clock import Clock

logger = logging.getLogger(__name__)

SECONDS: Final = 8.0
"""Time limit for an answer; shorter than the webhook's ``timeoutSeconds`` in the chart."""
MAX_REFUSAL: Final = 500
BY_CONCERN: Final = "concern"
"""Index by machine, or by :data:`ALL` for Migrations that affect every eviction."""
ALL: Final = "all"


def concern_of(migration: Object) -> list[NamespacedName | str]:
    """Return the keys of a Migration in ``BY_CONCERN``: ``ALL`` if unfinished or of a drain, else its machine.

    An invalid one is not indexed, because an error here would refuse every eviction.
    """
    if structure.of_migration(migration):
        return []
    is_everybodys = phases.is_unfinished(migration) or ended_drains.is_of_drain(migration)
    return [ALL if is_everybodys else evictions.machine_of(migration)]


class Evictions:
    """Answers evictions of pods. A guest that must migrate first gets a Migration, and its pod is refused until the guest has moved."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        limits: Limits,
        migrations: Informer,
        *,
        namespace: str = "",
        seconds: float = SECONDS,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """The caller runs ``migrations``, with index ``BY_CONCERN``. ``namespace`` has etcd's pods; ``seconds`` limits an answer's time."""
        self._client = client
        self._clock = clock
        self._limits = limits
        self._migrations = migrations
        self._namespace = namespace
        self._seconds = seconds
        self._being_made: dict[str, Object] = {}
        self._looks: Shared[NamespacedName, Look] = Shared()
        """By pod."""
        self._nodes: Shared[str, Object | None] = Shared()
        self._kept = Kept(elapsed)
        self._outcomes = Outcomes(clock)
        self._waiting = Waiting()
        migrations.subscribe(self._outcomes.note)

    async def admit(self, namespace: str, name: str, *, dry_run: bool, peer: str = "") -> Decision:
        """Return the decision about this pod's eviction, after the writes that it needs.

        ``dry_run``: writes nothing, and allows what would only have to wait (:func:`eviction_plan.rehearsed`). Refuses if a request fails
        or takes too long. ``peer`` is the client's IP address, for the log.
        """
        try:
            async with asyncio.timeout(self._seconds):
                if namespace == self._namespace and name.startswith(etcd.PREFIX):
                    of_etcd = etcd.plan(await self._get(PODS, namespace, name))
                    return eviction_plan.rehearsed(of_etcd) if dry_run else of_etcd
                pod = NamespacedName(namespace, name)
                if not dry_run and (still := self._still_waits(pod)) is not None:
                    return still
                look = await self._looks.get(pod, lambda: self._read(pod))
                seen = self._observed(look)
                decision = eviction_plan.plan(seen)
                if dry_run:
                    decision = eviction_plan.rehearsed(decision)
                if decision.only_waits:
                    self._kept.keep(pod, look)
                return await self._apply(seen, decision, namespace, peer)
        except (errors.StatusError, TransportError, TimeoutError) as error:
            logger.warning(
                ("cannot answer an eviction review"),
                extra={"namespace": namespace, "pod": name, "error": str(error) or "no answer in time"},
            )
            return Decision(allowed=False, message=evictions.not_known(name))

    def _still_waits(self, pod: NamespacedName) -> Decision | None:
        """Return a refusal if, by the pod's stored Look and present Migrations, its eviction must still wait; else None: read again."""
        if (look := self._kept.get(pod)) is None:
            return None
        seen = self._observed(look)
        decision = eviction_plan.plan(seen)
        if not decision.only_waits:
            return None
        self._note(decision, pod.namespace, seen)
        return decision

    def _observed(self, look: Look) -> Observed:
        now = self._clock.now()
        return Observed(
            pod=look.pod,
            vm=look.vm,
            node=look.node,
            migrations=(*self._concerning(look.vm), *self._being_made.values()),
            claims=look.claims,
            now=now,
            limits=self._limits,
            history=NOTHING if look.vm is None else self._outcomes.of(look.vm),
            waiting=self._waiting.at((pod_state.node_of(look.pod), CLUSTER), now),
        )

    async def _read(self, name: NamespacedName) -> Look:
        pod = await self._get(PODS, *name)
        owner = ownership.owner_of(pod) if pod is not None else None
        vm = await self._get(VIRTUAL_MACHINES, name.namespace, str(owner.get("name") or "")) if owner is not None else None
        if vm is None:
            return Look(pod)
        claims, node = await self._around(vm, pod_state.node_of(pod))
        await self._migrations.synced.wait()
        return Look(pod, vm, claims, node)

    def _concerning(self, vm: Object | None) -> Iterator[Object]:
        for concern in (ALL, *(() if vm is None else (key_of(vm),))):
            yield from self._migrations.by_index(BY_CONCERN, concern)

    async def _around(self, vm: Object, node: str) -> tuple[Mapping[str, Object | None], Object | None]:
        try:
            async with asyncio.TaskGroup() as tasks:
                wanted = disk_claims.claims_of(vm)
                claims = {each: tasks.create_task(self._one(PERSISTENT_VOLUME_CLAIMS, namespace_of(vm), each)) for each in wanted}
                on = tasks.create_task(self._nodes.get(node, lambda: self._one(NODES, "", node)))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {each: task.result() for each, task in claims.items()}, on.result()

    async def _get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        if names.subdomain_errors(name):  # a pod can have an owner with an invalid name of any length
            return None
        try:
            return await self._client.get(resource, name, namespace)
        except errors.NotFound:
            return None

    async def _one(self, resource: Resource, namespace: str, name: str) -> Object | None:
        page = await self._client.page(resource, namespace, field_selector=f"metadata.name={name}", limit=1) if name else ()
        return page[0] if page else None

    async def _apply(self, seen: Observed, decision: Decision, namespace: str, peer: str) -> Decision:
        if decision.status is not None and seen.vm is not None:
            return await self._write_status(seen.vm, decision, decision.status)
        self._note(decision, namespace, seen)
        return decision if decision.migration is None else await self._create_migration(decision, decision.migration, peer)

    def _note(self, decision: Decision, namespace: str, seen: Observed) -> None:
        if decision.waits_at is not None:
            self._waiting.note(decision.waits_at, namespace, seen.now)

    async def _write_status(self, vm: Object, decision: Decision, status: Object) -> Decision:
        """Write ``status`` to the machine. Return ``decision``, or a refusal if the machine has changed or is gone."""
        name, patch = name_of(vm), applying.status_patch(vm, status)
        try:
            await self._client.patch(VIRTUAL_MACHINES, name, patch, namespace_of(vm), subresource="status", field_manager=FIELD_MANAGER)
        except (errors.Conflict, errors.NotFound):
            return Decision(allowed=False, message=f"virtual machine {name} was changed at the same time; retry the eviction")
        return decision

    async def _create_migration(self, decision: Decision, migration: Object, peer: str) -> Decision:
        namespace, pod_uid = namespace_of(migration), labels_of(migration)[evictions.POD_LABEL]
        self._being_made[pod_uid] = migration
        try:
            made = await self._client.create(MIGRATIONS, migration, namespace, field_manager=FIELD_MANAGER)
            self._migrations.remember(made)
        except errors.Conflict:
            return decision
        except errors.StatusError as error:
            machine, why = evictions.machine_of(migration).name, one_line(str(error), MAX_REFUSAL)
            logger.warning("cannot create a Migration for an eviction", extra={"namespace": namespace, "machine": machine, "error": why})
            return Decision(
                allowed=False, message=f"virtual machine {machine} cannot be migrated because the API server rejected its Migration: {why}"
            )
        finally:
            self._being_made.pop(pod_uid, None)
        logger.info("created a Migration because the pod of a guest is evicted", extra={"migration": str(key_of(made)), "peer": peer})
        return decision
