"""The domain's start: once in a pod's life."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from launcher.hypervisor.port import DomainExists, Hypervisor
from launcher.main.decisions import known, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import TIMES, Times
from launcher.main.disks import disk_secrets, files, made_disks, saved_disks, saved_images
from launcher.main.lifecycle.making import Making
from launcher.main.lifecycle.preparation import StartFailure
from launcher.main.lifecycle.watching import Watch
from launcher.main.serving.console import Console
from launcher.main.serving.serial_ports import SerialPorts
from launcher.protocol import messages

logger = logging.getLogger(__name__)


class Start:
    """Starts the domain."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        watch: Watch,
        console: Console,
        ports: SerialPorts,
        making: Making,
        times: Times = TIMES,
        images: saved_images.Places = saved_images.PLACES,
        resumed: Callable[[], None] = lambda: None,
    ) -> None:
        """``resumed`` is called after a start from an image, even if the guest stays paused."""
        self._hypervisor = hypervisor
        self._times = times
        self._watch = watch
        self._record = watch.record
        self._console = console
        self._ports = ports
        self._making = making
        self._images = images
        self._resumed = resumed

    async def start(self, request: messages.Sync) -> None:
        """Make the domain and boot it, or resume ``request.image``, unless this was done before.

        A paused request leaves the guest paused. Raises RequestRefused, also after an earlier start that failed for good.
        """
        async with self._record.operation:
            if not requests.is_to_start(self._record.known, request.machine):
                return
            self._record.take(known.adopted, request.machine)
            await self._start(request)
        await self._watch.look()

    async def _start(self, request: messages.Sync) -> None:
        try:
            async with self._making.until_abandoned():
                await self._make(request)
        except files.NotReady as error:
            self._record.take(known.disowned)
            full = isinstance(error, files.NoRoom)
            raise RequestRefused("NotReady", str(error), error.disks, full=full, unresolved=error.unresolved) from error
        except StartFailure as error:
            async with self._making.until_abandoned():
                await self._fail(error)
            raise RequestRefused("Failed", str(error)) from error

    async def _make(self, request: messages.Sync) -> None:
        if request.image is not None:
            await self._restore(request, request.image)
            return
        name = self._record.known.name
        xml = await self._making.preparation.prepare(request.machine, request.capabilities)
        self._record.take(known.prepared, xml)
        await asyncio.to_thread(
            saved_images.delete_others, request.machine.uid, self._images.claim
        )  # a stale image must not outlive a boot
        logins = await asyncio.to_thread(disk_secrets.logins, request.machine.domain)
        await self._hypervisor.create(name, disk_secrets.revealed(xml, logins), validate=bool(request.machine.domain_xml))
        self._record.take(known.created)
        await self._attach()
        if not request.paused:
            self._record.take(known.set_running)
            await self._hypervisor.resume(name)

    async def _restore(self, request: messages.Sync, image: messages.Image) -> None:
        """Resume the guest from an image, durably marked as used before the processors run; a failure until then leaves it usable."""
        machine, name, root = request.machine, self._record.known.name, self._images.of(on_node_disk=image.on_node_disk)
        path, xml = await asyncio.to_thread(saved_images.checked, machine.uid, image.id, image.digest, root)
        await asyncio.to_thread(saved_images.delete_others, machine.uid, root, image.id)
        disks = made_disks.names(machine.domain)
        prepared = await self._making.preparation.prepare(machine, request.capabilities, arriving=True, made_come=bool(disks))
        self._record.take(known.prepared, prepared)
        await asyncio.to_thread(saved_disks.restore, path, disks)
        await self._hypervisor.restore(name, str(path), xml)
        await self._attach()
        self._record.take(known.set_running)  # from now on, a request to end shuts the guest down
        await asyncio.to_thread(saved_images.mark_used, path)
        self._record.take(known.created)
        if not request.paused:
            await self._hypervisor.resume(name)
        self._resumed()
        await asyncio.to_thread(saved_images.free, path)

    async def _attach(self) -> None:
        try:
            async with asyncio.timeout(self._times.console):
                if ports := self._record.known.serial_ports:
                    self._console.attach()
                    self._ports.attach(ports)
                    await self._console.connected.wait()
                    await self._ports.connected(ports)
        except TimeoutError:
            logger.warning("cannot connect to the serial port; the guest starts without its console")

    async def _fail(self, error: BaseException) -> None:
        if not isinstance(error, DomainExists):
            await self._making.preparation.undo(self._record.known.name)
        used = isinstance(error, saved_images.ImageUsed)
        self._record.take(known.ended, "start-failed", str(error) or type(error).__name__, time.time(), image_used=used)
