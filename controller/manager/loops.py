"""The table of virt-controller's loops: each with its reconciler, its informers, and its rights at kube-apiserver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from apiserver.apis.core.resources import EVENTS, LEASES, NAMESPACES, NODES, PERSISTENT_VOLUME_CLAIMS, PODS, PRIORITY_CLASSES
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt import structure
from apiserver.apis.virt.lifecycle import failed_starts
from apiserver.apis.virt.lifecycle.replica_sets import REPLICATE, ROLLOUT
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATION_POLICIES, MIGRATIONS, REPLICA_SETS, VIRTUAL_MACHINES, WATCH_IDLE_SECONDS
from apiserver.apis.virt.spec import attachments
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from apiserver.client.store import Indexer
from controller.manager.rights import Right
from controller.reconcilers import indexes, trimming
from controller.reconcilers.fencing.fence_agent import Executable
from controller.reconcilers.fencing.reconciler import Fencing
from controller.reconcilers.migrations import migration_turns
from controller.reconcilers.migrations.reconciler import Migrations
from controller.reconcilers.nodes import node_reports
from controller.reconcilers.nodes.node_reports import NodeReports
from controller.reconcilers.non_operational.reconciler import NonOperationalNodes
from controller.reconcilers.pods import ownership
from controller.reconcilers.pods.absences import Absences
from controller.reconcilers.replica_sets import claims, membership
from controller.reconcilers.replica_sets.reconciler import ReplicaSets
from controller.reconcilers.settings import FenceAgent, MigrationLimits, Settings, TaintEffect
from controller.reconcilers.upgrades import workload_updates
from controller.reconcilers.virtual_machines import validation
from controller.reconcilers.virtual_machines.gathering import Gathering
from controller.reconcilers.virtual_machines.reconciler import VirtualMachines
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller, Observer, Reconciler
from controller.runtime.recorder import Recorder
from controller.runtime.validating import Validate, Validated


@dataclass(frozen=True, slots=True)
class Source:
    """Which objects an informer copies, and how: trimmed and indexed."""

    resource: Resource
    trim: Callable[[Object], Object]
    indexers: Mapping[str, Indexer] = field(default_factory=dict)
    component: str = ""
    """Value of their component label; empty: any."""
    of_leases: bool = False
    """Only those in the namespace of nodes' leases."""

    def informer(self, client: Client, lease_namespace: str) -> Informer:
        """Return a new informer of these objects, which the caller runs; only Leases are limited to ``lease_namespace``."""
        return Informer(
            client,
            self.resource,
            lease_namespace if self.of_leases else None,
            label_selector=f"{names.COMPONENT_LABEL}={self.component}" if self.component else "",
            indexers=self.indexers,
            trim=self.trim,
            idle_seconds=WATCH_IDLE_SECONDS if self.resource.group == names.GROUP else None,
        )

    def right(self) -> Right:
        """Return the right to list and watch these objects."""
        return Right(self.resource.group, self.resource.plural, "list watch", scope="node leases" if self.of_leases else "cluster")


SOURCES: Final[Mapping[str, Source]] = MappingProxyType(
    {
        "vms": Source(
            VIRTUAL_MACHINES,
            trimming.trim_object,
            {
                indexes.BY_STORAGE: indexes.storage_of_vm,
                indexes.BY_HELD_STORAGE: indexes.held_storage_of_vm,
                indexes.BY_MAC: indexes.macs_of_vm,
                indexes.BY_WANTED_NODE: indexes.wanted_node_of_vm,
                indexes.BY_LOSS: indexes.loss_of_vm,
                indexes.BY_FAILED_START: indexes.failures_of_vm,
                indexes.BY_TRIED_NODE: failed_starts.tried_nodes,
                indexes.BY_AGE: indexes.age_of_vm,
                membership.BY_CONTROLLER: membership.controller_of_vm,
            },
        ),
        "migrations": Source(
            MIGRATIONS,
            trimming.trim_migration,
            {
                indexes.BY_MACHINE: indexes.machine_of,
                indexes.BY_STATE: migration_turns.state_of,
                workload_updates.BY_UPDATE: workload_updates.update_of,
            },
        ),
        "pods": Source(
            PODS,
            trimming.trim_pod,
            {indexes.BY_OWNER: ownership.owners_of, indexes.BY_NODE: indexes.node_of_pod},
            component=names.LAUNCHER,
        ),
        "claims": Source(PERSISTENT_VOLUME_CLAIMS, trimming.trim_claim, {claims.BY_SET: claims.set_of}),
        "nodes": Source(
            NODES,
            trimming.trim_node,
            {
                indexes.BY_DEVICE: indexes.devices_of_node,
                indexes.BY_EMPTYING: indexes.emptying_of_node,
                indexes.BY_FENCE: indexes.fence_of_node,
            },
        ),
        "leases": Source(
            LEASES,
            node_reports.trim_lease,
            {node_reports.BY_PROTOCOL: node_reports.protocol_of},
            component=names.HANDLER,
            of_leases=True,
        ),
        "replica_sets": Source(REPLICA_SETS, trimming.trim_replica_set, {membership.BY_NAMESPACE: membership.namespace_of_set}),
        "guardians": Source(LEASES, trimming.trim_guardian, component=names.GUARDIAN, of_leases=True),
    }
)
"""By field of :class:`controller.reconcilers.indexes.Informers`."""


@dataclass(frozen=True, slots=True)
class Material:
    """Client, settings and informers that the loops share."""

    client: Client
    recorder: Recorder
    clock: Clock
    settings: Settings
    limits: MigrationLimits
    elapsed: Callable[[], float]
    informers: indexes.Informers
    reports: NodeReports
    targets: Absences
    fence_agent: FenceAgent | None = None
    taint: TaintEffect | None = None


class Subscriber(Reconciler, Protocol):
    """A reconciler that says which changes of which objects enqueue a request."""

    def subscribe(self, controller: Controller) -> None:
        """Subscribe to informers, so changes enqueue requests in ``controller``."""
        ...


@dataclass(frozen=True, slots=True)
class Loop:
    """One of virt-controller's loops: how to make it, and the informers and rights that it needs."""

    name: str
    """Label ``controller`` of its metrics."""
    make: Callable[[Material], Subscriber]
    informers: tuple[str, ...]
    """Names in :data:`SOURCES`."""
    rights: tuple[Right, ...]
    validate: Validate | None = None
    """Returns the faults of an object of the first informer."""
    workers: int | None = None


def _machines(given: Material) -> Subscriber:
    gathering = Gathering(
        given.client, given.clock, given.settings, given.informers, given.reports, targets=given.targets, elapsed=given.elapsed
    )
    return VirtualMachines(given.client, given.recorder, given.settings, given.informers, given.reports, gathering)


def _migrations(given: Material) -> Subscriber:
    return Migrations(
        given.client,
        given.recorder,
        given.clock,
        given.settings,
        given.informers,
        given.reports,
        targets=given.targets,
        limits=given.limits,
    )


def _updates(given: Material) -> Subscriber:
    return workload_updates.WorkloadUpdates(given.client, given.recorder, given.clock, given.settings, given.informers, given.limits)


def _replica_sets(given: Material) -> Subscriber:
    return ReplicaSets(given.client, given.recorder, given.clock, given.informers)


def _fencing(given: Material) -> Subscriber:
    settings = given.fence_agent
    assert settings is not None  # noqa: S101 - else the loop does not run
    agent = Executable(settings.path, settings.timeout_seconds)
    return Fencing(
        given.client,
        given.recorder,
        given.clock,
        given.informers,
        given.reports,
        agent,
        delay=settings.delay_seconds,
        elapsed=given.elapsed,
    )


def _non_operational(given: Material) -> Subscriber:
    assert given.taint is not None  # noqa: S101 - else the loop does not run
    shared_seconds = given.settings.times.shared
    return NonOperationalNodes(given.client, given.clock, given.informers, given.reports, given.taint, given.elapsed, shared_seconds)


def _right(resource: Resource, verbs: str, subresource: str = "") -> Right:
    return Right(resource.group, f"{resource.plural}/{subresource}" if subresource else resource.plural, verbs)


_OF_PODS: Final = (
    _right(PODS, "get create delete"),
    _right(EVENTS, "list"),
    _right(attachments.NETWORK_ATTACHMENT_DEFINITIONS, "get"),
    Right(LEASES.group, LEASES.plural, "get", scope="node leases"),
    _right(VIRTUAL_MACHINES, "get"),
)
"""For loops that create pods and judge whether they may run."""

LOOPS: Final[Sequence[Loop]] = (
    Loop(
        "virtualmachines",
        _machines,
        informers=("vms", "migrations", "pods", "claims", "nodes", "leases", "guardians"),
        rights=(
            *_OF_PODS,
            _right(PRIORITY_CLASSES, "list"),
            _right(PODS, "patch", "status"),
            _right(PODS, "patch", "resize"),
            _right(VIRTUAL_MACHINES, "patch"),
            _right(VIRTUAL_MACHINES, "patch", "status"),
        ),
        validate=validation.validate_virtual_machine,
    ),
    Loop(
        "migrations",
        _migrations,
        informers=("migrations", "vms", "pods", "claims", "nodes", "leases"),
        rights=(
            *_OF_PODS,
            _right(MIGRATIONS, "get patch delete"),
            _right(MIGRATIONS, "patch", "status"),
            _right(MIGRATION_POLICIES, "list"),
            _right(NAMESPACES, "get"),
        ),
        validate=structure.of_migration,
    ),
    Loop(
        "workloadupdates",
        _updates,
        informers=("vms", "migrations", "pods", "claims"),
        rights=(_right(MIGRATIONS, "create"),),
        workers=1,
    ),
    Loop(
        "virtualmachinereplicasets",
        _replica_sets,
        informers=("replica_sets", "vms", "claims"),
        rights=(
            _right(REPLICA_SETS, "get"),
            _right(REPLICA_SETS, "patch", "status"),
            _right(REPLICA_SETS, "create", REPLICATE),
            _right(REPLICA_SETS, "create", ROLLOUT),
            _right(VIRTUAL_MACHINES, "get patch delete"),
            _right(PERSISTENT_VOLUME_CLAIMS, "create delete"),
        ),
        validate=membership.faults,
    ),
)


FENCING: Final = Loop(
    "fencing",
    _fencing,
    informers=("nodes", "leases", "guardians", "vms"),
    rights=(_right(NODES, "get update"), Right(LEASES.group, LEASES.plural, "get", scope="node leases")),
)
"""Runs only if the chart's value ``fencing.agent`` names a fence agent."""

NON_OPERATIONAL: Final = Loop(
    "nonoperationalnodes",
    _non_operational,
    informers=("nodes", "leases", "guardians", "vms"),
    rights=(_right(NODES, "get update"), _right(NODES, "patch", "status")),
)
"""Runs only if the chart's value ``nonOperationalNodes.taint`` has an effect."""

EVICTING: Final = _right(PODS, "create", "eviction")
"""For ``workloadupdates``, if the chart's value ``workloadUpdate.strategy`` is ``Evict``."""


def controller(loop: Loop, given: Material, *, workers: int, observer: Observer) -> Controller:
    """Return the Controller of a loop, subscribed to its informers; the caller runs it. ``workers``: unless the loop has a number."""
    reconciler = loop.make(given)
    sound: Reconciler = reconciler
    if loop.validate is not None:
        first = loop.informers[0]
        objects: Informer = getattr(given.informers, first)
        sound = Validated(reconciler, objects, given.recorder, SOURCES[first].resource, loop.validate)
    made = Controller(loop.name, sound, workers=loop.workers or workers, observer=observer)
    reconciler.subscribe(made)
    return made
