"""Deletes images of guests' memory on this node's disk that no machine needs: used, discarded, incomplete, or of deleted machines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from apiserver.apis.meta import errors, objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import managed_save
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.client.rest import TransportError
from handler.pods.hanging import StorageHangs
from handler.storage.node_disk import Image

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0


class Disk(Protocol):
    """The images: ``node_disk.NodeDisk``."""

    def clear(self) -> None:
        """Delete what an interrupted save left. Raises OSError."""

    def images(self) -> list[Image]:
        """Return the images that exist. Raises OSError."""

    def delete(self, image: Image) -> None:
        """Delete an image. Raises OSError."""


class Sweep:
    """Deletes unneeded images."""

    def __init__(
        self,
        disk: Disk,
        get: Callable[[Image], Awaitable[Object]],
        unmount: Callable[[Image, str], Awaitable[None]],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """``get`` returns an image's machine, or raises NotFound; ``unmount`` unmounts an image in the pod with this uid."""
        self._disk = disk
        self._get = get
        self._unmount = unmount
        self._look_seconds = look_seconds

    async def run(self) -> None:
        """Delete images that no machine needs, repeatedly until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._look_seconds)

    async def look(self) -> None:
        """Delete the images of guests' memory that no machine needs now. Without virt-api's answer, an image stays."""
        try:
            await asyncio.to_thread(self._disk.clear)
            for image in await asyncio.to_thread(self._disk.images):
                await self._look(image)
        except OSError as error:
            logger.warning("cannot look for images of guests' memory: %s", error)

    async def _look(self, image: Image) -> None:
        try:
            vm = await self._machine(image)
            if vm is not None and managed_save.needs(vm, image.id):
                return
            if vm is not None and (pod_uid := dig_vm(vm, "status", "podUID")):
                await self._unmount(image, str(pod_uid))
            await asyncio.to_thread(self._disk.delete, image)
        except (errors.StatusError, TransportError, StorageHangs, OSError) as error:
            logger.warning("image %s of virtual machine %s/%s stays for now: %s", image.id, image.namespace, image.machine, error)
        else:
            logger.info("deleted image %s of virtual machine %s/%s", image.id, image.namespace, image.machine)

    async def _machine(self, image: Image) -> Object | None:
        try:
            vm = await self._get(image)
        except errors.NotFound as error:
            # kube-apiserver answers 404 without these details while it does not serve the group
            if (error.details.group, error.details.kind, error.details.name) != (*_KIND, image.machine):
                raise
            return None
        return vm if objects.uid_of(vm) == image.machine_uid else None


_KIND: Final = (VIRTUAL_MACHINES.group, VIRTUAL_MACHINES.plural)
