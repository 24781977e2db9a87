"""Saves the guest's memory to the storage of ``spec.managedSave``, which ends its run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Final

from apiserver.apis.virt.hardware import memory
from apiserver.apis.virt.places import saved_image
from launcher.hypervisor.port import Hypervisor, HypervisorError, OperationTimeout, Unavailable
from launcher.main.decisions import known, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import TIMES, Times
from launcher.main.disks import made_disks, saved_disks, saved_images
from launcher.main.lifecycle.watching import Watch

logger = logging.getLogger(__name__)

SAVED: Final = "saved"
"""libvirt's reason for the end of a saved domain."""
STEP_PERCENT: Final = 10
NO_CLAIM: Final = "this pod has no claim for the guest's memory: set spec.managedSave, and restart"
NO_NODE_DISK: Final = "virt-handler has not mounted a file of the node's disk in this pod"


class Saving:
    """Saves the guest's memory as an image on request."""

    def __init__(
        self, hypervisor: Hypervisor, watch: Watch, times: Times = TIMES, places: saved_images.Places = saved_images.PLACES
    ) -> None:
        self._hypervisor = hypervisor
        self._times = times
        self._watch = watch
        self._record = watch.record
        self._places = places
        self._begun: asyncio.Queue[tuple[str, Path]] = asyncio.Queue()

    async def run(self) -> None:
        """Save the guest's memory on each request, until cancelled."""
        while True:
            await self._save(*await self._begun.get())

    async def begin(self, operation_id: str, *, on_node_disk: bool = False) -> None:
        """Begin to save the guest; the operation's status gets the result. Raises RequestRefused."""
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, "suspend")
            if not self._places.has(on_node_disk=on_node_disk):
                raise RequestRefused("Failed", NO_NODE_DISK if on_node_disk else NO_CLAIM)
            if why := requests.why_not_saved(self._record.known):
                raise RequestRefused("Failed", why)
            self._record.take(known.saving, operation_id)
        self._begun.put_nowait((operation_id, self._places.of(on_node_disk=on_node_disk)))

    async def _save(self, operation_id: str, root: Path) -> None:
        partial: Path | None = None
        try:
            partial = await self._room(operation_id, root)
            await self._copy_disks(partial)
            await self._write(partial)
            sealed = await asyncio.to_thread(saved_images.seal, partial, partial.with_suffix(""))
        except (HypervisorError, saved_images.ImageUnusable, OSError) as error:
            logger.warning("the guest could not be saved", extra={"error": str(error)})
            if partial is not None:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(partial.unlink, missing_ok=True)
                    await asyncio.to_thread(partial.with_suffix(saved_images.DISKS).unlink, missing_ok=True)
            self._record.take(known.save_failed, str(error) or type(error).__name__)
            await self._watch.look()
            return
        image = saved_image.Image(operation_id, sealed.digest, sealed.size_bytes, sealed.machine)
        self._record.take(known.saved, f"the guest's memory was {image}", time.time())

    async def _room(self, operation_id: str, root: Path) -> Path:
        machine = self._record.known.machine
        if machine is None:
            raise saved_images.ImageUnusable("this pod has no machine")
        needed = memory.max_guest_bytes(machine.domain)
        directory = await asyncio.to_thread(saved_images.make_room, machine.uid, needed, root)
        return directory / f"{operation_id}{saved_images.PARTIAL}"

    async def _copy_disks(self, image: Path) -> None:
        if (machine := self._record.known.machine) is not None:
            await asyncio.to_thread(saved_disks.save, image, made_disks.names(machine.domain))

    async def _write(self, partial: Path) -> None:
        """Save the guest's memory to the file, and record progress. Raises HypervisorError.

        If the answer is lost, the domain's state tells whether it was saved.
        """
        async with asyncio.TaskGroup() as group:
            progress = group.create_task(self._follow())
            error = await self._call(partial)  # an exception in the group would become a group
            progress.cancel()
        if error is not None:
            raise error

    async def _call(self, partial: Path) -> HypervisorError | None:
        name = self._record.known.name
        try:
            await self._hypervisor.save(name, str(partial))
        except (Unavailable, OperationTimeout) as error:
            await self._hypervisor.ready()
            try:
                seen = await self._hypervisor.observe(name)
            except HypervisorError as again:
                return again
            is_saved = seen is not None and not seen.active and seen.reason == SAVED
            return None if is_saved else error
        except HypervisorError as error:
            return error
        return None

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._times.save_look)
            with contextlib.suppress(HypervisorError):
                figures = await self._hypervisor.progress(self._record.known.name)
                if figures is not None and figures.data_total_bytes:
                    percent = 100 - 100 * figures.data_remaining_bytes // figures.data_total_bytes
                    self._record.take(known.save_advanced, percent // STEP_PERCENT * STEP_PERCENT)
