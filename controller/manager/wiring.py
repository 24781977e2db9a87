"""The parts that run side by side in virt-controller, and what each waits for.

::

    process ─ health
            ├ admission of evictions, on every replica
            └ leader election ─ leading ┬ recorder
                                        ├ certificates (need only the core API)
                                        ├ the secret in the path of the evictions' webhook (likewise)
                                        ├ signing of nodes' certificates (likewise)
                                        ├ informers
                                        └ loops of virtual machines, migrations and upgrades (start when every informer is in sync)

The certificates come first because virt-api waits for its own: our API group answers 503, or nothing at all, until this process has led
for a moment. So nothing here waits for our own API but the loops that read it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from apiserver.apis.core.resources import LEASES, NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from apiserver.apis.virt import structure
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.delegated import Access
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from controller.evictions import admission
from controller.evictions.admission import Evictions
from controller.evictions.path_secret import PathSecret
from controller.evictions.webhook import PREFIX, EvictionWebhook, SecretRotation
from controller.manager.metrics import Metrics
from controller.manager.namespace_labels import NamespaceLabels
from controller.manager.options import Options
from controller.reconcilers import indexes, trimming
from controller.reconcilers.certificates import node_certificates
from controller.reconcilers.certificates.rotate_certificates import CertificateRotation
from controller.reconcilers.migrations import migration_turns
from controller.reconcilers.migrations.reconciler import Migrations
from controller.reconcilers.nodes import node_reports
from controller.reconcilers.pods import ownership
from controller.reconcilers.pods.absences import Absences
from controller.reconcilers.upgrades import workload_updates
from controller.reconcilers.virtual_machines import validation
from controller.reconcilers.virtual_machines.gathering import Gathering
from controller.reconcilers.virtual_machines.reconciler import VirtualMachines
from controller.runtime.clock import Clock
from controller.runtime.leaderelection import LeaderElector
from controller.runtime.leaderelection import Settings as LeaseSettings
from controller.runtime.reconciling import Controller
from controller.runtime.recorder import Recorder
from controller.runtime.validating import Validated
from controller.serving.evictions import EvictionServer
from controller.serving.health import Health
from controller.serving.metrics import MetricsServer

logger = logging.getLogger(__name__)

USER_AGENT = "virt-controller"
LEASE = "virt-controller"


class Runnable(Protocol):
    """A part of the process: works until cancelled."""

    async def run(self) -> None:
        """Work."""
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """The material that every part is made from."""

    client: Client
    recorder: Recorder
    clock: Clock
    options: Options
    metrics: Metrics
    namespace: str
    elapsed: Callable[[], float] = time.monotonic
    """Seconds that only grow: to measure how long something has not happened, whatever is done to the clock."""
    asking: Client | None = None
    """For evictions alone, by default ``client``: strangers ask for them, and a client has only so many requests under way."""


def runnables(environment: Environment) -> Sequence[Runnable]:
    """Return everything that only the leader runs. A part of its own goes in here; parts that need our API wait for it themselves."""
    webhook = {"ValidatingWebhookConfiguration": EvictionWebhook(environment.client)}
    certificates = CertificateRotation(
        environment.client, environment.namespace, policy=environment.options.certificates, consumers=webhook
    )
    lifetime = environment.options.certificates.node
    signing = node_certificates.Signing(environment.client, environment.namespace, lifetime, environment.clock, environment.metrics.loops)
    environment.metrics.watch_queue(signing.loop)
    parts: tuple[Runnable, ...] = (
        certificates,
        SecretRotation(environment.client),
        signing,
        environment.recorder,
        Machines(environment),
    )
    if environment.options.label_namespace:
        parts += (NamespaceLabels(environment.client, environment.namespace),)
    return parts


def _informers(client: Client, lease_namespace: str) -> indexes.Informers:
    """Return the copies of the cluster that the loops read; leases are those of virt-handlers."""
    return indexes.Informers(
        vms=Informer(
            client,
            VIRTUAL_MACHINES,
            indexers={
                indexes.BY_STORAGE: indexes.storage_of_vm,
                indexes.BY_HELD_STORAGE: indexes.held_storage_of_vm,
                indexes.BY_MAC: indexes.macs_of_vm,
                indexes.BY_WANTED_NODE: indexes.wanted_node_of_vm,
                indexes.BY_AGE: indexes.age_of_vm,
            },
            trim=trimming.trim_object,
        ),
        migrations=Informer(
            client,
            MIGRATIONS,
            indexers={
                indexes.BY_MACHINE: indexes.machine_of,
                indexes.BY_STATE: migration_turns.state_of,
                workload_updates.BY_UPDATE: workload_updates.update_of,
            },
            trim=trimming.trim_migration,
        ),
        pods=Informer(
            client,
            PODS,
            label_selector=f"{names.COMPONENT_LABEL}={names.LAUNCHER}",
            indexers={indexes.BY_OWNER: ownership.owners_of, indexes.BY_NODE: indexes.node_of_pod},
            trim=trimming.trim_pod,
        ),
        claims=Informer(client, PERSISTENT_VOLUME_CLAIMS, trim=trimming.trim_claim),
        nodes=Informer(client, NODES, trim=trimming.trim_node),
        leases=Informer(
            client,
            LEASES,
            lease_namespace,
            label_selector=f"{names.COMPONENT_LABEL}={names.HANDLER}",
            indexers={node_reports.BY_CONTRACT: node_reports.contract_of},
            trim=node_reports.trim_lease,
        ),
    )


class Machines:
    """The informers, and the loops that read them."""

    def __init__(self, environment: Environment) -> None:
        client, recorder, clock, elapsed = environment.client, environment.recorder, environment.clock, environment.elapsed
        options, settings = environment.options, environment.options.settings
        lease_namespace = options.node_lease_namespace or names.node_lease_namespace(environment.namespace)
        informers = self._informers = _informers(client, lease_namespace)
        reports = node_reports.NodeReports(client, informers.nodes, informers.leases, lease_namespace, elapsed)
        targets = Absences(elapsed)
        gathering = Gathering(client, clock, settings, informers, reports, targets=targets, elapsed=elapsed)
        machines = VirtualMachines(client, recorder, settings, informers, reports, gathering)
        moves = Migrations(client, recorder, clock, settings, informers, reports, targets=targets, limits=options.migrations)
        updates = workload_updates.WorkloadUpdates(client, recorder, clock, settings, informers, options.migrations)
        sound = (
            Validated(machines, informers.vms, recorder, VIRTUAL_MACHINES, validation.validate_virtual_machine),
            Validated(moves, informers.migrations, recorder, MIGRATIONS, structure.of_migration),
        )
        self._loops = (
            Controller("virtualmachines", sound[0], workers=options.workers, observer=environment.metrics.loops),
            Controller("migrations", sound[1], workers=options.workers, observer=environment.metrics.loops),
            Controller("workloadupdates", updates, workers=1, observer=environment.metrics.loops),
        )
        machines.subscribe(self._loops[0])
        moves.subscribe(self._loops[1])
        updates.subscribe(self._loops[2])
        environment.metrics.watch_outdated(lambda: sum(1 for _ in informers.vms.by_index(indexes.BY_AGE, indexes.OUTDATED)))
        for loop in self._loops:
            environment.metrics.watch_queue(loop)
        environment.metrics.watch_informers(
            (informers.vms, informers.migrations, informers.pods, informers.claims, informers.nodes, informers.leases)
        )

    async def run(self) -> None:
        """Follow the cluster; decide as soon as everything is known."""
        informers = self._informers
        async with asyncio.TaskGroup() as tasks:
            for informer in (
                informers.vms,
                informers.migrations,
                informers.pods,
                informers.claims,
                informers.nodes,
                informers.leases,
            ):
                tasks.create_task(informer.run())
            for loop in self._loops:
                tasks.create_task(loop.run(self._synced))

    async def _synced(self) -> None:
        informers = self._informers
        for informer in (informers.nodes, informers.leases, informers.claims, informers.pods, informers.migrations, informers.vms):
            await informer.synced.wait()
        logger.info("in sync", extra={"virtualmachines": len(informers.vms), "pods": len(informers.pods)})


async def run(environment: Environment, parts: Callable[[Environment], Sequence[Runnable]] = runnables) -> None:
    """Be virt-controller until cancelled; raises LeadershipLost when another took over."""

    async def lead() -> None:
        environment.metrics.leader.value = 1
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in parts(environment):
                    tasks.create_task(part.run())
        finally:
            environment.metrics.leader.value = 0

    options = environment.options
    # A standby is ready, too, so that a rolling update does not wait for a lease: there are no checks.
    health = Health(options.health_port, {})
    metrics = MetricsServer(options.metrics_port, environment.metrics.text, Access(environment.client), options.files)
    asking = environment.asking or environment.client
    moves = Informer(asking, MIGRATIONS, indexers={admission.BY_CONCERN: admission.concern_of}, trim=trimming.trim_migration)
    environment.metrics.watch_migrations(moves)
    admit = Evictions(asking, environment.clock, options.evictions, moves, namespace=environment.namespace).admit
    webhook = EvictionServer(options.webhook_port, PREFIX, admit, PathSecret(asking).holds, options.files)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(moves.run())
        tasks.create_task(webhook.run())
        tasks.create_task(health.run())
        tasks.create_task(metrics.run())
        tasks.create_task(_elected(environment, lead))


async def _elected(environment: Environment, lead: Callable[[], Awaitable[None]]) -> None:
    if not environment.options.leader_elect:
        await lead()
        return
    settings = LeaseSettings(environment.namespace, LEASE, environment.options.identity)
    await LeaderElector(environment.client, settings, environment.clock).run(lead)
