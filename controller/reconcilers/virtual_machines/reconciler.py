"""The loop for VirtualMachines: gather, plan, apply."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, Final

from apiserver.apis.core.resources import NODES
from apiserver.apis.meta.objects import NamespacedName, Object, key_of, name_of, uid_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import evictions, failed_starts, phases
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import hot_plug_interfaces, running
from apiserver.client.rest import Client
from controller.reconcilers import precedence
from controller.reconcilers.actions import CreatePod
from controller.reconcilers.applying import REFUSED_SECONDS, Applier, HotPlugRefused, PodRefused, sooner
from controller.reconcilers.indexes import BY_NODE, BY_WANTED_NODE, Informers, macs_of_vm, storage_of_vm
from controller.reconcilers.nodes.node_reports import NodeReports
from controller.reconcilers.pods import liveness, ownership, readiness
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines import attempt_start, validation
from controller.reconcilers.virtual_machines import virtual_machine_plan as planning
from controller.reconcilers.virtual_machines.gathering import Gathering
from controller.reconcilers.virtual_machines.observed import Observed
from controller.runtime.reconciling import Controller, Request, Result
from controller.runtime.recorder import Recorder

_TRIAL: Final = "virt-controller lets one virtual machine start on this non-operational node, to test it"


def _migration_changed(controller: Controller, old: Object | None, new: Object | None) -> None:
    if phases.phase_of(old or {}) != phases.phase_of(new or {}) and (migration := new or old) is not None:
        controller.enqueue(evictions.machine_of(migration))


def _hardware(vm: Object) -> tuple[Any, Any]:
    return dig_vm(vm, "spec"), dig_vm(vm, "status", running.RUNNING)


class VirtualMachines:
    """The reconciler of ``virtualmachines``."""

    def __init__(
        self, client: Client, recorder: Recorder, settings: Settings, informers: Informers, reports: NodeReports, gathering: Gathering
    ) -> None:
        self._recorder = recorder
        self._times = settings.times
        self._informers = informers
        self._reports = reports
        self._gathering = gathering
        self._warned: dict[NamespacedName, frozenset[str]] = {}
        self._avoided: dict[str, failed_starts.Verdict] = {}
        self._applier = Applier(client, recorder, VIRTUAL_MACHINES, informers.vms, informers.pods)

    def subscribe(self, controller: Controller) -> None:
        """Enqueue machines on changes of their own, and of pods, nodes and Migrations' phases.

        Also when a claim that a machine uses is created or deleted, and when another machine may have released its disks.
        """

        def machine_changed(old: Object | None, new: Object | None) -> None:
            obj = new or old or {}
            if phases.phase_of(old or {}) == phases.UNKNOWN and phases.phase_of(obj) in phases.OWNED_BY_HANDLER:
                self._reports.heard(dig_vm(obj, "status", "nodeName") or "")  # only its virt-handler replaces Unknown
            controller.enqueue(key_of(obj))
            self._warn_of_namesakes(old, new)
            for each in self._who_may_wait_for_its_disks(old, new):
                controller.enqueue(key_of(each))

        def pod_changed(old: Object | None, new: Object | None) -> None:
            for machine in ownership.owner_names(old, new):
                controller.enqueue(machine)

        def claim_changed(old: Object | None, new: Object | None) -> None:
            if old is not None and new is not None:
                return  # the relevant fields of a claim are immutable
            for vm in self._informers.machines_with(key_of(new or old or {})):
                machine_changed(None, vm)

        def node_changed(node: str) -> None:
            for pod in self._informers.pods.by_index(BY_NODE, node):
                pod_changed(None, pod)
            for vm in self._informers.vms.by_index(BY_WANTED_NODE, node):
                machine_changed(None, vm)

        self._informers.vms.subscribe(machine_changed)
        self._informers.pods.subscribe(pod_changed)
        self._informers.claims.subscribe(claim_changed)
        self._informers.migrations.subscribe(functools.partial(_migration_changed, controller))
        self._reports.subscribe(node_changed)

    async def reconcile(self, request: Request) -> Result:
        """Plan and apply the next actions for one machine."""
        vm = self._informers.vms.get(request.namespace, request.name)
        if vm is None:
            self._warned.pop(request, None)
            self._gathering.forget(request)
            return Result()  # its pods are deleted with their owner
        seen = await self._gathering.gather(validation.as_far_as_sound(vm))
        vm = seen.vm
        self._tell_nodes(seen)
        # First, because during a migration no pod is ready, and Services wait.
        refused = await self._applier.apply(vm, readiness.plan(vm, seen.pods, seen.now))
        poll = sooner(refused, self._times.unwatched if self._warn_of_unwatched(seen) else None)
        try:
            again = await self._carry_out(seen)
            return Result(sooner(sooner(again, self._gathering.refusals.left(request)), poll))
        except PodRefused as refused:
            told = planning.plan(dataclasses.replace(seen, refusal=str(refused)))
            await self._applier.apply(vm, told)
            return Result(sooner(REFUSED_SECONDS, poll))

    async def _carry_out(self, seen: Observed) -> float | None:
        """Apply the plan; return the seconds until the next pass, or None. After a refused hot-plug, plan again, which reports it."""
        actions = planning.plan(seen)
        if any(isinstance(each, CreatePod) for each in actions) and (tried := self._gathering.trials.take(seen, self._informers.vms.get)):
            self._tell_trials(tried)
            actions = planning.plan(dataclasses.replace(seen, trials=tried))
        try:
            return await self._applier.apply(seen.vm, actions)
        except HotPlugRefused as refused:
            self._gathering.refusals.add(key_of(seen.vm), refused.messages)
            return await self._carry_out(dataclasses.replace(seen, refusals={**seen.refusals, **refused.messages}))

    def _tell_nodes(self, seen: Observed) -> None:
        for name, verdict in seen.non_operational.items():
            if self._avoided.get(name) != verdict and (node := self._informers.nodes.get("", name)) is not None:
                self._avoided[name] = verdict
                self._recorder.event(node, NODES, "Warning", "NonOperational", verdict.message())

    def _tell_trials(self, tried: frozenset[str]) -> None:
        for name in sorted(tried):
            if (node := self._informers.nodes.get("", name)) is not None:
                self._recorder.event(node, NODES, "Normal", "NonOperationalTrial", _TRIAL)

    def _warn_of_namesakes(self, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or old.get("spec") == new.get("spec") or not hot_plug_interfaces.takes_interfaces(new):
            return
        if namesakes := self._gathering.namesakes(new, set(macs_of_vm(new)) - set(macs_of_vm(old))):
            told = attempt_start.duplicate_mac(namesakes)
            self._recorder.event(new, VIRTUAL_MACHINES, told.type, told.reason, told.message)

    def _who_may_wait_for_its_disks(self, old: Object | None, new: Object | None) -> Iterator[Object]:
        """Yield the machines that share storage with one that lost its pod, will not run again, or may have other disks."""
        before, after = old or {}, new or {}
        if not precedence.holds(before):
            return
        has_lost_pod = phases.phase_of(before) in phases.WITH_POD and phases.phase_of(after) not in phases.WITH_POD
        if has_lost_pod or not precedence.holds(after) or _hardware(before) != _hardware(after):
            for storage in storage_of_vm(before):
                yield from self._informers.machines_with(storage)

    def _warn_of_unwatched(self, seen: Observed) -> bool:
        """Report each pod that lost its labels or owner once; return whether there is one."""
        found = {uid_of(pod): pod for pod in seen.pods if liveness.may_run(pod, seen.evidence) and ownership.is_unwatched(pod, seen.vm)}
        told = self._warned.pop(key_of(seen.vm), frozenset())
        for uid in found.keys() - told:
            name = name_of(found[uid])
            message = f"the labels or the owner of pod {name} were removed; virt-controller still recognizes it by its uid; "
            message += f"to restore them: {ownership.to_restore(found[uid], seen.vm)}"
            self._recorder.event(seen.vm, VIRTUAL_MACHINES, "Warning", "PodNotMarked", message)
        if found:
            self._warned[key_of(seen.vm)] = frozenset(found)
        return bool(found)
