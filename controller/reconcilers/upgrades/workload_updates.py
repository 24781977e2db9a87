"""The loop that moves guests into pods of the current version after an upgrade, a few at a time: gather, plan, apply.

It reconciles all machines together. Evicted pods, refused machines and deleted Migrations are kept only in memory, so a new process first
waits for one interval.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta import errors
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import NamespacedName, Object, key_of, labels_of, name_of, namespace_of, uid_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import evictions
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.rest import Client
from controller.reconcilers.indexes import BY_AGE, OUTDATED, Informers, age_of_vm, claims_for
from controller.reconcilers.migrations import migration_bounds, migration_queue
from controller.reconcilers.pods import ownership
from controller.reconcilers.settings import FIELD_MANAGER, MigrationLimits, Settings
from controller.reconcilers.upgrades import workload_update_plan
from controller.reconcilers.upgrades.workload_update_memory import Memory
from controller.reconcilers.upgrades.workload_update_plan import Candidate, Observed
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller, Request, Result
from controller.runtime.recorder import Recorder

REFUSED_SECONDS: Final = 300.0
"""After a quota, a policy or a PodDisruptionBudget refused."""
MAX_REFUSAL: Final = 500
BY_UPDATE: Final = "update"
ALL: Final = Request("", "machines")
_AWAY: Final = (errors.Unauthorized, errors.ServiceUnavailable)
"""They affect all machines, so the loop retries. Any other error affects one machine."""

logger = logging.getLogger(__name__)


def update_of(migration: Object) -> list[str]:
    """Return the key in ``BY_UPDATE``: the label of the upgrade that made a Migration; none for an invalid Migration."""
    found = labels_of(migration).get(names.WORKLOAD_UPDATE_LABEL)
    return [str(found)] if found and not structure.of_migration(migration) else []


class WorkloadUpdates:
    """Reconciles all machines together."""

    def __init__(
        self, client: Client, recorder: Recorder, clock: Clock, settings: Settings, informers: Informers, limits: MigrationLimits
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        self._informers = informers
        self._limits = limits
        self._began: datetime | None = None
        self._evicted: dict[str, datetime] = {}
        self._refused: dict[NamespacedName, datetime] = {}
        self._memory = Memory(clock)

    def subscribe(self, controller: Controller) -> None:
        """Enqueue ``ALL`` when a machine's outdated condition changes, and remember Migrations."""

        def changed(old: Object | None, new: Object | None) -> None:
            if age_of_vm(old or {}) != age_of_vm(new or {}):
                controller.enqueue(ALL)

        self._informers.vms.subscribe(changed)
        self._informers.migrations.subscribe(self._memory.note)

    async def reconcile(self, request: Request) -> Result:
        """Start the migrations and evictions that are due, of all machines."""
        del request
        now = self._clock.now()
        self._began = self._began or now
        candidates = [] if self._settings.workload_update.strategy == "None" else list(self._candidates())
        if not candidates:
            return Result()
        self._forget(now)
        left = self._settings.workload_update.batch_seconds - (now - self._began).total_seconds()
        if left > 0:
            return Result(left)
        plan = workload_update_plan.plan(self._observed(candidates, now))
        for vm, migration in plan.migrations:
            await self._create_migration(vm, migration)
        for vm, pod in plan.evictions:
            await self._evict(vm, pod)
        return Result(self._settings.times.updates)

    def _candidates(self) -> Iterator[Candidate]:
        for vm in self._informers.vms.by_index(BY_AGE, OUTDATED):
            if not structure.of_virtual_machine(vm):  # an invalid one does not stop the others
                yield Candidate(vm, self._pod(vm), claims_for(vm, self._informers.claims))

    def _pod(self, vm: Object) -> Object | None:
        reference = ownership.of_status(vm)
        found = self._informers.pods.get(namespace_of(vm), reference.name) if reference is not None else None
        return found if found is not None and reference is not None and ownership.is_meant(found, reference, vm) else None

    def _observed(self, candidates: list[Candidate], now: datetime) -> Observed:
        migrations, vms = self._informers.migrations, self._informers.vms
        unfinished = tuple(self._informers.unfinished_migrations())
        ours = tuple(migrations.by_index(BY_UPDATE, workload_update_plan.mark(self._settings)))
        moved = {evictions.machine_of(each) for each in unfinished if not migration_bounds.is_overdue(each, now)}
        return Observed(
            candidates=candidates,
            migrations=self._memory.with_forgotten({key_of(each): each for each in (*unfinished, *ours)}.values()),
            nodes={
                key: str(dig_vm(vm, "status", "nodeName") or "")
                for key in moved
                if (vm := vms.get(*key)) is not None and not migration_queue.is_lost(vm)
            },
            now=now,
            settings=self._settings,
            limits=self._limits,
            evicted=dict(self._evicted),
            refused=frozenset(self._refused),
        )

    async def _create_migration(self, vm: Object, migration: Object) -> None:
        try:
            made = await self._client.create(MIGRATIONS, migration, namespace_of(vm), field_manager=FIELD_MANAGER)
        except errors.Conflict:
            return
        except _AWAY:
            raise
        except errors.StatusError as error:  # a quota, a policy, a failing webhook, a namespace being deleted
            self._record_refusal(vm, "the API server rejects a Migration of the guest", error)
            return
        self._informers.migrations.remember(made)
        logger.info("created a Migration to move a guest into a pod of this version", extra={"migration": str(key_of(made))})

    async def _evict(self, vm: Object, pod: Object) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod)},
            "deleteOptions": {"preconditions": {"uid": uid_of(pod)}},
        }
        try:
            answer = await self._client.request("POST", PODS.path(namespace_of(pod), name_of(pod), "eviction"), body=eviction)
        except (errors.NotFound, errors.Conflict):
            return
        except _AWAY:
            raise
        except errors.StatusError as error:  # a PodDisruptionBudget, a policy, a webhook
            self._record_refusal(vm, f"pod {name_of(pod)} cannot be evicted", error)
            return
        if answer.get("status") == "Failure":  # with code 201, if two PodDisruptionBudgets select the pod
            self._record_refusal(vm, f"pod {name_of(pod)} cannot be evicted", answer.get("message") or "no reason given")
            return
        self._evicted[uid_of(pod)] = self._clock.now()
        logger.info("evicted a pod of another version", extra={"namespace": namespace_of(pod), "pod": name_of(pod)})

    def _record_refusal(self, vm: Object, what: str, error: errors.StatusError | str) -> None:
        self._refused[key_of(vm)] = self._clock.now()
        message = f"virt-launcher is outdated, but {what}: {one_line(str(error), MAX_REFUSAL)}"
        self._recorder.event(vm, VIRTUAL_MACHINES, "Warning", "FailedWorkloadUpdate", message)

    def _forget(self, now: datetime) -> None:
        # Longer than an interval, in which an evicted pod is left alone.
        lasting = timedelta(seconds=max(REFUSED_SECONDS, self._settings.workload_update.batch_seconds))
        self._evicted = {uid: at for uid, at in self._evicted.items() if now - at < lasting}
        self._refused = {key: at for key, at in self._refused.items() if now - at < timedelta(seconds=REFUSED_SECONDS)}
