"""The loop that gives every live migration its target pod and its end: gather, plan, carry out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from apiserver.apis.core.resources import NODES, PODS
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, dig, labels_of, name_of, namespace_of
from apiserver.apis.virt import phases
from apiserver.apis.virt.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.rest import Client
from controller.reconcilers import migration_plan as planning
from controller.reconcilers import ownership, pod_state
from controller.reconcilers.actions import REFUSED_SECONDS, Action, Deeds, PodRefused, RemoveFinalizer, sooner
from controller.reconcilers.ownership import Reference
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines import BY_MACHINE, UNWATCHED_SECONDS, Informers, claims_for, is_unwatched
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller, Request, Result
from controller.runtime.recorder import Recorder


def _has_unwatched(seen: planning.Observed) -> bool:
    """True if one side of an unfinished migration lives in a pod of which no event will tell."""
    sides = (pod for pod in (seen.source, seen.target) if pod is not None and not pod_state.is_over(pod))
    return phases.is_unfinished(seen.migration) and any(is_unwatched(pod, seen.vm) for pod in sides)


class Migrations:
    """The reconciler of ``migrations``."""

    def __init__(self, client: Client, recorder: Recorder, clock: Clock, settings: Settings, informers: Informers) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._informers = informers
        self._recorder = recorder
        self._deeds = Deeds(client, recorder, MIGRATIONS, informers.migrations, informers.pods)

    def subscribe(self, controller: Controller) -> None:
        """Have a Migration looked at when it, its virtual machine, or a pod of that changes."""

        def migration_changed(old: Object | None, new: Object | None) -> None:
            obj = new or old or {}
            controller.enqueue(namespace_of(obj), name_of(obj))

        def of_machine(namespace: str, name: str) -> None:
            for each in self._informers.migrations.by_index(BY_MACHINE, f"{namespace}/{name}"):
                migration_changed(None, each)

        def machine_changed(old: Object | None, new: Object | None) -> None:
            obj = new or old or {}
            of_machine(namespace_of(obj), name_of(obj))

        def pod_changed(old: Object | None, new: Object | None) -> None:
            for namespace, machine in ownership.owner_names(old, new):
                of_machine(namespace, machine)

        self._informers.migrations.subscribe(migration_changed)
        self._informers.vms.subscribe(machine_changed)
        self._informers.pods.subscribe(pod_changed)

    async def reconcile(self, request: Request) -> Result:
        """Bring one migration closer to its end."""
        migration = self._informers.migrations.get(request.namespace, request.name)
        if migration is None or not ownership.held_by(migration):
            return Result()  # it is over and tidied up: of these each look would cost the server three reads
        seen = await self._gather(migration)
        actions = planning.plan(seen)
        try:
            again = await self._deeds.carry_out(migration, actions)
        except PodRefused as refused:
            told = planning.plan(dataclasses.replace(seen, refusal=str(refused)))
            await self._deeds.carry_out(migration, told)
            return Result(REFUSED_SECONDS)
        self._tell_machine(seen, actions)
        return Result(sooner(again, UNWATCHED_SECONDS if _has_unwatched(seen) else None))

    async def _gather(self, migration: Object) -> planning.Observed:
        namespace = namespace_of(migration)
        selected = dig(migration, "spec", "selector", "name") or ""
        vm = self._informers.vms.get(namespace, selected)
        if vm is None or phases.phase_of(migration) in phases.MIGRATION_FINAL:
            vm = await self._live(namespace, selected)
        source, target = ownership.source_of(migration, vm), ownership.target_of(migration)
        known = phases.phase_of(migration) not in ("", phases.PENDING)
        pod = await self._pod(namespace, source, vm, live=True) if source is not None else None
        return planning.Observed(
            migration=migration,
            vm=vm,
            source=pod,
            target=await self._pod(namespace, target, vm, live=known),
            claims=claims_for(vm, self._informers.claims) if vm is not None else {},
            now=self._clock.now(),
            settings=self._settings,
            source_labels=await self._labels_of_node(pod) if planning.relies_on_node(migration, vm, pod) else {},
        )

    async def _labels_of_node(self, pod: Object | None) -> Mapping[str, str]:
        """Return the labels of the Node that a pod runs on, as the server has them: the copy here has none, for they are long."""
        if not (node := pod_state.node_of(pod)):
            return {}
        found = await self._client.page(NODES, "", field_selector=f"metadata.name={node}", limit=1)
        return labels_of(found[0]) if found else {}

    async def _live(self, namespace: str, name: str) -> Object | None:
        """Return the machine as the server has it.

        Its absence decides something, and so does which pod it is in once the migration is over: the other is deleted. The two kinds
        are watched apart, so the copy here may be older than the migration that was read beside it.
        """
        try:
            return await self._client.get(VIRTUAL_MACHINES, name, namespace) if name else None
        except errors.NotFound:
            return None

    async def _pod(self, namespace: str, reference: Reference, vm: Object | None, *, live: bool) -> Object | None:
        """Return the very pod that is meant. One under its name that is another, or that the copy here does not know, is asked for."""
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

    def _tell_machine(self, seen: planning.Observed, actions: tuple[Action, ...]) -> None:
        """Record the outcome with the machine, too: that is where people look. Once, with the finalizer's removal."""
        phase = phases.phase_of(seen.migration)
        if seen.vm is None or phase not in phases.MIGRATION_FINAL or not any(isinstance(each, RemoveFinalizer) for each in actions):
            return
        name = name_of(seen.migration)
        if phase == phases.SUCCEEDED:
            source, target = dig(seen.migration, "status", "sourceNode"), dig(seen.migration, "status", "targetNode")
            self._recorder.event(
                seen.vm, VIRTUAL_MACHINES, "Normal", "Migrated", f"migration {name} moved the guest from {source} to {target}"
            )
        else:
            message = f"migration {name}: {dig(seen.migration, 'status', 'message') or phase}"
            self._recorder.event(seen.vm, VIRTUAL_MACHINES, "Warning", f"Migration{phase}", message)
