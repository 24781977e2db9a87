"""The pod's only domain: its parts, and which of them handles each request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.domainxml import subresource
from apiserver.apis.virt.hardware import consoles
from apiserver.apis.virt.spec import guestinfo, probes, screenshot
from launcher.hypervisor.port import DomainNotFound, Hypervisor
from launcher.main.agent import passwords
from launcher.main.agent.agent import Agent
from launcher.main.agent.authorized_keys import AuthorizedKeys
from launcher.main.agent.clock import GuestClock
from launcher.main.agent.commands import Commands
from launcher.main.decisions import agent_status, known, life, power_off, requests
from launcher.main.decisions.power_off import Termination
from launcher.main.decisions.times import TIMES, Times
from launcher.main.disks import disk_secrets, saved_images
from launcher.main.disks.disk_servers import NETWORK, Network
from launcher.main.lifecycle.before_stop import BeforeStop
from launcher.main.lifecycle.changing import Changes
from launcher.main.lifecycle.device_growth import DeviceGrowth
from launcher.main.lifecycle.disk_server_watch import DiskServerWatch
from launcher.main.lifecycle.free_space import FreeSpace, Measure, free_bytes
from launcher.main.lifecycle.freezing import Freezing
from launcher.main.lifecycle.imports import Imports
from launcher.main.lifecycle.making import Making
from launcher.main.lifecycle.migrations import Migrations
from launcher.main.lifecycle.operating import Operations
from launcher.main.lifecycle.plugging import Plugging
from launcher.main.lifecycle.preparation import Preparation
from launcher.main.lifecycle.record import Record
from launcher.main.lifecycle.saving import Saving
from launcher.main.lifecycle.signals import Signals
from launcher.main.lifecycle.starting import Start
from launcher.main.lifecycle.stopping import Stop
from launcher.main.lifecycle.suspension import Suspension
from launcher.main.lifecycle.watching import Watch
from launcher.main.programs import pod_memory
from launcher.main.programs.children import Children
from launcher.main.programs.passt import Passt
from launcher.main.programs.pod_memory import Available
from launcher.main.programs.virtiofs import Filesystems
from launcher.main.serving.console import Console
from launcher.main.serving.console_pipe import ConsolePipe, default_console_pipe
from launcher.main.serving.serial_ports import SerialPorts
from launcher.main.serving.wire import HandleRead
from launcher.protocol import messages, statistics

logger = logging.getLogger(__name__)


class ManagedDomain:
    """The pod's domain. ``run`` returns when the guest is off for good; ``handle`` and ``terminate`` may be called meanwhile."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        console: Callable[[Callable[[], None]], Console],
        ports: Callable[[Callable[[], None]], SerialPorts],
        children: Children,
        *,
        qemu_log: Callable[[str], Path],
        serve_addresses: Callable[[messages.Machine], None],
        status_changed: Callable[[], None],
        network: Network = NETWORK,
        measure: Measure = free_bytes,
        memory: Available = pod_memory.available,
        lacked_memory: Callable[[], bool] = pod_memory.was_lacking,
        times: Times = TIMES,
        images: saved_images.Places = saved_images.PLACES,
        console_pipe: Callable[[], ConsolePipe] = default_console_pipe,
        gets_devices: bool = True,
    ) -> None:
        """Create the parts.

        ``console`` and ``ports`` create the consoles, with a callback for changes of the number of viewers. ``qemu_log`` returns the file
        with QEMU's output by the domain's name. ``serve_addresses`` answers DHCP on exactly the machine's interfaces. ``measure`` returns
        disks' free space, ``memory`` the pod's available memory; ``lacked_memory`` returns whether the kernel killed a process for lack of
        memory. ``images`` are the places of images of the guest's memory. ``console_pipe`` makes the pipe for the container that logs the
        console; it and ``serve_addresses`` may raise OSError. ``gets_devices``: virt-handler can give block devices to this pod.
        """
        self._hypervisor = hypervisor
        self._make_console_pipe = console_pipe
        self._console_pipe: ConsolePipe | None = None
        self._record = Record(qemu_log=qemu_log, status_changed=status_changed, lacked_memory=lacked_memory, gets_devices=gets_devices)
        self.console = console(self._viewers_changed)
        self.ports = ports(self._viewers_changed)
        self._agent = Agent(
            hypervisor,
            answered=self._agent_answered,
            unresponsive=self._agent_unresponsive,
            gone=self._agent_gone,
            stopping=self._is_stopping,
            frozen=self._is_frozen,
            times=times,
        )
        self._keys = AuthorizedKeys(self._agent, machine=self._own_machine, reported=self._keys_reported, times=times)
        self._clock = GuestClock(self._agent, times)
        self._watch = Watch(hypervisor, self._record, self.console, self.ports, self._agent, self._clock, times)
        self._filesystems = Filesystems(children, look=self._watch.look, lost=self._filesystem_lost)
        self._passt = Passt(children, lost=self._passt_ended, found=self._passt_works_again)
        preparation = Preparation(hypervisor, children, self._filesystems, self._passt, serve_addresses, network, times)
        self._making = Making(hypervisor, self._record, preparation)
        self._imports = Imports(children, self._record, times=times)
        self._start = Start(hypervisor, self._watch, self.console, self.ports, self._making, times, images, self._clock.request)
        self._suspension = Suspension(hypervisor, self._watch, times)
        self._plugging = Plugging(hypervisor, children, self._watch, serve_addresses)
        self._saving = Saving(hypervisor, self._watch, times, images)
        signals = Signals(hypervisor, self._record, self._agent)
        self._commands = Commands(self._agent, times)
        self._freezing = Freezing(self._agent, self._record, times)
        self._operations = Operations(hypervisor, self._record, self._suspension, signals, self._saving, self._freezing)
        self._changes = Changes(hypervisor, self._watch)
        self._disk_servers = DiskServerWatch(self._watch, self._suspension, network, times)
        self._free_space = FreeSpace(self._watch, times, measure)
        self._device_growth = DeviceGrowth(hypervisor, self._record, times)
        self._migrations = Migrations(hypervisor, self._watch, self._making, times, memory)
        self._stop = Stop(hypervisor, self._watch, self._migrations, BeforeStop(self._record, self._freezing, self._commands).run, times)
        self.reads: Mapping[str, HandleRead] = {
            guestinfo.NAME: self._guest_info,
            subresource.NAME: self._domain_xml,
            probes.PING: self._agent.ping,
            statistics.NAME: self._statistics,
        }
        """Functions that read the domain, by their names in ``messages.Read``."""

    @property
    def status(self) -> messages.Status:
        """Return the status for virt-handler."""
        return self._record.known.status

    async def run(self) -> None:
        """Run all parts until the domain is over."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._migrations.run())
            parts = (
                self._watch,
                self._stop,
                self._agent,
                self._keys,
                self._imports,
                self._filesystems,
                self._passt,
                self._disk_servers,
                self._free_space,
                self._device_growth,
                self._saving,
                self._clock,
                self._freezing,
            )
            tasks = [group.create_task(part.run()) for part in parts]
            await self._record.over.wait()
            for task in tasks:
                task.cancel()

    def terminate(self) -> None:
        """Handle SIGTERM: begin to power the guest off within its grace period, or to end at once if it never ran."""
        now = self._record.known
        match power_off.termination(now):
            case Termination.ABANDON:
                self._making.abandon()
            case Termination.END:
                self._record.take(known.ended, "destroyed", life.NOT_RUN, time.time())
            case Termination.POWER_OFF:
                self._stop.request(now.machine.grace_seconds if now.machine is not None else 0.0)

    async def handle(self, request: messages.Action) -> None:
        """Carry out a request, or raise RequestRefused. Shutdowns, saves and migrations only begin: the status tells their end.

        The status also tells whether an operation failed. An import begins, and is refused with NotReady until it is done.
        """
        match request:
            case messages.Import():
                await self._imports.ask(request.machine)
            case messages.Sync():
                self._log_console(request.machine)
                await self._start.start(request)
            case messages.Shutdown():
                if requests.has_guest(self._record.known, "shut down"):
                    self._stop.request(max(request.grace_seconds, 0.0))
            case messages.Suspend():
                await self._suspension.suspend()
            case messages.Resume():
                await self._suspension.resume()
            case messages.Operate():
                await self._operations.operate(request)
            case messages.Change():
                await self._changes.change(request)
            case messages.SetPassword():
                await passwords.set_password(self._agent, request)
            case messages.Execute():
                await self._commands.run(request.command, request.seconds)
            case messages.AttachDisk() | messages.DetachDisk() | messages.AttachInterface() | messages.DetachInterface():
                await self._plugging.plug(request)
            case _:
                await self._migrate(request)

    async def _migrate(
        self,
        request: messages.PrepareMigrationTarget
        | messages.Migrate
        | messages.PauseForMigration
        | messages.AbortMigration
        | messages.ReleaseMigration,
    ) -> None:
        match request:
            case messages.PrepareMigrationTarget():
                self._log_console(request.machine)
                await self._migrations.prepare(request)
            case messages.Migrate():
                await self._migrations.migrate(request)
            case messages.PauseForMigration():
                await self._migrations.pause(request.migration_uid)
            case messages.AbortMigration():
                await self._migrations.abort(request.migration_uid)
            case messages.ReleaseMigration():
                await self._migrations.release(request)

    async def screenshot(self) -> bytes:
        """Return a picture of the guest's screen as PNG, also while it is paused, or raise RequestRefused."""
        requests.require_guest(self._record.known, "take a screenshot")
        with requests.errors_refused():
            return await self._hypervisor.screenshot(self._record.known.name, screenshot.MAX_BYTES)

    def _log_console(self, machine: messages.Machine) -> None:
        if self._console_pipe is not None or not consoles.is_logged(machine.domain):
            return
        try:
            self._console_pipe = self._make_console_pipe()
        except OSError as error:
            logger.warning("the output of the guest cannot be logged", extra={"error": str(error)})
        else:
            self.console.copy_to(self._console_pipe.write)

    async def _statistics(self) -> str:
        requests.require_guest(self._record.known, "read statistics")
        with requests.errors_refused():
            return statistics.encoded(await self._hypervisor.statistics(self._record.known.name))

    async def _domain_xml(self) -> str:
        """Return libvirt's XML of an existing domain, else the XML passed to it; ``spec.domainXML`` stays as its author wrote it.

        Raises RequestRefused.
        """
        now = self._record.known
        given = requests.given_xml(now)
        if not requests.has_own_xml(now):
            return given
        with requests.errors_refused():
            try:
                return disk_secrets.concealed(await self._hypervisor.describe(now.name))
            except DomainNotFound:
                return given

    def _viewers_changed(self) -> None:
        self._record.take(known.viewed, self.console.viewers + self.ports.viewers)

    def _agent_answered(self, told: Object) -> None:
        names = agent_status.names_of(self._record.known.machine)
        self._record.take(known.agent_answered, agent_status.status_of(told), agent_status.interfaces_of(told, names))

    def _agent_unresponsive(self, problem: str) -> None:
        self._record.take(known.agent_unresponsive, problem)

    def _is_stopping(self) -> bool:
        return self._record.known.stopping is not None

    def _is_frozen(self) -> bool:
        return self._record.known.status.frozen

    async def _guest_info(self) -> str:
        return await self._agent.read(agent_status.names_of(self._record.known.machine))

    def _own_machine(self) -> messages.Machine | None:
        now = self._record.known
        return None if now.arriving is not None or now.leaving is not None else now.machine

    def _keys_reported(self, status: messages.AuthorizedKeysStatus) -> None:
        self._record.take(known.keys_reported, status)

    def _filesystem_lost(self, name: str) -> None:
        self._record.take(known.filesystem_lost, name)

    def _passt_ended(self, problem: str) -> None:
        self._record.take(known.passt_ended, problem)

    def _passt_works_again(self) -> None:
        self._record.take(known.passt_works_again)

    def _agent_gone(self) -> None:
        self._record.take(known.agent_gone)
