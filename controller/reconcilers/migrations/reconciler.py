"""The loop for Migrations: gather, plan, apply."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Final

from apiserver.apis.core.resources import NAMESPACES, NODES, PODS
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName, Object, is_deleting, key_of, labels_of, name_of, namespace_of, uid_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import evictions, migration_attempts, migration_policies, phases
from apiserver.apis.virt.places import node_states
from apiserver.apis.virt.places.resources import MIGRATION_POLICIES, MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.rest import Client
from controller.reconcilers.actions import Action
from controller.reconcilers.applying import REFUSED_SECONDS, Applier, PodRefused, sooner
from controller.reconcilers.indexes import Informers, claims_for
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.migrations import ended_drains, migration_history
from controller.reconcilers.migrations import migration_plan as planning
from controller.reconcilers.migrations.migration_queue import Turn, waits
from controller.reconcilers.migrations.migration_turns import MigrationTurns
from controller.reconcilers.nodes.node_reports import NodeReports, incompatible_nodes
from controller.reconcilers.pods import evidence, kubelet_events, liveness, networks, ownership, pod_state, sandboxes
from controller.reconcilers.pods.absences import Absences
from controller.reconcilers.pods.evidence import Timed
from controller.reconcilers.pods.kubelet_events import KubeletEvents
from controller.reconcilers.pods.liveness import Absent
from controller.reconcilers.pods.ownership import Reference
from controller.reconcilers.settings import MigrationLimits, Settings
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller, Request, Result
from controller.runtime.recorder import Recorder

REQUEUE_SECONDS: Final = 0.05
"""For a Migration whose turn came while it was observed."""

logger = logging.getLogger(__name__)


def _has_unwatched(seen: planning.Observed) -> bool:
    sides = (pod for pod in (seen.source, seen.target) if pod is not None and liveness.may_run(pod, seen.evidence))
    return phases.is_unfinished(seen.migration) and any(ownership.is_unwatched(pod, seen.vm) for pod in sides)


class Migrations:
    """The reconciler of ``migrations``."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        settings: Settings,
        informers: Informers,
        reports: NodeReports,
        *,
        targets: Absences,
        limits: MigrationLimits,
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._informers = informers
        self._reports = reports
        self._targets = targets
        self._limits = limits
        self._turns = MigrationTurns(informers, self._limits, clock)
        self._recorder = recorder
        self._applier = Applier(client, recorder, MIGRATIONS, informers.migrations, informers.pods)

    def subscribe(self, controller: Controller) -> None:
        """Enqueue a Migration when it, its machine, or that machine's pods change, and when its drain ends."""

        def migration_changed(old: Object | None, new: Object | None) -> None:
            obj = new or old or {}
            controller.enqueue(key_of(obj))
            if old is not None and new is not None and ownership.held_by(old) and not ownership.held_by(new):
                of_machine(evictions.machine_of(new))

        def of_machine(machine: NamespacedName) -> None:
            for each in self._informers.migrations_of(machine):
                controller.enqueue(key_of(each))

        def machine_changed(old: Object | None, new: Object | None) -> None:
            of_machine(key_of(new or old or {}))

        def pod_changed(old: Object | None, new: Object | None) -> None:
            for machine in ownership.owner_names(old, new):
                if new is None and old is not None:
                    self._note_last(machine, old)
                of_machine(machine)

        def node_changed(old: Object | None, new: Object | None) -> None:
            if node_states.is_being_emptied(old) and not node_states.is_being_emptied(new):
                for each in filter(ended_drains.may_end, self._informers.unfinished_migrations()):
                    controller.enqueue(key_of(each))

        self._turns.subscribe(controller)
        self._informers.nodes.subscribe(node_changed)
        self._informers.migrations.subscribe(migration_changed)
        self._informers.vms.subscribe(machine_changed)
        self._informers.pods.subscribe(pod_changed)

    async def reconcile(self, request: Request) -> Result:
        """Adopt, advance, end or clean up one Migration."""
        migration = self._informers.migrations.get(request.namespace, request.name)
        if migration is None or phases.phase_of(migration) == phases.SUCCEEDED:
            self._targets.forget(request)  # the target is the machine's own pod now
        if migration is None:
            return Result()
        if not ownership.held_by(migration):
            return await self._clean_up(migration)
        if adopting := migration_history.adopt(migration, self._informers.vms.get(*evictions.machine_of(migration))):
            await self._applier.apply(migration, adopting)
            migration = self._informers.migrations.get(request.namespace, request.name) or migration
        if ended_drains.may_end(migration) and not is_deleting(migration) and await self._is_drain_over(migration):
            return Result(await self._applier.apply(migration, ended_drains.end(migration, self._clock.now())))
        turn = self._turns.of(migration)
        with self._turns.tried(migration) if turn.may_begin and waits(migration) else nullcontext():
            return await self._move(migration, turn)

    async def _move(self, migration: Object, turn: Turn) -> Result:
        seen = await self._gather(migration, turn)
        now = self._turns.of(migration)
        if now.may_begin and not turn.may_begin:
            return Result(REQUEUE_SECONDS)
        seen = dataclasses.replace(seen, turn=now)
        actions = planning.plan(seen)
        with self._turns.beginning(migration) if planning.begins(actions) else nullcontext():
            if planning.begins(actions) and seen.vm is not None:
                seen = dataclasses.replace(seen, policy=await self._policy(seen.vm))
                actions = planning.plan(seen)
            try:
                again = await self._applier.apply(migration, actions)
            except PodRefused as refused:
                told = planning.plan(dataclasses.replace(seen, refusal=str(refused)))
                await self._applier.apply(migration, told)
                return Result(REFUSED_SECONDS)
        self._record_outcome(seen, actions)
        return Result(sooner(again, self._settings.times.unwatched if _has_unwatched(seen) else None))

    async def _clean_up(self, migration: Object) -> Result:
        """Delete a finished Migration if its machine has too many, by the informers' copies only."""
        # A tenant's finalizer can keep thousands, each considered when the machine changes.
        others = () if is_deleting(migration) else self._informers.migrations_of(evictions.machine_of(migration))
        actions = migration_history.clean_up(migration, others, self._limits.kept, self._clock.now())
        return Result(await self._applier.apply(migration, actions))

    async def _gather(self, migration: Object, turn: Turn) -> planning.Observed:
        namespace = namespace_of(migration)
        selected = dig_migration(migration, "spec", "selector", "name") or ""
        vm = self._informers.vms.get(namespace, selected)
        failed = migration_attempts.failure_of(migration) is not None
        if vm is None or failed or phases.phase_of(migration) in phases.MIGRATION_FINAL:
            vm = await self._live(namespace, selected)
        source, target = ownership.source_of(migration, vm), ownership.target_of(migration)
        known = phases.phase_of(migration) not in ("", phases.PENDING)
        pod = await self._pod(namespace, source, vm, live=True) if source is not None else None
        found = await self._pod(namespace, target, vm, live=known)
        if found is not None and phases.phase_of(migration) != phases.SUCCEEDED:
            self._targets.present(migration, found)
        absent = self._absent(migration, target, vm) if known and target.uid and found is None else []
        gathered = await evidence.gather(self._reports, [each.pod.node for each in absent], absent)
        now = self._clock.now()
        events, named = KubeletEvents(), networks.Found()
        if vm is not None and found is not None and phases.phase_of(migration) == phases.SCHEDULING:
            events = await kubelet_events.gather(self._client, vm, found, now)
            named = await networks.gather(self._client, vm) if sandboxes.is_to_read(vm, found, now) else named
        return planning.Observed(
            migration=migration,
            vm=vm,
            source=pod,
            target=found,
            claims=claims_for(vm, self._informers.claims) if vm is not None else {},
            now=now,
            settings=self._settings,
            source_labels=await self._labels_of_node(pod) if turn.may_begin and planning.relies_on_node(migration, vm, pod) else {},
            limits=self._limits,
            incompatible=incompatible_nodes(self._informers.leases),
            fenced=self._informers.fenced_nodes(vm) if vm is not None and turn.may_begin else frozenset(),
            evidence=gathered,
            kubelet=events,
            networks=named,
            coming=await networks.coming(self._client, vm) if vm is not None and turn.may_begin and planning.may_bring(migration) else (),
        )

    def _absent(self, migration: Object, target: Reference, vm: Object | None) -> list[Timed]:
        node = str(dig_migration(migration, "status", "targetNode") or "")
        lingers = self._targets.left(migration, target.uid, launcher_pod.grace_seconds(vm or {}))
        return [Timed(Absent(target.name, target.uid, node, lingers, name_of(migration)), self._targets, migration)]

    def _note_last(self, machine: NamespacedName, pod: Object) -> None:
        for each in self._informers.migrations_of(machine):
            uid = ownership.target_of(each).uid
            if uid == uid_of(pod) and (phases.is_unfinished(each) or self._targets.may_run(each, uid)):
                self._targets.present(each, pod)

    async def _policy(self, vm: Object) -> Object:
        """Return the MigrationPolicy of a machine, or ``NO_POLICY``, from the server: migrations are rare."""
        try:
            listed = (await self._client.list(MIGRATION_POLICIES))["items"]
        except errors.NotFound:
            return migration_policies.NO_POLICY
        sound = []
        for each in listed:
            if faults := structure.of_migration_policy(each):
                logger.warning("ignored an invalid MigrationPolicy: %s", "; ".join(faults))
            else:
                sound.append(each)
        namespace: Object = {}
        if migration_policies.asks_for_namespaces(sound):
            namespace = await self._client.get(NAMESPACES, namespace_of(vm))
        return migration_policies.choose(sound, labels_of(namespace), labels_of(vm))

    async def _is_drain_over(self, migration: Object) -> bool:
        """Return whether the server has the source node, and neither it nor the informer says that it is being drained."""
        name = evictions.node_left_by(migration)
        if node_states.is_being_emptied(self._informers.nodes.get("", name)):
            return False
        node = await self._node(name)
        return node is not None and not node_states.is_being_emptied(node)

    async def _labels_of_node(self, pod: Object | None) -> Mapping[str, str]:
        return labels_of(await self._node(pod_state.node_of(pod)) or {})

    async def _node(self, name: str) -> Object | None:
        found = await self._client.page(NODES, "", field_selector=f"metadata.name={name}", limit=1) if name else ()
        return found[0] if found else None

    async def _live(self, namespace: str, name: str) -> Object | None:
        """Return the machine from the server, or None: its absence or current pod decides which pod is deleted."""
        try:
            return await self._client.get(VIRTUAL_MACHINES, name, namespace) if name else None
        except errors.NotFound:
            return None

    async def _pod(self, namespace: str, reference: Reference, vm: Object | None, *, live: bool) -> Object | None:
        """Return the referenced pod, or None. ``live``: look for it also on the server."""
        found = self._informers.pods.get(namespace, reference.name)
        if found is not None and ownership.is_meant(found, reference, vm):
            return found
        if not live:
            return None
        try:
            found = await self._client.get(PODS, reference.name, namespace)
        except errors.NotFound:
            return None
        return found if ownership.is_meant(found, reference, vm) else None

    def _record_outcome(self, seen: planning.Observed, actions: tuple[Action, ...]) -> None:
        if seen.vm is not None and (event := planning.outcome_event(seen.migration, seen.vm, actions)) is not None:
            self._recorder.event(seen.vm, VIRTUAL_MACHINES, event.type, event.reason, event.message)
