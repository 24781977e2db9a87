from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from apiserver.apis.meta.errors import Forbidden
from apiserver.apis.meta.objects import Object, dig, key_of, name_of, namespace_of
from apiserver.apis.meta.validation import raise_if_any
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.apis.virt.rights.node_rights import machines, migrations
from apiserver.apis.virt.v1alpha1 import status_validation
from apiserver.client.config import Config
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from controller.runtime.clock import SystemClock
from controller.runtime.flowcontrol import TokenBucket
from controller.runtime.reconciling import Controller, Outcome
from controller.runtime.recorder import Recorder
from controller.runtime.validating import Validated
from handler.network.binding import Interface
from handler.plugins.calling import Plugins
from handler.plugins.deleting import Deleter, event_recorder
from handler.plugins.records import Records
from handler.pods import launcher, places
from handler.pods import limits as links
from handler.pods.launcher import Connection
from handler.pods.links import Link, Links
from handler.pods.process import Launcher
from handler.probes.asking import Question
from handler.probes.prober import Prober
from handler.reconcilers import validation
from handler.reconcilers.guests import guest_plan, guest_ports, run_guest
from handler.reconcilers.guests.pod_networks import PodNetworks
from handler.reconcilers.limits import Limits
from handler.reconcilers.migrations import migrate_source, migrate_target, migration_ports, report_progress
from handler.relays.incoming import Expected
from handler.relays.outgoing import Destination
from handler.storage import adding
from handler.storage.adding import PluginDisks
from handler.storage.node_disk import Image
from launcher.protocol import messages
from tests.fakes import rbac
from tests.fakes.kubeapi import FakeAPI
from tests.fakes.launcher import FakeLauncher
from tests.unit.handler.reconcilers.builders import a_vm

VMS = "/apis/kubevirt.io/v1alpha1/virtualmachines"
MIGS = "/apis/kubevirt.io/v1alpha1/migrations"
EVENTS = "/api/v1/events"
STORAGE_PLUGINS = frozenset({"images", "absent"})
PROBE_SECOND = 0.1
"""Seconds for which a probe with ``periodSeconds: 1`` pauses."""
HOSTS = {"n": "10.0.0.1", "n2": "10.0.0.2"}


def relay(node: str) -> str:
    return f"{HOSTS[node]}:8445"


async def _at_once(change: Callable[[], object]) -> None:
    change()


class FakeNode:
    def __init__(self) -> None:
        self.accelerator: messages.Accelerator = "qemu"
        self.accelerators: dict[str, messages.Accelerator] = {}
        """By pod uid, where it differs."""
        self.given = 0
        self.tried = 0
        self.wired = 0
        self.fault: Exception | None = None
        self.mounted: dict[str, str] = {}
        self.mounting: Callable[[Callable[[], object]], Awaitable[None]] = _at_once
        self.given_claims: list[str] = []
        self.ended: list[str] = []
        self.no_end: Exception | None = None
        self.refused_ends = 0
        self.memory_images: dict[Image, int] = {}
        """Mounted ones, with the guests' memory."""
        self.no_mount: Exception | None = None
        self.no_network: Exception | None = None
        self.cards: set[str] = set()
        self.joined = self.left = 0
        self.no_card: Exception | None = None
        self.forwarded: list[tuple[str, ...]] = []
        """Targets of departed guests' connections."""
        self.not_forwarded: Exception | None = None
        self.address = "10.244.0.5"
        self.is_own = True
        """The address belongs to the pod's own network."""

    async def give_devices(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> messages.Accelerator:
        self.given += 1
        if self.fault is not None:
            raise self.fault
        return self.accelerators.get(pod_uid, self.accelerator)

    async def mount_claim(self, pod_uid: str, connection: Connection, attachment_uid: str, disk: Mapping[str, Any]) -> None:
        if self.no_mount is not None:
            raise self.no_mount
        await self.mounting(lambda: self.mounted.update({str(disk["name"]): attachment_uid}))

    async def unmount_claim(self, pod_uid: str, connection: Connection, disk: Mapping[str, Any]) -> None:
        if self.no_mount is not None:
            raise self.no_mount
        await self.mounting(lambda: self.mounted.pop(str(disk["name"]), None))

    async def give_claim(self, attachment_uid: str) -> None:
        if self.no_mount is not None:
            raise self.no_mount
        self.given_claims.append(attachment_uid)

    async def end_attachment(self, attachment_uid: str) -> None:
        if self.no_end is not None:
            self.refused_ends += 1
            raise self.no_end
        self.ended.append(attachment_uid)

    async def mount_memory_image(self, pod_uid: str, connection: Connection, image: Image, new_bytes: int = 0) -> None:
        if self.no_mount is not None:
            raise self.no_mount
        await self.mounting(lambda: self.memory_images.update({image: new_bytes}))

    def capabilities(self, accelerator: messages.Accelerator) -> str:
        return f"<{accelerator}/>"

    async def forward(self, connection: Connection, addresses: Sequence[str]) -> None:
        self.forwarded.append(tuple(addresses))
        if self.not_forwarded is not None:
            raise self.not_forwarded

    async def prepare_network(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> tuple[Interface, ...]:
        self.tried += 1
        if self.no_network is not None:
            raise self.no_network
        self.wired += 1
        if not vm["spec"]["domain"]["devices"]["interfaces"]:
            return ()
        return (Interface("default", "02:00:00:00:00:09", "tap0", "virtio", (self.address,), is_own=self.is_own),)

    async def join_network(self, vm: dict[str, Any], card: str, pod_uid: str, connection: Connection) -> Interface:
        self.joined += 1
        if self.no_card is not None:
            raise self.no_card
        self.cards.add(card)
        return Interface(card, "02:00:00:00:00:10", "tap1", "virtio", (), is_own=False)

    async def leave_network(self, vm: dict[str, Any], card: str, pod_uid: str, connection: Connection) -> None:
        self.left += 1
        if self.no_card is not None:
            raise self.no_card
        self.cards.discard(card)


class FakeRelays:
    """Relays without bytes, and their server; ``servers`` are all nodes', by address."""

    def __init__(self, servers: dict[str, FakeRelays], address: str) -> None:
        self.servers = servers
        servers[address] = self
        self.open_ones: dict[str, tuple[str, Destination]] = {}
        self.expected: dict[str, Expected] = {}
        self.fault: Exception | None = None
        self.no_network: Exception | None = None

    async def open(self, migration_uid: str, pod_uid: str, destination: Destination) -> None:
        if self.fault is not None:
            raise self.fault
        self.open_ones[migration_uid] = (pod_uid, destination)

    def close(self, migration_uid: str) -> None:
        self.open_ones.pop(migration_uid, None)

    async def release(self, migration_uid: str, pod_uid: str, destination: Destination, *, paused: bool) -> None:
        if self.fault is not None:
            raise self.fault
        server = self.servers.get(destination.address)
        if server is None or migration_uid not in server.expected:
            raise ConnectionRefusedError(destination.address)
        try:
            await server.expected[migration_uid].release(paused)
        except (launcher.LauncherRefused, launcher.Disconnected) as error:
            raise ConnectionRefusedError(str(error)) from error

    def expect(self, migration_uid: str, expected: Expected) -> None:
        self.expected[migration_uid] = expected

    def forget(self, migration_uid: str) -> None:
        self.expected.pop(migration_uid, None)


@dataclass(frozen=True)
class Way:
    relays: migration_ports.Outgoing
    server: migration_ports.RelayServer
    address: str
    identify: Mapping[str, Callable[[int, str], Launcher]]


class Handler:
    def __init__(
        self,
        client: Client,
        node: str,
        kubelet: Path,
        launchers: Mapping[str, FakeLauncher],
        servers: dict[str, FakeRelays],
        way: Way | None = None,
        *,
        fake: FakeNode | None = None,
        address: str = "",
        limits: Limits,
        link_limits: links.Limits,
        disk_limits: adding.Limits,
    ) -> None:
        self.node = fake or FakeNode()
        address = address or relay(node)
        self.relays = FakeRelays(servers, address)
        way = way or Way(self.relays, self.relays, address, {pod_uid: found.identify for pod_uid, found in launchers.items()})
        clock = SystemClock()
        self.machines = Informer(client, VIRTUAL_MACHINES, field_selector=f"status.nodeName={node}")
        leaving = Informer(client, MIGRATIONS, field_selector=f"status.sourceNode={node}")
        coming = Informer(client, MIGRATIONS, field_selector=f"status.targetNode={node}")
        recorder = Recorder(client, "virt-handler", clock, host=node)

        def connect(pod_uid: str, on_status: Callable[[messages.Status], None], budget: TokenBucket) -> Any:
            found = launchers.get(pod_uid)
            identify = found.identify if found is not None else way.identify.get(pod_uid)
            if identify is None:
                raise launcher.Disconnected("no such pod")
            return launcher.connect(pod_uid, on_status, budget, kubelet=kubelet, identify=identify, limits=link_limits)

        self.links = Links(connect, changed=self._link_changed, limits=link_limits)
        self.passes: Counter[str] = Counter()
        self.asked = self.unasked = 0
        """How often a probe could, and could not, reach a guest; counted before and after each probe."""
        prober = Prober(
            partial(Question, make_socket=lambda family: socket.socket(family, socket.SOCK_STREAM)),
            clock,
            may_be_asked=self._may_be_asked,
            changed=self._link_changed,
            second=PROBE_SECOND,
        )
        plugins, records = Plugins(kubelet / "plugins", {"storage": STORAGE_PLUGINS}), Records(kubelet / "records")
        disks = PluginDisks(plugins, records, kubelet, disk_limits)
        deleter = Deleter(records, plugins.call, lambda uid: places.has_volumes(uid, kubelet), event_recorder(recorder))
        networks = PodNetworks(self.node.prepare_network, clock, limits)
        vm = guest_ports.Ports(self.machines, client, recorder, self.node, disks, networks, self.links, clock, prober, limits)
        sides = [
            migration_ports.Ports(client, each, self.machines, recorder, self.node, disks, networks, self.links, clock, limits)
            for each in (leaving, coming)
        ]
        moves = partial(Validated, events=recorder, resource=MIGRATIONS, validate=validation.validate_migration)
        self.loops = {
            "vm": Controller(
                "vm",
                Validated(run_guest.RunGuest(vm), self.machines, recorder, VIRTUAL_MACHINES, validation.validate_virtual_machine),
                workers=None,
                observer=self,
            ),
            "source": Controller("source", moves(migrate_source.MigrateSource(sides[0], way.relays), leaving), workers=None),
            "target": Controller(
                "target", moves(migrate_target.MigrateTarget(sides[1], way.server, lambda: way.address), coming), workers=None
            ),
            "progress": Controller("progress", report_progress.ReportProgress(sides[0]), workers=None),
        }
        self._parts: list[Callable[[], Awaitable[None]]] = [
            self.machines.run,
            leaving.run,
            coming.run,
            recorder.run,
            self.links.run,
            prober.run,
            deleter.run,
            *(loop.run for loop in self.loops.values()),
        ]
        for name, informer in (("vm", self.machines), ("source", leaving), ("target", coming), ("progress", leaving)):
            informer.subscribe(lambda old, new, name=name: self._enqueue(name, new or old))  # type: ignore[misc]  # a default binds the name
        self.machines.subscribe(lambda _, vm: self._machine_changed(leaving, vm))

    def _enqueue(self, loop: str, obj: Object) -> None:
        self.loops[loop].enqueue(key_of(obj))

    def _machine_changed(self, leaving: Informer, vm: Object | None) -> None:
        for migration in leaving.list(namespace_of(vm)) if vm is not None else ():
            if dig(migration, "spec", "selector", "name") == name_of(vm or {}):
                self._enqueue("source", migration)

    def reconciled(self, name: str, _outcome: Outcome, _seconds: float) -> None:
        self.passes[name] += 1

    def _may_be_asked(self, status: messages.Status | None) -> bool:
        found = guest_plan.may_be_asked(status)
        self.asked += found
        self.unasked += not found
        return found

    def _link_changed(self, link: Link) -> None:
        for holder in link.holders:
            self.loops[holder.loop].queue.add(holder.request)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for part in self._parts:
                tasks.create_task(part())  # type: ignore[arg-type]  # all of them are coroutines


class World:
    def __init__(self, api: FakeAPI, config: Config, kubelet: Path, stack: AsyncExitStack) -> None:
        self.api, self._config = api, config
        self._relays: dict[str, str] = {}
        self.refused: list[str] = []
        """Writes that virt-api would have refused."""
        api.judge = self._judge
        self.launchers: dict[str, FakeLauncher] = {}
        self.limits, self.link_limits, self.disk_limits = Limits(), links.Limits(), adding.Limits()
        self.servers: dict[str, FakeRelays] = {}
        self._kubelet = kubelet
        self.records = Records(kubelet / "records")
        self._stack = stack

    async def launcher(self, pod_uid: str, *, protocol: int = messages.PROTOCOL) -> FakeLauncher:
        made = self.launchers[pod_uid] = FakeLauncher(pod_uid)
        made.protocol = protocol
        await self._stack.enter_async_context(made.serving(self._kubelet))
        return made

    @asynccontextmanager
    async def handler(self, node: str = "n", way: Way | None = None, fake: FakeNode | None = None) -> AsyncIterator[Handler]:
        """Run a node's virt-handler with the node's token; the end of the block kills it."""
        async with Client(replace(self._config, token=node), user_agent="test") as client, asyncio.TaskGroup() as tasks:
            handler = Handler(
                client,
                node,
                self._kubelet,
                self.launchers,
                self.servers,
                way,
                fake=fake,
                limits=self.limits,
                link_limits=self.link_limits,
                disk_limits=self.disk_limits,
            )
            self._relays[node] = way.address if way is not None else relay(node)
            task = tasks.create_task(handler.run())
            try:
                yield handler
            finally:
                self.servers.pop(relay(node), None)
                task.cancel()

    def _judge(self, node: str, collection: str, old: Object, new: Object) -> None:
        """Complete and check a node's status write as virt-api does; record violated rights in ``refused``, and raise Forbidden."""
        now = datetime.now(UTC)
        if collection == VMS:
            VirtualMachineStrategy().prepare_for_status_update(new, old)
            raise_if_any(status_validation.validate_virtual_machine_status(new, old), group="", kind="VirtualMachine", name="")
            claimed = self.api.objects.get((MIGS, namespace_of(old), dig(new, "status", "migration", "name") or ""))
            found = machines.validate(machines.MachineWrite(node, old, new, now, claimed))
        else:
            raise_if_any(status_validation.validate_migration_status(new, old), group="", kind="Migration", name="")
            machine = self.api.objects.get((VMS, namespace_of(old), dig(old, "spec", "selector", "name")))
            host, _, port = self._relays[node].rpartition(":")
            found = migrations.validate(migrations.MigrationWrite(node, old, new, now, machine, frozenset({host}), int(port)))
        if found:
            self.refused += map(str, found)
            raise Forbidden("; ".join(map(str, found)))

    async def vm(self, **changes: Any) -> Object:
        vm = a_vm(**changes)
        del vm["metadata"]["resourceVersion"]
        return await self.api.put(VMS, vm)

    async def record(self, migration: Object, namespace: str = "default", name: str = "testvm") -> None:
        told = {"name": name_of(migration), "uid": migration["metadata"]["uid"], "phase": migration["status"]["phase"]}
        await self.api.edit(VMS, namespace, name, lambda vm: vm["status"].update(migration=told))

    def status(self) -> Any:
        return self.api.get(VMS, "default", "testvm")["status"]

    def writes(self) -> int:
        return len([1 for method, path, _ in self.api.writes if method in ("PUT", "PATCH") and "/virtualmachines/" in path])

    def events(self) -> list[str]:
        return [each["reason"] for each in self.api.all(EVENTS)]


@asynccontextmanager
async def a_world(kubelet: Path) -> AsyncIterator[World]:
    api = FakeAPI()
    api.authorize = rbac.authorizer("virt-handler")
    async with AsyncExitStack() as stack:
        config = await stack.enter_async_context(api.serving())
        world = World(api, config, kubelet, stack)
        yield world
    assert api.forbidden == []
    assert world.refused == []


async def eventually(condition: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def phase_is(world: World, phase: str) -> bool:
    return bool(world.status()["phase"] == phase)
