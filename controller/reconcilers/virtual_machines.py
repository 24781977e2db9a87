"""The loop that keeps a pod for every virtual machine that should be on: gather, plan, carry out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta.objects import Object, condition, dig, labels_of, name_of, namespace_of, uid_of
from apiserver.apis.virt import names, phases, power
from apiserver.apis.virt.resources import VIRTUAL_MACHINES
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from controller.reconcilers import disks, pod_state
from controller.reconcilers import virtual_machine_plan as planning
from controller.reconcilers.actions import Deeds, PodRefused
from controller.reconcilers.node_reports import NodeReports
from controller.reconcilers.settings import Settings
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller, Request, Result
from controller.runtime.recorder import Recorder

REFUSED_SECONDS: Final = 15.0
"""Until a refused pod is tried again: a quota changes without telling us."""
BY_VM: Final = "vm"
"""Index of pods: the uid of their machine."""
BY_CLAIM: Final = "claim"
"""Index of machines: ``namespace/claim`` of each disk."""
BY_NODE: Final = "node"
"""Index of pods: the node they are bound to."""


@dataclass(frozen=True, slots=True)
class Informers:
    """What both loops read."""

    vms: Informer
    migrations: Informer
    pods: Informer
    claims: Informer
    nodes: Informer
    leases: Informer
    """Of the virt-handlers."""


def vm_of_pod(pod: Object) -> list[str]:
    """Index function for ``BY_VM``."""
    uid = labels_of(pod).get(names.CREATED_BY_LABEL)
    return [uid] if uid else []


def node_of_pod(pod: Object) -> list[str]:
    """Index function for ``BY_NODE``."""
    node = pod_state.node_of(pod)
    return [node] if node else []


def claims_of_vm(vm: Object) -> list[str]:
    """Index function for ``BY_CLAIM``."""
    return [f"{namespace_of(vm)}/{each}" for each in disks.claims_of(vm)]


def trim_claim(claim: Object) -> Object:
    """Return what of a claim matters here."""
    kept = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
    spec = claim.get("spec") or {}
    return {
        "metadata": {key: value for key, value in (claim.get("metadata") or {}).items() if key in kept},
        "spec": {key: spec[key] for key in ("volumeMode", "accessModes") if key in spec},
    }


def trim_node(node: Object) -> Object:
    """Return what of a node matters here; its heartbeats do not change that."""
    kept = ("name", "uid", "resourceVersion")
    ready = condition(dig(node, "status", "conditions"), "Ready") or {}
    allocatable = dig(node, "status", "allocatable") or {}
    return {
        "metadata": {key: value for key, value in (node.get("metadata") or {}).items() if key in kept},
        "status": {
            "conditions": [{"type": "Ready", "status": ready.get("status", "Unknown")}],
            "allocatable": {names.KVM_RESOURCE: allocatable.get(names.KVM_RESOURCE, "0")},
        },
    }


def offers_kvm(nodes: Informer) -> bool:
    """Whether some node advertises a kvm device."""
    return any(dig(node, "status", "allocatable", names.KVM_RESOURCE) not in (None, "0") for node in nodes.list())


def claims_for(vm: Object, claims: Informer) -> dict[str, Object | None]:
    """Return the machine's claims by name."""
    return {name: claims.get(namespace_of(vm), name) for name in disks.claims_of(vm)}


class VirtualMachines:
    """The reconciler of ``virtualmachines``."""

    def __init__(
        self, client: Client, recorder: Recorder, clock: Clock, settings: Settings, informers: Informers, reports: NodeReports
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._informers = informers
        self._reports = reports
        self._deeds = Deeds(client, recorder, VIRTUAL_MACHINES, informers.vms, informers.pods)

    def subscribe(self, controller: Controller) -> None:
        """Have a machine looked at when it, a pod of it, a claim it waits for, or its node changes."""

        def machine_changed(old: Object | None, new: Object | None) -> None:
            obj = new or old or {}
            if phases.phase_of(old or {}) == phases.UNKNOWN and phases.phase_of(obj) in phases.OWNED_BY_HANDLER:
                self._reports.heard(dig(obj, "status", "nodeName") or "")  # nobody but its virt-handler takes Unknown back
            controller.enqueue(namespace_of(obj), name_of(obj))

        def pod_changed(old: Object | None, new: Object | None) -> None:
            pod = new or old or {}
            if machine := labels_of(pod).get(names.VM_NAME_LABEL):
                controller.enqueue(namespace_of(pod), machine)

        def claim_changed(old: Object | None, new: Object | None) -> None:
            if old is not None and new is not None:
                return  # what matters of a claim never changes while it exists
            claim = new or old or {}
            for vm in self._informers.vms.by_index(BY_CLAIM, f"{namespace_of(claim)}/{name_of(claim)}"):
                machine_changed(None, vm)

        def node_changed(node: str) -> None:
            for pod in self._informers.pods.by_index(BY_NODE, node):
                pod_changed(None, pod)

        self._informers.vms.subscribe(machine_changed)
        self._informers.pods.subscribe(pod_changed)
        self._informers.claims.subscribe(claim_changed)
        self._reports.subscribe(node_changed)

    async def reconcile(self, request: Request) -> Result:
        """Bring one machine's pod and status closer to what they should be."""
        vm = self._informers.vms.get(request.namespace, request.name)
        if vm is None:
            return Result()  # its pods have it as their owner and follow it
        seen = await self._gather(vm)
        try:
            return Result(await self._deeds.carry_out(vm, planning.plan(seen)))
        except PodRefused as refused:
            told = planning.plan(dataclasses.replace(seen, refusal=str(refused)))
            await self._deeds.carry_out(vm, told)
            return Result(REFUSED_SECONDS)

    async def _gather(self, vm: Object) -> planning.Observed:
        pods = tuple(self._informers.pods.by_index(BY_VM, uid_of(vm)))
        if all(pod_state.is_over(pod) for pod in pods) and _matters(vm):
            # Before anything is decided on the absence of a pod, the server is asked: the copy here may be behind.
            pods = await self._live_pods(vm)
        return planning.Observed(
            vm=vm,
            pods=pods,
            claims=claims_for(vm, self._informers.claims),
            now=self._clock.now(),
            settings=self._settings,
            kvm_offered=offers_kvm(self._informers.nodes),
            silence=await self._reports.judge(node for pod in pods if not pod_state.is_over(pod) and (node := pod_state.node_of(pod))),
        )

    async def _live_pods(self, vm: Object) -> tuple[Object, ...]:
        selector = f"{names.CREATED_BY_LABEL}={uid_of(vm)}"
        listed = await self._client.list(PODS, namespace_of(vm), label_selector=selector)
        return tuple(listed["items"])


def _matters(vm: Object) -> bool:
    """Whether the next plan decides something on the absence of pods, so that one more request is worth it; a first start does not."""
    wish, current = power.decide(vm), power.current_attempt(vm)
    return wish.reason == "Deleting" or planning.attempt_is_open(vm) or (wish.on and current > 0)
