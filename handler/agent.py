"""virt-handler as a whole: its parts and their connections."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import errors, objects
from apiserver.apis.meta.objects import NamespacedName, Object
from apiserver.apis.virt.domainxml import subresource
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import migration_attempts, phases
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES, WATCH_IDLE_SECONDS
from apiserver.apis.virt.spec import guestinfo, screenshot
from apiserver.client.delegated import Access
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from certs.reloading import ClientTls, ServerTls
from controller.runtime.clock import SystemClock
from controller.runtime.reconciling import Controller, Reconciler
from controller.runtime.recorder import Recorder
from controller.runtime.validating import Validated
from controller.serving.health import Checks, Health
from controller.serving.metrics import MetricsServer
from handler import heartbeat
from handler.cpu.publishing import Labels
from handler.devices import host_disks
from handler.devices.acceleration import Verdict
from handler.devices.detection import Detection
from handler.identity.keeping import Identity
from handler.metrics.process import Metrics
from handler.metrics.statistics import GuestStatistics
from handler.node import Node
from handler.options import Options
from handler.plugins.calling import Plugins
from handler.plugins.deleting import Deleter, event_recorder
from handler.plugins.protocol import Kind
from handler.plugins.records import Records
from handler.pods import deadlines, launcher, passwords, places
from handler.pods import limits as link_limits
from handler.pods.deadlines import Deadlines
from handler.pods.links import Link, Links
from handler.pods.process import Launcher
from handler.pods.reads import Reads
from handler.pods.screenshots import Screenshots
from handler.probes.asking import Question
from handler.probes.node_sockets import NodeSockets
from handler.probes.prober import Prober
from handler.reconcilers import limits as loop_limits
from handler.reconcilers import validation
from handler.reconcilers.guests import guest_plan, guest_ports, run_guest
from handler.reconcilers.guests.pod_networks import PodNetworks
from handler.reconcilers.migrations import migrate_source, migrate_target, migration_ports, report_progress, side_plan
from handler.reconcilers.trimming import trim_machine, trim_migration
from handler.relays.incoming import Expected, Incoming
from handler.relays.outgoing import Destination, Outgoing
from handler.relays.running import Relays
from handler.storage.adding import PluginDisks
from handler.storage.node_disk import Image, NodeDisk
from handler.storage.node_disk_sweep import Sweep
from handler.streams.reading import Check, Reading
from handler.streams.server import Server, Target

logger = logging.getLogger(__name__)

FIGURES_SECONDS: Final = 5.0
STATISTICS_SECONDS: Final = 5.0
"""Limit for one guest's statistics: Prometheus waits ten seconds for a page by default."""
FINISH_LOOK_SECONDS: Final = 0.2
KVM_NUMBER: Final = (10, 232)
TUN_NUMBER: Final = (10, 200)
VHOST_VSOCK_NUMBER: Final = (10, 241)
CHECKS: Final[Mapping[str, Check]] = {
    guestinfo.NAME: guestinfo.parse,
    subresource.NAME: subresource.parse,
    screenshot.NAME: screenshot.parse,
}
"""Checks that convert a launcher's text to virt-api's answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts and limits of the parts."""

    loops: loop_limits.Limits = loop_limits.DEFAULT
    links: link_limits.Limits = link_limits.DEFAULT
    finish_seconds: float = 30.0
    """For running migrations when virt-handler ends; its pod has 45 s."""


DEFAULT_LIMITS: Final = Limits()


class Agent:
    """virt-handler's parts, connected."""

    def __init__(
        self,
        options: Options,
        client: Client,
        detection: Detection,
        *,
        node: guest_ports.Node | None = None,
        disks: guest_ports.Disks | None = None,
        identify: Callable[[int, str], Launcher] = Launcher.of,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Only create the parts. ``node``, ``disks`` and ``identify`` are for tests: pods there are only directories."""
        self._options = options
        self._limits = limits
        self._client = client
        self._detection = detection
        clock = SystemClock()
        name = options.node_name
        informer = functools.partial(Informer, client, idle_seconds=WATCH_IDLE_SECONDS)
        self.machines = informer(VIRTUAL_MACHINES, field_selector=f"status.nodeName={name}", trim=trim_machine)
        self.leaving = informer(MIGRATIONS, field_selector=f"status.sourceNode={name}", trim=trim_migration)
        self.coming = informer(MIGRATIONS, field_selector=f"status.targetNode={name}", trim=trim_migration)
        self.metrics = Metrics()
        self.metrics.verdict(detection.verdict)
        detection.subscribe(self.metrics.verdict)
        capabilities = options.capabilities / name
        self._labels = Labels(client, name, capabilities / "kvm.json", lambda: detection.verdict.accelerated)
        detection.subscribe(lambda _: self._labels.changed())
        self._clock = clock
        self._recorder = Recorder(client, names.HANDLER, clock, host=name)
        connect = functools.partial(launcher.connect, kubelet=options.kubelet, identify=identify, limits=limits.links)
        self.links = Links(connect, changed=self._link_changed, limits=limits.links)
        self._deadlines = Deadlines(deadlines.file_of(name), options.kubelet, self.links.connected)
        self.reads = Reads(self.links)
        self._statistics = GuestStatistics(name, self.machines.list, Reads(self.links, wait_seconds=STATISTICS_SECONDS))
        self._screenshots = Screenshots(options.kubelet)
        self.prober = Prober(
            functools.partial(Question, make_socket=NodeSockets().make),
            clock,
            may_be_asked=guest_plan.may_be_asked,
            changed=self._link_changed,
        )
        self.identity = Identity(client, name, options.namespace, options.certificates / name, clock)
        self._relays = Relays(self._outgoing, changed=self._relay_changed)
        self._tls: ClientTls | None = None
        self._streams: Server | None = None
        self._incoming = _RelayServer()
        allowed: dict[Kind, frozenset[str]] = {"network": frozenset(options.network_plugins), "storage": frozenset(options.storage_plugins)}
        theirs, records = Plugins(options.plugin_directory, allowed), Records(options.plugin_records / name)
        has_volumes = functools.partial(places.has_volumes, kubelet=options.kubelet)
        self._deleter = Deleter(records, theirs.call, has_volumes, event_recorder(self._recorder))
        images = options.managed_save_directory
        memory_images = NodeDisk(name, None if images is None else images / name, options.managed_save_keep_free_percent)
        real = Node(
            theirs,
            records,
            host_disks.Allowed(options.host_disks, options.host_disks_max_created),
            capabilities,
            memory_images=memory_images,
            kubelet=options.kubelet,
        )
        guests = node or real
        self._sweep = Sweep(memory_images, self._machine_of, functools.partial(self._unmount_image, real))
        self._loops = self._controllers(guests, disks or PluginDisks(theirs, records, options.kubelet))

    def _controllers(self, node: guest_ports.Node, disks: guest_ports.Disks) -> dict[str, Controller]:
        networks = self._networks = PodNetworks(node.prepare_network, self._clock, self._limits.loops)
        limits = self._limits.loops
        run = guest_ports.Ports(
            self.machines, self._client, self._recorder, node, disks, networks, self.links, self._clock, self.prober, limits
        )
        source, target = (
            migration_ports.Ports(
                self._client, informer, self.machines, self._recorder, node, disks, networks, self.links, self._clock, limits
            )
            for informer in (self.leaving, self.coming)
        )
        moves = functools.partial(Validated, events=self._recorder, resource=MIGRATIONS, validate=validation.validate_migration)
        leaves = migrate_source.MigrateSource(source, self._relays)
        comes = migrate_target.MigrateTarget(target, self._incoming, self._address)
        self._sides = (leaves, comes)
        reconcilers: dict[str, Reconciler] = {
            "vm": Validated(run_guest.RunGuest(run), self.machines, self._recorder, VIRTUAL_MACHINES, validation.validate_virtual_machine),
            "source": moves(leaves, self.leaving),
            "target": moves(comes, self.coming),
            "progress": report_progress.ReportProgress(source),
        }
        # each object has its own worker, because a pass may wait for a launcher that its guest controls
        return {name: Controller(name, reconciler, workers=None, observer=self.metrics.loops) for name, reconciler in reconcilers.items()}

    async def run(self) -> None:
        """Run all parts of virt-handler until cancelled."""
        for name, informer in (("vm", self.machines), ("source", self.leaving), ("target", self.coming), ("progress", self.leaving)):
            informer.subscribe(functools.partial(self._object_changed, name))
        self.machines.subscribe(lambda _, new: self._machine_changed(new))
        async with asyncio.TaskGroup() as tasks:
            for part in (
                self.identity,
                self.machines,
                self.leaving,
                self.coming,
                self._recorder,
                self.links,
                self.prober,
                self._relays,
            ):
                tasks.create_task(part.run())
            for loop in self._loops.values():
                tasks.create_task(loop.run(self._synced))
            tasks.create_task(self._deleter.run())
            tasks.create_task(self._sweep.run())
            tasks.create_task(self._deadlines.run())
            tasks.create_task(self._label())
            tasks.create_task(self._beat())
            tasks.create_task(Health(self._options.health_port, self._checks()).run())
            tasks.create_task(self._detection.run())
            tasks.create_task(self._offer_devices())
            tasks.create_task(self._serve())
            tasks.create_task(self._count())

    async def finish(self) -> None:
        """Start no further migration; return when running ones ended, at the latest after ``Limits.finish_seconds``."""
        for side in self._sides:
            side.ending = True
        under_way = self._under_way()
        if not under_way:
            return
        logger.info(
            "waiting for %d running migrations, at most %.0f s, before this virt-handler exits", under_way, self._limits.finish_seconds
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.finish_seconds):
                while self._under_way():  # noqa: ASYNC110 - both informers tell others; this looks for some seconds, once in a life
                    await asyncio.sleep(FINISH_LOOK_SECONDS)

    def _under_way(self) -> int:
        moving = (*self.leaving.list(), *self.coming.list())
        return sum(not validation.validate_migration(each) and side_plan.is_under_way(each) for each in moving)

    async def _synced(self) -> None:
        for informer in (self.machines, self.leaving, self.coming):
            await informer.synced.wait()

    def _checks(self) -> Checks:
        return {
            "virtual machines": self.machines.synced.is_set,
            "migrations": lambda: self.leaving.synced.is_set() and self.coming.synced.is_set(),
            "certificate": lambda: not self.identity.problem(),
            "streams": lambda: self._streams is not None and self._streams.ready.is_set(),
        }

    def _object_changed(self, loop: str, old: Object | None, new: Object | None) -> None:
        if (changed := new or old) is not None:
            self._loops[loop].enqueue(objects.key_of(changed))

    def _machine_changed(self, vm: Object | None) -> None:
        if vm is None:
            return
        for migration in self.leaving.list(objects.namespace_of(vm)):
            if dig_migration(migration, "spec", "selector", "name") == objects.name_of(vm):
                self._loops["source"].enqueue(objects.key_of(migration))

    def _link_changed(self, link: Link) -> None:
        for holder in link.holders:
            self._loops[holder.loop].queue.add(holder.request)

    def _relay_changed(self, migration_uid: str) -> None:
        for migration in self.leaving.list():
            if migration_attempts.uid_of(migration) == migration_uid:
                self._loops["source"].enqueue(objects.key_of(migration))

    async def _machine_of(self, image: Image) -> Object:
        return await self._client.get(VIRTUAL_MACHINES, image.machine, image.namespace)

    async def _unmount_image(self, node: Node, image: Image, pod_uid: str) -> None:
        link = self.links.get(pod_uid)
        if link is not None and link.connection is not None:
            await node.unmount_memory_image(pod_uid, link.connection, image)

    def _address(self) -> str:
        host = self._options.pod_ip
        return f"{f'[{host}]' if ':' in host else host}:{self._options.relay_port}"

    def _outgoing(self, migration_uid: str, pod_uid: str, destination: Destination) -> Outgoing:
        if self._tls is None:
            raise ValueError("this virt-handler has no certificate yet")
        return Outgoing(migration_uid, pod_uid, destination, self._tls, self.identity.trust.node_of, self._options.kubelet)

    def _lookup(self, machine: NamespacedName, uid: str) -> Target | None:
        if not self.machines.synced.is_set():
            raise errors.ServiceUnavailable(
                "virt-handler is starting and has not read its machines yet; try again", errors.Details(retry_after_seconds=1)
            )
        vm = self.machines.get(*machine)
        if vm is None or objects.uid_of(vm) != uid:
            return None
        pod_uid = str(dig_vm(vm, "status", "podUID") or "")
        link = self.links.get(pod_uid)
        if link is None or link.gone or link.status is None or link.status.domain is None:
            return Target(
                pod_uid, f"the guest is not running (phase {phases.phase_of(vm) or 'unknown'})", moving=link is not None and link.moving
            )
        interfaces = self._networks.interfaces(pod_uid)
        addresses = None if interfaces is None else tuple(address for each in interfaces if each.is_own for address in each.addresses)
        return Target(pod_uid, moving=link.moving, addresses=addresses)

    async def _ask(self, pod_uid: str, what: str) -> str:
        return await (self._screenshots.take(pod_uid) if what == screenshot.NAME else self.reads.read(pod_uid, what))

    async def _serve(self) -> None:
        await self.identity.ready.wait()
        options, files = self._options, self.identity.files
        self._tls = ClientTls(files)
        streams_tls, relays_tls = (ServerTls(files, clients=ssl.CERT_REQUIRED) for _ in range(2))
        self._streams = Server(
            self._lookup,
            streams_tls,
            port=options.streams_port,
            kubelet=options.kubelet,
            limits=options.stream_limits,
            reads=Reading(self._ask, CHECKS),
            set_password=functools.partial(passwords.send, self.links),
            make_socket=NodeSockets().make,
        )
        incoming = Incoming(relays_tls, self.identity.trust.node_of, port=options.relay_port, kubelet=options.kubelet)
        self._incoming.open(incoming)
        self.identity.trust.subscribe(incoming.verify_again)
        self.identity.trust.subscribe(self._relays.verify_again)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tls.run())
            tasks.create_task(self._streams.run())
            tasks.create_task(incoming.run())
            tasks.create_task(MetricsServer(options.metrics_port, self._metrics_page, Access(self._client), files).run())

    async def _metrics_page(self) -> bytes:
        return self.metrics.text() + await self._statistics.page()

    async def _label(self) -> None:
        await self._detection.decided.wait()  # an untried node keeps its labels
        await self._labels.run()

    async def _beat(self) -> None:
        options = self._options
        await heartbeat.run(self._client, options.node_name, options.node_lease_namespace, lambda: self._detection.verdict, self._clock)

    async def _offer_devices(self) -> None:
        # late, because gRPC and protobuf are the largest import after aiohttp, and flags need neither
        from handler.devices.macvtap import DIRECTORY, Macvtaps
        from handler.devices.plugin import Device, Offered, Plugin

        directory = self._options.kubelet / "device-plugins"
        tun = Plugin(Device(names.TUN_RESOURCE, "/dev/net/tun", *TUN_NUMBER), directory, offered=True)
        kvm = Plugin(Device(names.KVM_RESOURCE, "/dev/kvm", *KVM_NUMBER), directory, offered=self._detection.verdict.accelerated)

        async def offer_kvm() -> None:
            await self._detection.decided.wait()
            await kvm.run()

        def detected(verdict: Verdict) -> None:
            if verdict.accelerated:
                kvm.offer()

        self._detection.subscribe(detected)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(tun.run())
            tasks.create_task(offer_kvm())
            allowed: list[Offered] = []
            if self._options.allow_macvtap:
                allowed.append(Macvtaps(directory / DIRECTORY))
            if self._options.allow_vsock:
                allowed.append(Device(names.VHOST_VSOCK_RESOURCE, "/dev/vhost-vsock", *VHOST_VSOCK_NUMBER))
            for plugin in [Plugin(each, directory, offered=False) for each in allowed]:
                tasks.create_task(plugin.run())
                tasks.create_task(plugin.offer_when_found())

    async def _count(self) -> None:
        while True:
            self.metrics.links.value = len(self.links)
            self.metrics.streams.value = self._streams.count if self._streams is not None else 0
            self.metrics.certificate.value = self.identity.not_after.timestamp() if self.identity.not_after is not None else 0
            self.metrics.faults.value = sum(each.faults for each in (self.machines, self.leaving, self.coming))
            await asyncio.sleep(FIGURES_SECONDS)


class _RelayServer:
    def __init__(self) -> None:
        self._server: Incoming | None = None
        self._expected: dict[str, Expected] = {}

    def open(self, server: Incoming) -> None:
        self._server = server
        for migration_uid, expected in self._expected.items():
            server.expect(migration_uid, expected)

    def expect(self, migration_uid: str, expected: Expected) -> None:
        self._expected[migration_uid] = expected
        if self._server is not None:
            self._server.expect(migration_uid, expected)

    def forget(self, migration_uid: str) -> None:
        self._expected.pop(migration_uid, None)
        if self._server is not None:
            self._server.forget(migration_uid)
