"""The loop that keeps a pod for every virtual machine that should be on: gather, plan, carry out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from apiserver.apis.core.resources import EVENTS, PODS
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import (
    Key,
    Object,
    annotations_of,
    condition,
    controller_of,
    dig,
    is_true,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from apiserver.apis.virt import chosen_cpu, conditions, evictions, layout, names, network, phases, power, structure
from apiserver.apis.virt.described import domain_of
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.resources import VIRTUAL_MACHINES
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from controller.reconcilers import (
    attempts,
    disk_claims,
    emptied_nodes,
    mounted_sources,
    networks,
    node_pool,
    ownership,
    pod_state,
    readiness,
    sandboxes,
    validation,
)
from controller.reconcilers import virtual_machine_plan as planning
from controller.reconcilers.absences import Absences
from controller.reconcilers.actions import REFUSED_SECONDS, Deeds, PodRefused, sooner
from controller.reconcilers.endings import Endings
from controller.reconcilers.launcher_pods import downward_api, launcher_pod
from controller.reconcilers.node_reports import NodeReports, strangers
from controller.reconcilers.observed import Observed
from controller.reconcilers.ownership import Reference
from controller.reconcilers.settings import Settings
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller, Request, Result
from controller.runtime.recorder import Recorder

UNWATCHED_SECONDS: Final = 5.0
"""Until a pod is looked at again of whose changes nobody is told, because its labels or its owner were taken off."""
BY_OWNER: Final = "owner"
"""Index of pods: ``namespace/uid`` of the machine that controls them."""
BY_MACHINE: Final = "machine"
"""Index of Migrations: ``namespace/name`` of the virtual machine."""
BY_STATE: Final = "state"
"""Index of Migrations: :data:`UNFINISHED`, of those that are."""
UNFINISHED: Final = "unfinished"
BY_CLAIM: Final = "claim"
"""Index of machines: ``namespace/claim`` of each disk."""
BY_MAC: Final = "mac"
"""Index of machines: ``namespace/address`` of each interface that has one given."""
BY_WANTED_NODE: Final = "wanted-node"
"""Index of machines: the node that ``spec.nodeName`` names."""
BY_AGE: Final = "age"
"""Index of machines: :data:`OUTDATED`, of those that say that their launcher is."""
OUTDATED: Final = "outdated"
BY_NODE: Final = "node"
"""Index of pods: the node they are bound to."""
_OF_POD_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds")
_OF_POD_LABELS: Final = (names.COMPONENT_LABEL, names.VM_NAME_LABEL, names.CREATED_BY_LABEL, names.MIGRATION_LABEL)
_OF_POD_SPEC: Final = ("automountServiceAccountToken", "nodeName", "restartPolicy", "terminationGracePeriodSeconds")
_OF_POD_STATUS: Final = ("message", "phase", "podIP", "reason")
_OF_CONDITION: Final = ("type", "status", "reason", "message", "lastTransitionTime")
_OF_OWNER: Final = ("apiVersion", "kind", "name", "uid", "controller")
_OF_CONDITION_TYPES: Final = (names.GUEST_RUNNING_GATE, "Ready")
"""Those that matter most."""
MAX_CONDITIONS: Final = 16
"""Of a pod: Kubernetes knows half as many."""
MAX_POD_IPS: Final = 2
"""Of a pod: one of each family."""
MAX_TEXT: Final = 4096
"""Characters of a text in a pod that is kept: kubelets cut a container's last words there."""
MAX_NAME: Final = 254
"""Characters of a name or uid that is kept: one more than those of an object may have, so that what is longer stays another's."""
MAX_CAPACITY: Final = 32
"""Characters of a claim's capacity that is kept: more than any quantity of Kubernetes' own has."""
_PHASES_OF_CLAIMS: Final = ("Pending", "Bound", "Lost")
MAX_NAMESAKES: Final = 64
"""Machines that are looked at for each MAC address of one that starts: a tenant can give ten thousand the same."""
LIVE_PAGE: Final = 2
"""Pods of a machine that are in memory whole at once, when they are asked for live: a tenant can make them of 12 MiB there."""


@dataclass(frozen=True, slots=True)
class Informers:
    """The copies that both loops read."""

    vms: Informer
    migrations: Informer
    pods: Informer
    claims: Informer
    nodes: Informer
    leases: Informer
    """Of the virt-handlers."""


def machine_of(migration: Object) -> list[str]:
    """Index function for ``BY_MACHINE``."""
    return [f"{namespace_of(migration)}/{dig(migration, 'spec', 'selector', 'name') or ''}"]


def node_of_pod(pod: Object) -> list[str]:
    """Index function for ``BY_NODE``."""
    node = pod_state.node_of(pod)
    return [node] if node else []


def wanted_node_of_vm(vm: Object) -> list[str]:
    """Index function for ``BY_WANTED_NODE``."""
    node = dig(vm, "spec", "nodeName")
    return [node] if node and isinstance(node, str) else []


def age_of_vm(vm: Object) -> list[str]:
    """Index function for ``BY_AGE``, also of machines that are not sound."""
    found = dig(vm, "status", "conditions")
    is_sound = isinstance(found, list) and all(isinstance(each, dict) for each in found)
    return [OUTDATED] if is_sound and is_true(found, conditions.LAUNCHER_OUTDATED) else []


def claims_of_vm(vm: Object) -> list[str]:
    """Index function for ``BY_CLAIM``, of files of nodes, too, which are no namespace's; a machine that is not sound waits for nothing."""
    if not structure.has_sound_domain(vm):
        return []
    return [*(f"{namespace_of(vm)}/{each}" for each in disk_claims.claims_of(vm)), *map(_key_of_file, disk_claims.files_of(vm))]


def _key_of_file(path: str) -> str:
    return f"/{path}"


def macs_of_vm(vm: Object) -> list[str]:
    """Index function for ``BY_MAC``."""
    given = interfaces.defaulted(domain_of(vm)) if structure.has_sound_domain(vm) else ()
    return [f"{namespace_of(vm)}/{network.normal_mac(each['mac'])}" for each in given if each.get("mac")]


def trim_claim(claim: Object) -> Object:
    """Return what of a claim matters here."""
    kept = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
    spec = claim.get("spec") or {}
    phase, capacity = dig(claim, "status", "phase"), dig(claim, "status", "capacity", "storage")
    return {
        "metadata": {key: value for key, value in (claim.get("metadata") or {}).items() if key in kept},
        "spec": {
            **{key: spec[key] for key in ("volumeMode",) if key in spec},
            "accessModes": list(dict.fromkeys(spec.get("accessModes") or ())),  # Kubernetes lets one repeat them
        },
        "status": {
            **({"phase": phase} if phase in _PHASES_OF_CLAIMS else {}),
            **({"capacity": {"storage": capacity}} if isinstance(capacity, str) and len(capacity) <= MAX_CAPACITY else {}),
        },
    }


def trim_object(obj: Object) -> Object:
    """Return a machine or Migration without what nobody here reads, and whoever wrote it may have made long.

    Annotations are read for disks of type DownwardAPI.
    """
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        is_readable = isinstance(metadata.get("annotations"), dict) and structure.has_sound_domain(obj)
        asked = downward_api.annotations_read(obj) if is_readable else {}
        metadata.pop("annotations", None)
        if asked:
            metadata["annotations"] = asked
    return obj


def trim_migration(migration: Object) -> Object:
    """Return a Migration likewise; of annotations, the node that its guest leaves because of an eviction."""
    node = annotations_of(migration).get(evictions.NODE_ANNOTATION) if isinstance(dig(migration, "metadata", "annotations"), dict) else None
    trimmed = trim_object(migration)
    if node and isinstance(node, str):
        trimmed["metadata"]["annotations"] = {evictions.NODE_ANNOTATION: node[:MAX_NAME]}
    return trimmed


def trim_pod(pod: Object) -> Object:
    """Return what of a pod matters here. Whoever may create pods gives our labels to any, of a megabyte and more."""
    spec = pod.get("spec") or {}
    return {
        "metadata": _trim_pod_metadata(pod.get("metadata") or {}),
        "spec": {
            **{key: spec[key] for key in _OF_POD_SPEC if key in spec},
            **({"readinessGates": [{"conditionType": names.GUEST_RUNNING_GATE}]} if readiness.has_gate(pod) else {}),
            "containers": [_trim_container(each) for each in spec.get("containers") or () if each.get("name") == names.CONTAINER],
        },
        "status": _trim_pod_status(pod.get("status") or {}),
    }


def _trim_pod_metadata(metadata: Object) -> Object:
    labels, owner = metadata.get("labels") or {}, controller_of({"metadata": metadata})
    return {
        **{key: metadata[key] for key in _OF_POD_METADATA if key in metadata},
        "labels": {key: labels[key] for key in _OF_POD_LABELS if key in labels},
        "ownerReferences": [_cut(owner, _OF_OWNER, MAX_NAME)] if owner is not None else [],
    }


def _trim_pod_status(status: Object) -> Object:
    """Of containers: ours, and one other that runs. Of conditions: those that matter, and as many others as a pod should have."""
    conditions = sorted(status.get("conditions") or (), key=lambda each: each.get("type") not in _OF_CONDITION_TYPES)
    statuses = status.get("containerStatuses") or []
    ours = [each for each in statuses if each.get("name") == names.CONTAINER][:1]
    others = [each for each in statuses if each.get("name") != names.CONTAINER and dig(each, "state", "running") is not None][:1]
    return {
        **_cut(status, _OF_POD_STATUS, MAX_TEXT),
        **({"podIPs": [_cut(each, ("ip",), MAX_NAME) for each in status["podIPs"][:MAX_POD_IPS]]} if status.get("podIPs") else {}),
        "conditions": [_cut(each, _OF_CONDITION, MAX_TEXT) for each in conditions[:MAX_CONDITIONS]],
        "containerStatuses": [_trim_container_status(each) for each in (*ours, *others)],
    }


def _trim_container_status(status: Object) -> Object:
    state = {
        key: _cut(value or {}, tuple(value or {}), MAX_TEXT) for key, value in (status.get("state") or {}).items() if value is not None
    }
    return {**_cut(status, ("name",), MAX_NAME), "state": state}


def _cut(obj: Object, fields: Iterable[str], limit: int) -> Object:
    """Return these fields of an object, text no longer than ``limit``."""
    return {key: value[:limit] if isinstance(value := obj[key], str) else value for key in fields if key in obj}


def _trim_container(container: Object) -> Object:
    limits = dig(container, "resources", "limits") or {}
    image = container.get("image")
    return {
        "name": names.CONTAINER,
        **({"image": image[:MAX_TEXT]} if isinstance(image, str) else {}),
        "resources": {"limits": {key: limits[key] for key in (names.KVM_RESOURCE,) if key in limits}},
        "volumeMounts": [{"mountPath": layout.RUN_DIRECTORY}] if ownership.has_run_directory(container) else [],
    }


def trim_node(node: Object) -> Object:
    """Return what of a node matters here; its heartbeats do not change that."""
    kept = ("name", "uid", "resourceVersion")
    ready = condition(dig(node, "status", "conditions"), "Ready") or {}
    return {
        "metadata": {
            **{key: value for key, value in (node.get("metadata") or {}).items() if key in kept},
            **node_pool.trim_labels(node),
        },
        "spec": emptied_nodes.trim(node),
        "status": {
            "conditions": [{"type": "Ready", "status": ready.get("status", "Unknown")}],
            **{each: {names.KVM_RESOURCE: dig(node, "status", each, names.KVM_RESOURCE) or "0"} for each in ("allocatable", "capacity")},
        },
    }


def offers_kvm(nodes: Informer) -> bool:
    """Return whether some node advertises a kvm device."""
    return any(dig(node, "status", "allocatable", names.KVM_RESOURCE) not in (None, "0") for node in nodes.list())


def claims_for(vm: Object, claims: Informer) -> dict[str, Object | None]:
    """Return the machine's claims by name."""
    return {name: claims.get(namespace_of(vm), name) for name in disk_claims.claims_of(vm)}


def is_unwatched(pod: Object, vm: Object | None) -> bool:
    """True if no event will tell of this pod's next change: it lacks the informer's label, or the owner that leads to ``vm``."""
    return not ownership.is_labelled(pod) or vm is None or not ownership.is_controlled_by(pod, vm)


def _migration_changed(controller: Controller, old: Object | None, new: Object | None) -> None:
    if phases.phase_of(old or {}) != phases.phase_of(new or {}) and (migration := new or old) is not None:
        controller.enqueue(namespace_of(migration), str(dig(migration, "spec", "selector", "name") or ""))


class VirtualMachines:
    """The reconciler of ``virtualmachines``."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        settings: Settings,
        informers: Informers,
        reports: NodeReports,
        absences: Absences,
        endings: Endings,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        self._informers = informers
        self._reports = reports
        self._absences = absences
        self._endings = endings
        self._told: dict[Key, frozenset[str]] = {}
        """By machine: the uids of its unwatched pods, of which was told."""
        self._deeds = Deeds(client, recorder, VIRTUAL_MACHINES, informers.vms, informers.pods)

    def subscribe(self, controller: Controller) -> None:
        """Have a machine looked at when it, a pod of it, a claim it waits for, its node, or the phase of a Migration of it changes."""

        def machine_changed(old: Object | None, new: Object | None) -> None:
            obj = new or old or {}
            if phases.phase_of(old or {}) == phases.UNKNOWN and phases.phase_of(obj) in phases.OWNED_BY_HANDLER:
                self._reports.heard(dig(obj, "status", "nodeName") or "")  # nobody but its virt-handler takes Unknown back
            controller.enqueue(namespace_of(obj), name_of(obj))
            for each in self._who_may_wait_for_its_disks(old, new):
                controller.enqueue(namespace_of(each), name_of(each))

        def pod_changed(old: Object | None, new: Object | None) -> None:
            for namespace, machine in ownership.owner_names(old, new):  # an owner that was taken off is owed a look, too
                controller.enqueue(namespace, machine)

        def claim_changed(old: Object | None, new: Object | None) -> None:
            if old is not None and new is not None:
                return  # what matters of a claim never changes while it exists
            claim = new or old or {}
            for vm in self._informers.vms.by_index(BY_CLAIM, f"{namespace_of(claim)}/{name_of(claim)}"):
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
        """Bring one machine's pod and status closer to what they should be."""
        vm = self._informers.vms.get(request.namespace, request.name)
        if vm is None:
            self._told.pop((request.namespace, request.name), None)
            self._absences.forget((request.namespace, request.name))
            self._endings.forget((request.namespace, request.name))
            return Result()  # its pods have it as their owner and follow it
        seen = await self._gather(validation.as_far_as_sound(vm))
        vm = seen.vm
        # First, since a Service waits for it: while a guest moves, no pod of it is ready.
        refused = await self._deeds.carry_out(vm, readiness.plan(vm, seen.pods, seen.now))
        poll = sooner(refused, UNWATCHED_SECONDS if self._tell_unwatched(seen) else None)
        try:
            return Result(sooner(await self._deeds.carry_out(vm, planning.plan(seen)), poll))
        except PodRefused as refused:
            told = planning.plan(dataclasses.replace(seen, refusal=str(refused)))
            await self._deeds.carry_out(vm, told)
            return Result(sooner(REFUSED_SECONDS, poll))

    async def _gather(self, vm: Object) -> Observed:
        migrations = list(self._informers.migrations.by_index(BY_MACHINE, f"{namespace_of(vm)}/{name_of(vm)}"))
        references = ownership.references(vm, migrations)
        pods = self._known_pods(vm, references)
        own = ownership.of_status(vm)
        if _matters(vm) and not any(own is not None and ownership.is_meant(pod, own, vm) and not pod_state.is_over(pod) for pod in pods):
            # Before anything is decided on the absence of a pod, the server is asked: the copy here may be behind, and knows only pods
            # that bear a label. The copy of the machine may be older than that of the Migration that moved it, which are watched apart:
            # then the pod that it names is over, and the one that has its guest would be nobody's.
            vm = await self._live(vm)
            references, own = ownership.references(vm, migrations), ownership.of_status(vm)
            pods = await self._live_pods(vm, references)
        lingers = self._lingers(vm, own, pods)
        nodes = {pod_state.node_of(pod) for pod in pods if not pod_state.is_over(pod)}
        nodes |= {dig(vm, "status", "nodeName") if lingers else "", "" if attempts.is_open(vm) else dig(vm, "spec", "nodeName")}
        now = self._clock.now()
        return Observed(
            vm=vm,
            pods=pods,
            claims=claims_for(vm, self._informers.claims),
            now=now,
            settings=self._settings,
            kvm_offered=offers_kvm(self._informers.nodes),
            silence=await self._reports.judge(node for node in nodes if node),
            migrations=tuple(migrations),
            targets=frozenset(ownership.target_name(each) for each in migrations if ownership.held_by(each)),
            lingers=lingers,
            rested=self._endings.rested(vm, now),
            namesakes=() if attempts.is_open(vm) else self._namesakes(vm),
            rivals=self._rivals(vm),
            files_in_use=self._files_in_use(vm, _starting_pod(vm, pods)),
            networks=await networks.look(self._client, vm) if networks.is_to_look(vm) else networks.Found(),
            mount_events=await self._mount_events(vm, pods, now),
            sandbox_events=await self._sandbox_events(vm, pods, now),
            strangers=strangers(self._informers.leases),
            nodes=() if attempts.is_open(vm) or not chosen_cpu.is_to_choose(vm) else tuple(self._informers.nodes.list()),
        )

    async def _live(self, vm: Object) -> Object:
        """Return the machine as the server has it; of one that is gone, or is another by now, the copy here tells soon enough."""
        try:
            found = await self._client.get(VIRTUAL_MACHINES, name_of(vm), namespace_of(vm))
        except errors.NotFound:
            return vm
        return validation.as_far_as_sound(found) if uid_of(found) == uid_of(vm) else vm

    async def _mount_events(self, vm: Object, pods: tuple[Object, ...], now: datetime) -> tuple[Object, ...]:
        """Return what the kubelet says of the volumes of the machine's own pod, while that has a node and does not run."""
        pod = _starting_pod(vm, pods)
        if pod is None or not mounted_sources.is_to_look(vm, pod, now):
            return ()
        found = map(mounted_sources.trim_event, await self._events(pod, mounted_sources.FAILED_MOUNT))
        return tuple(each for each in found if mounted_sources.is_of_now(each, now))

    async def _sandbox_events(self, vm: Object, pods: tuple[Object, ...], now: datetime) -> tuple[Object, ...]:
        """Return what the kubelet says of the networks of the machine's own pod, likewise."""
        pod = _starting_pod(vm, pods)
        if pod is None or not sandboxes.is_to_look(vm, pod, now):
            return ()
        found = map(sandboxes.trim_event, await self._events(pod, sandboxes.FAILED_SANDBOX))
        return tuple(each for each in found if mounted_sources.is_of_now(each, now))

    async def _events(self, pod: Object, reason: str) -> tuple[Object, ...]:
        selector = f"involvedObject.uid={uid_of(pod)},reason={reason}"
        return await self._client.page(EVENTS, namespace_of(pod), field_selector=selector, limit=mounted_sources.MAX_EVENTS)

    def _who_may_wait_for_its_disks(self, old: Object | None, new: Object | None) -> Iterator[Object]:
        """Yield the machines with a claim of one that has just lost its pod."""
        if phases.phase_of(old or {}) in phases.WITH_POD and phases.phase_of(new or {}) not in phases.WITH_POD:
            for key in claims_of_vm(old or {}):
                yield from self._informers.vms.by_index(BY_CLAIM, key)

    def _rivals(self, vm: Object) -> tuple[tuple[str, str], ...]:
        """Return who is in the way of a start: whoever has a pod; and in the way of a guest, once there is a pod: who has a guest.

        Two that began at the same moment must not wait for each other. That only one of them gets its guest is virt-api's to keep.
        """
        if attempts.is_open(vm) and phases.phase_of(vm) != phases.SCHEDULING:
            return ()
        in_the_way = phases.WITH_GUEST if attempts.is_open(vm) else phases.WITH_POD
        found = (each for key in claims_of_vm(vm) for each in islice(self._informers.vms.by_index(BY_CLAIM, key), MAX_NAMESAKES))
        others = {name_of(each): each for each in found if uid_of(each) != uid_of(vm) and phases.phase_of(each) in in_the_way}
        mine = disk_claims.claimed(vm)
        theirs = {name: disk_claims.claimed(each) for name, each in others.items()}
        return tuple((claim, name) for name, other in theirs.items() for claim in disk_claims.contested(mine, other))

    def _files_in_use(self, vm: Object, pod: Object | None) -> tuple[str, ...]:
        """Return which files of its pod's node a machine that is not handed over yet has to wait for, and whom."""
        node = pod_state.node_of(pod)
        keys = map(_key_of_file, disk_claims.files_of(vm))
        found = (each for key in keys for each in islice(self._informers.vms.by_index(BY_CLAIM, key), MAX_NAMESAKES))
        there = {uid_of(each): each for each in found if node and dig(each, "status", "nodeName") == node}
        others = [each for uid, each in there.items() if uid != uid_of(vm) and phases.phase_of(each) in phases.WITH_GUEST]
        return tuple(f"{path} of node {node} by {_who(vm, other)}" for other in others for path in disk_claims.contested_files(vm, other))

    def _namesakes(self, vm: Object) -> tuple[str, ...]:
        """Return the names of other machines with a pod that have a MAC address of this one; of many machines that share one, some."""
        found = (each for key in macs_of_vm(vm) for each in islice(self._informers.vms.by_index(BY_MAC, key), MAX_NAMESAKES))
        return tuple(sorted({name_of(each) for each in found if uid_of(each) != uid_of(vm) and phases.phase_of(each) in phases.WITH_POD}))

    def _known_pods(self, vm: Object, references: tuple[Reference, ...]) -> tuple[Object, ...]:
        """Return the machine's pods as far as the copy here tells."""
        pods = {uid_of(each): each for each in self._informers.pods.by_index(BY_OWNER, ownership.owner_key(namespace_of(vm), uid_of(vm)))}
        for reference in references:
            found = self._informers.pods.get(namespace_of(vm), reference.name)
            if found is not None and ownership.is_meant(found, reference, vm):
                pods[uid_of(found)] = found
        return tuple(pods.values())

    async def _live_pods(self, vm: Object, references: tuple[Reference, ...]) -> tuple[Object, ...]:
        """Return the machine's pods as the server has them: those that it finds by label, and those that are named, whatever they bear."""
        selector = f"{names.CREATED_BY_LABEL}={uid_of(vm)}"
        listed = await self._client.list(PODS, namespace_of(vm), label_selector=selector, limit=LIVE_PAGE, trim=trim_pod)
        pods = {uid_of(each): each for each in listed["items"] if ownership.is_controlled_by(each, vm)}
        for reference in references:
            if reference.uid in pods:
                continue
            try:
                found = await self._client.get(PODS, reference.name, namespace_of(vm))
            except errors.NotFound:
                continue
            if ownership.is_meant(found, reference, vm) or ownership.is_controlled_by(found, vm):
                pods[uid_of(found)] = found
        return tuple(pods.values())

    def _lingers(self, vm: Object, own: Reference | None, pods: tuple[Object, ...]) -> float:
        if own is None or not own.uid or not planning.is_handled(vm):
            self._absences.forget(key_of(vm))
            return 0.0
        if (found := next((pod for pod in pods if uid_of(pod) == own.uid), None)) is not None:
            self._absences.present(vm, found)
            return 0.0
        return self._absences.left(vm, own.uid, launcher_pod.grace_seconds(vm))

    def _tell_unwatched(self, seen: Observed) -> bool:
        """Say once of each pod that it lost what leads to it; return whether there is one."""
        found = {uid_of(pod): pod for pod in seen.pods if not pod_state.is_over(pod) and is_unwatched(pod, seen.vm)}
        told = self._told.pop(key_of(seen.vm), frozenset())
        for uid in found.keys() - told:
            name = name_of(found[uid])
            message = f"the labels or the owner of pod {name} were taken off: it is this machine's pod all the same, by its uid; "
            message += f"what mends it: {ownership.mending(found[uid], seen.vm)}"
            self._recorder.event(seen.vm, VIRTUAL_MACHINES, "Warning", "PodNotMarked", message)
        if found:
            self._told[key_of(seen.vm)] = frozenset(found)
        return bool(found)


def _starting_pod(vm: Object, pods: tuple[Object, ...]) -> Object | None:
    """Return the pod that the status names, while it is not handed over."""
    reference = ownership.of_status(vm)
    if reference is None or phases.phase_of(vm) != phases.SCHEDULING:
        return None
    return next((each for each in pods if ownership.is_meant(each, reference, vm)), None)


def _who(vm: Object, other: Object) -> str:
    """Return the words for another machine, of which another namespace hears no name."""
    same = namespace_of(other) == namespace_of(vm)
    return f"virtual machine {name_of(other)}" if same else "a virtual machine of another namespace"


def _matters(vm: Object) -> bool:
    """Return whether the next plan decides something on the absence of pods, which is worth a request; a first start does not."""
    wish, current = power.decide(vm), power.current_attempt(vm)
    return wish.reason == "Deleting" or attempts.is_open(vm) or (wish.on and current > 0)
