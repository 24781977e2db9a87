"""Prepares everything a domain needs before libvirt creates it, and cleans up after a failure."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Final

from launcher.domain import document, passed_through
from launcher.domain.definition import Definition, Tap
from launcher.domain.disk_origins import Found
from launcher.domain.values import InvalidSpecification
from launcher.hypervisor.port import Hypervisor, HypervisorError, OperationTimeout, Unavailable
from launcher.main.decisions.times import TIMES, Times
from launcher.main.disks import (
    blank_disks,
    disk_certificates,
    disk_secrets,
    disk_servers,
    file_sizes,
    files,
    firmware_state,
    kernel_files,
    made_disks,
    rbd_images,
    saved_images,
)
from launcher.main.disks.disk_servers import Network
from launcher.main.programs import passt, processors, virtiofs, zones
from launcher.main.programs.children import Children, CommandFailed
from launcher.main.programs.virtiofs import Filesystems
from launcher.protocol import messages

logger = logging.getLogger(__name__)

READY_SECONDS: Final = 60.0
"""libvirtd starts and probes QEMU in half a second, or several on a loaded node."""

StartFailure = (
    InvalidSpecification,
    files.DiskUnusable,
    made_disks.SourceUnusable,
    firmware_state.StateUnusable,
    saved_images.ImageUnusable,
    virtiofs.FilesystemUnusable,
    passt.NetworkUnusable,
    CommandFailed,
    HypervisorError,
    TimeoutError,
    OSError,
)
"""Errors that prevent a guest's start."""


class Preparation:
    """Prepares disks, file systems, addresses and libvirtd for a domain."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        children: Children,
        filesystems: Filesystems,
        guests_passt: passt.Passt,
        serve_addresses: Callable[[messages.Machine], None],
        network: Network,
        times: Times = TIMES,
    ) -> None:
        self._hypervisor = hypervisor
        self._times = times
        self._network = network
        self._children = children
        self._filesystems = filesystems
        self._passt = guests_passt
        self._serve_addresses = serve_addresses

    async def prepare(self, machine: messages.Machine, capabilities: str, *, arriving: bool = False, made_come: bool = False) -> str:
        """Prepare overlays, images, firmware and TPM state, and servers for the guest; return the XML when libvirtd is ready.

        ``arriving``: the guest comes from another pod, so its disks exist. ``made_come``: that pod may send the disks that it made.

        Raises:
            StartFailure: any of its errors; ``files.NotReady`` before anything except blank disks in claims was made.
        """
        if not arriving:
            await asyncio.to_thread(blank_disks.create, machine.domain)
            await asyncio.to_thread(file_sizes.prepare, machine.domain)
        found = await asyncio.to_thread(files.look, machine.domain)
        await disk_servers.require(machine.domain, self._network)
        await disk_certificates.prepare(self._children, machine.domain)
        await rbd_images.look(self._children, machine.domain)
        await asyncio.to_thread(kernel_files.require, machine.domain)
        await asyncio.to_thread(zones.require, machine.domain)
        own = await asyncio.to_thread(processors.look, machine.domain)
        nodes = await asyncio.to_thread(processors.nodes, own)
        xml = _xml(machine, found, own, nodes, pci_panic=self._hypervisor.has_pci_panic)
        self._serve_addresses(machine)
        await files.make_overlays(self._children, machine.domain, found)
        await made_disks.make(self._children, machine, may_come=made_come)
        identity = document.domain_uuid(machine.uid, machine.domain)
        await firmware_state.prepare(self._children, machine.domain, machine.uid, identity)
        await self._filesystems.start(machine.domain)
        await self._passt.start(machine.domain)
        await self._wait_ready(capabilities)
        await disk_secrets.keep(self._hypervisor, machine.domain)
        return xml

    async def undo(self, name: str) -> None:
        """Destroy the domain of this name, if a failed start created one; give up after ``READY_SECONDS``."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                while True:
                    try:
                        await self._hypervisor.destroy(name)
                    except (Unavailable, OperationTimeout):
                        await asyncio.sleep(self._times.undo_retry)
                    else:
                        return
        except (TimeoutError, HypervisorError) as error:
            logger.warning("the domain may still exist; it ends with this pod", extra={"error": str(error)})

    async def _wait_ready(self, capabilities: str) -> None:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._hypervisor.ready()
                await self._hypervisor.learn(capabilities)
        except TimeoutError as error:
            raise OperationTimeout(f"libvirtd was not ready within {READY_SECONDS:g} s") from error


def _xml(machine: messages.Machine, found: Mapping[str, Found], own: tuple[int, ...], nodes: Mapping[int, int], *, pci_panic: bool) -> str:
    """Return a domain's XML, made from the machine's domain or from its own XML. Raises InvalidSpecification.

    The other arguments are fields of Definition; ``own``: ``processors``.
    """
    taps = {each.name: Tap(each.mac, each.tap, each.model, each.name) for each in machine.interfaces}
    definition = Definition(
        machine.namespace,
        machine.name,
        machine.uid,
        machine.domain,
        machine.accelerator,
        list(taps.values()),
        found,
        own,
        nodes,
        passed_through.variables(os.environ),
        machine.targets,
        pci_panic,
    )
    if machine.domain_xml:
        from launcher.domain import filling  # as in ``machines``

        return filling.fill(machine.domain_xml, definition, taps)
    for path in document.left_out(definition):
        logger.warning("ignored a field that requires KVM: the machine is emulated", extra={"field": f"spec.domain.{path}"})
    return document.to_xml(definition)
