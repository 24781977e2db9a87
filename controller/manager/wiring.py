"""The concurrent parts of virt-controller, and what each waits for.

::

    process ─ health
            ├ admission of evictions, on every replica
            ├ seals of guardians' Leases, on every replica
            └ leader election ─ leading ┬ recorder
                                        ├ certificates
                                        ├ the secret in the path of the evictions' webhook
                                        ├ signing of nodes' certificates
                                        ├ informers
                                        ├ requests to a virt-api that was lost with its node (controller.manager.lost_requests)
                                        └ loops (controller.manager.loops; each starts when its informers are in sync)

Certificates need only the core API, because virt-api waits for its own. Only the loops that read our API wait for virt-api.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from apiserver.apis.virt.places import deadlines, hypervisors, names
from apiserver.apis.virt.places.resources import MIGRATIONS, WATCH_IDLE_SECONDS
from apiserver.client.delegated import Access
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from controller.evictions import admission
from controller.evictions.admission import Evictions
from controller.evictions.path_secret import PathSecret
from controller.evictions.webhook import PREFIX, EvictionWebhook, SecretRotation
from controller.manager.loops import FENCING, LOOPS, NON_OPERATIONAL, SOURCES, Loop, Material, controller
from controller.manager.lost_requests import LostRequests
from controller.manager.metrics import Metrics
from controller.manager.namespace_labels import NamespaceLabels
from controller.manager.options import Options
from controller.reconcilers import indexes, trimming
from controller.reconcilers.certificates import node_certificates
from controller.reconcilers.certificates.rotate_certificates import CertificateRotation
from controller.reconcilers.indexes import Informers
from controller.reconcilers.nodes.node_reports import NodeReports
from controller.reconcilers.pods.absences import Absences
from controller.runtime.clock import Clock
from controller.runtime.leaderelection import LeaderElector
from controller.runtime.leaderelection import Settings as LeaseSettings
from controller.runtime.recorder import Recorder
from controller.sealing.sealing import Sealing, identity_of
from controller.serving.evictions import EvictionServer
from controller.serving.health import Health
from controller.serving.metrics import MetricsServer

logger = logging.getLogger(__name__)

USER_AGENT = "virt-controller"
LEASE = "virt-controller"
CPUINFO: Final = Path("/proc/cpuinfo")


class Runnable(Protocol):
    """A part of the process."""

    async def run(self) -> None:
        """Run the part until cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """The objects that virt-controller's parts share."""

    client: Client
    recorder: Recorder
    clock: Clock
    options: Options
    metrics: Metrics
    namespace: str
    elapsed: Callable[[], float] = time.monotonic
    asking: Client | None = None
    """Client for evictions, by default ``client``. Any user can cause evictions, and a client limits its concurrent requests."""
    electing: Client | None = None
    """Client for the leader's Lease, by default ``client``; there, a renewal waits for the loops' requests."""


def runnables(environment: Environment) -> Sequence[Runnable]:
    """Create the parts that run on the leader, and add their metrics; the caller runs them."""
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


class Machines:
    """The informers, and the loops that read them (:mod:`controller.manager.loops`)."""

    def __init__(self, environment: Environment) -> None:
        client, options, metrics = environment.client, environment.options, environment.metrics
        lease_namespace = _lease_namespace(environment)
        self._informers = {name: source.informer(client, lease_namespace) for name, source in SOURCES.items()}
        informers = Informers(**self._informers)
        self._lost_requests = LostRequests(client.give_up, informers.nodes)
        material = Material(
            client=client,
            recorder=environment.recorder,
            clock=environment.clock,
            settings=options.settings,
            limits=options.migrations,
            elapsed=environment.elapsed,
            informers=informers,
            reports=NodeReports(client, informers.nodes, informers.leases, lease_namespace, environment.elapsed, informers.guardians),
            targets=Absences(environment.elapsed),
            fence_agent=options.fence_agent,
            taint=options.taint,
        )
        optional = ((FENCING, options.fence_agent), (NON_OPERATIONAL, options.taint))
        loops = (*LOOPS, *(loop for loop, setting in optional if setting is not None))
        self._loops = {each: controller(each, material, workers=options.workers, observer=metrics.loops) for each in loops}
        for loop in self._loops.values():
            metrics.watch_queue(loop)
        metrics.watch_machines(informers.vms.list, options.settings.eviction_strategy)
        metrics.watch_nodes(lambda: sorted(informers.non_operational(environment.clock.now())))
        metrics.watch_outdated(lambda: sum(1 for _ in informers.vms.by_index(indexes.BY_AGE, indexes.OUTDATED)))
        metrics.watch_informers(tuple(self._informers.values()))

    async def run(self) -> None:
        """Run the informers, and each loop once those that it reads are in sync.

        A kind that virt-api does not serve yet delays only its loops.
        """
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers.values():
                tasks.create_task(informer.run())
            tasks.create_task(self._lost_requests.run())
            for row, loop in self._loops.items():
                tasks.create_task(loop.run(partial(self._synced, row)))

    async def _synced(self, row: Loop) -> None:
        for name in row.informers:
            await self._informers[name].synced.wait()
        logger.info("informers are in sync", extra={"controller": row.name, **{name: len(self._informers[name]) for name in row.informers}})


async def run(environment: Environment, parts: Callable[[Environment], Sequence[Runnable]] = runnables) -> None:
    """Run virt-controller until cancelled; ``parts`` makes what the leader runs. Raises LeadershipLost, in an exception group."""

    async def lead() -> None:
        environment.metrics.leader.value = 1
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in parts(environment):
                    tasks.create_task(part.run())
        finally:
            environment.metrics.leader.value = 0

    options = environment.options
    # No checks: a standby is also ready, so a rolling update does not wait for the lease.
    health = Health(options.health_port, {})
    metrics = MetricsServer(options.metrics_port, environment.metrics.page, Access(environment.client), options.files)
    asking = environment.asking or environment.client
    concern = {admission.BY_CONCERN: admission.concern_of}
    moves = Informer(asking, MIGRATIONS, indexers=concern, trim=trimming.trim_migration, idle_seconds=WATCH_IDLE_SECONDS)
    environment.metrics.watch_migrations(moves)
    admit = Evictions(asking, environment.clock, options.evictions, moves, namespace=environment.namespace).admit
    webhook = EvictionServer(options.webhook_port, PREFIX, admit, PathSecret(asking).holds, options.files)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(moves.run())
        tasks.create_task(webhook.run())
        tasks.create_task(health.run())
        tasks.create_task(metrics.run())
        if options.seals:
            tasks.create_task(_sealing(environment).run())
        tasks.create_task(_elected(environment, lead))


def _lease_namespace(environment: Environment) -> str:
    return environment.options.node_lease_namespace or names.node_lease_namespace(environment.namespace)


def _sealing(environment: Environment) -> Sealing:
    client, clock = environment.client, environment.clock
    recorder = Recorder(client, USER_AGENT, clock)
    identity = identity_of(environment.options.identity)
    may_seal = environment.options.virtual_nodes or not hypervisors.may_be_virtual(CPUINFO.read_text())
    if not may_seal:
        logger.warning("the node may be a virtual machine: seals no Lease of a guardian (guardian.virtualNodes)")
    return Sealing(client, recorder, clock, _lease_namespace(environment), identity, deadlines.elapsed, may_seal=may_seal)


async def _elected(environment: Environment, lead: Callable[[], Awaitable[None]]) -> None:
    if not environment.options.leader_elect:
        await lead()
        return
    settings = LeaseSettings(environment.namespace, LEASE, environment.options.identity)
    await LeaderElector(environment.electing or environment.client, settings, environment.clock).run(lead)
