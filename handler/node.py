"""Prepares a pod of this node for its guest: devices and network."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from apiserver.apis.meta import descriptors, objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disk_imports, disks, host_devices, interfaces, memory, vsock
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import hot_plug
from apiserver.apis.virt.spec.described import domain_of
from handler.devices import block_claims, claims, host_disks, ownership, passthrough
from handler.network import setup
from handler.network.binding import Interface
from handler.plugins.calling import Plugins
from handler.plugins.records import Records
from handler.pods import attachments, hanging, places, qemu_capabilities
from handler.pods.launcher import Connection
from handler.pods.process import Launcher
from handler.storage.node_disk import Image, NodeDisk
from launcher.protocol import messages


def device_nodes(vm: Mapping[str, Any]) -> Iterator[ownership.Node]:
    """Yield the device nodes that the pod of ``vm`` may have for its guest."""
    domain = domain_of(vm)
    if interfaces.on_taps(domain):
        yield ownership.TUN
    yield ownership.KVM
    if vsock.defaulted(domain):
        yield ownership.VHOST_VSOCK
    for disk in disks.defaulted(domain):
        if disks.claim_of(disk) is not None:
            only_read = disk_imports.of(disk) is None and (disk["readOnly"] or disks.is_overlaid(disk))
            yield ownership.disk(disk["name"], read_only=only_read)


Give = Callable[[int, ownership.Node], bool]
"""Gives a device node below a root to the pod's user; returns whether it exists. Raises NotTheDevice, OSError."""


class Node:
    """Prepares pods of this node for their guests; ``guest_ports.Node`` names the errors."""

    def __init__(
        self,
        plugins: Plugins | None = None,
        records: Records | None = None,
        files: host_disks.Allowed | None = None,
        capabilities: Path = Path("/nonexistent"),
        *,
        memory_images: NodeDisk | None = None,
        kubelet: Path = places.KUBELET_DIRECTORY,
        give: Give = ownership.give,
        patience_seconds: float = hanging.PATIENCE_SECONDS,
    ) -> None:
        """Only store the settings.

        ``files`` are allowed as disks, ``capabilities`` is the directory of libvirt's data. A call waits ``patience_seconds`` for a pod
        with a hanging disk.
        """
        self._give = give
        self._files = files or host_disks.Allowed()
        self._capabilities = capabilities
        self._networks = setup.Networks(plugins, records)
        self._memory_images = memory_images or NodeDisk("", None)
        self._kubelet = kubelet
        self._mounts = hanging.Calls[None](patience_seconds)
        self._calls = hanging.Calls[messages.Accelerator](patience_seconds)

    async def give_devices(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> messages.Accelerator:
        """Give the pod's device nodes to its user, and mount the node's files that are its disks. Return KVM if the pod has the device."""
        nodes = list(device_nodes(vm))
        domain = domain_of(vm)
        passes = bool(host_devices.passed_through(domain))
        lock = functools.partial(passthrough.allow_locking, connection.process.pid, memory.guest_bytes(domain)) if passes else None

        files = host_disks.files(domain, self._files, objects.namespace_of(vm))

        def begin() -> Callable[[], messages.Accelerator]:
            root, process = (
                os.dup(connection.process.root),
                os.dup(connection.process.pidfd),
            )  # the connection may end earlier than the call
            return functools.partial(_give, self._give, root, process, nodes, files, lock)

        return await self._calls.run(pod_uid, begin)

    async def mount_claim(self, pod_uid: str, connection: Connection, attachment_uid: str, disk: Mapping[str, Any]) -> None:
        """Mount what an attachment pod has for a disk in a guest's pod; OSError also while the attachment pod does not listen yet."""

        def begin() -> Callable[[], None]:
            return functools.partial(_mount_claim, connection.process.duplicate(), pod_uid, self._kubelet, attachment_uid, disk)

        await self._mounts.run(pod_uid, begin, f"mount {disk['name']}", after=f"unmount {disk['name']}")

    async def unmount_claim(self, pod_uid: str, connection: Connection, disk: Mapping[str, Any]) -> None:
        """Unmount a disk's claim, image and overlay in a guest's pod, so no process there uses them."""

        def begin() -> Callable[[], None]:
            return functools.partial(_unmount_claim, connection.process.duplicate(), pod_uid, disk)

        await self._mounts.run(pod_uid, begin, f"unmount {disk['name']}", after=f"mount {disk['name']}")

    async def give_claim(self, attachment_uid: str) -> None:
        """Give a block claim's device in an attachment pod to that pod's user, for an import; a file system stays as it is."""

        def begin() -> Callable[[], None]:
            return functools.partial(_give_claim, self._give, self._kubelet, attachment_uid)

        await self._mounts.run(attachment_uid, begin, "give the claim")

    async def end_attachment(self, attachment_uid: str) -> None:
        """Kill an attachment pod's processes, and wait for their end. Raises OSError EBUSY if they do not end."""

        def begin() -> Callable[[], None]:
            return functools.partial(attachments.end, attachment_uid)

        await self._mounts.run(attachment_uid, begin, "end")

    async def mount_memory_image(self, pod_uid: str, connection: Connection, image: Image, new_bytes: int = 0) -> None:
        """Mount a memory image's file system in a pod; if ``new_bytes``, first make a missing image."""

        def begin() -> Callable[[], None]:
            return functools.partial(_mount_image, self._memory_images, connection.process.duplicate(), image, new_bytes)

        await self._mounts.run(pod_uid, begin, "mount the memory image", after="unmount the memory image")

    async def unmount_memory_image(self, pod_uid: str, connection: Connection, image: Image) -> None:
        """Unmount a memory image in a pod, if mounted. Raises StorageHangs, OSError: EBUSY while a process of the pod uses it."""

        def begin() -> Callable[[], None]:
            return functools.partial(_unmount_image, self._memory_images, connection.process.duplicate(), image)

        await self._mounts.run(pod_uid, begin, "unmount the memory image", after="mount the memory image")

    def capabilities(self, accelerator: messages.Accelerator) -> str:
        """Return libvirt's cache of QEMU's capabilities (XML)."""
        return qemu_capabilities.read(self._capabilities, accelerator)

    async def prepare_network(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> tuple[Interface, ...]:
        """Set up the pod's network, and return the guest's interfaces."""
        return await self._networks.prepare(vm, pod_uid, connection.process)

    async def join_network(self, vm: Object, card: str, pod_uid: str, connection: Connection) -> Interface:
        """Set up one card that a running guest has or gets, and return it."""
        return await self._networks.join(vm, card, pod_uid, connection.process)

    async def leave_network(self, vm: Object, card: str, pod_uid: str, connection: Connection) -> None:
        """Remove from the pod and its plugin a card that the guest gave back."""
        await self._networks.leave(vm, card, pod_uid, connection.process)

    async def forward(self, connection: Connection, addresses: Sequence[str]) -> None:
        """Forward traffic of a pod that its guest has left to these addresses."""
        await setup.forward(connection.process, addresses)


def _mount_claim(target: Launcher, pod_uid: str, kubelet: Path, attachment_uid: str, disk: Mapping[str, Any]) -> None:
    try:
        with attachments.opened(attachment_uid, kubelet) as source:
            for mount in hot_plug.mounts_of(disk):
                is_claim = mount.source == layout.ATTACHMENT_DIRECTORY
                if is_claim and block_claims.put(source, target, pod_uid, mount.name, read_only=mount.read_only):
                    continue
                claims.put(source, target, mount.name, read_only=mount.read_only, parent=mount.parent, content=mount.source)
    finally:
        target.close()


def _unmount_claim(target: Launcher, pod_uid: str, disk: Mapping[str, Any]) -> None:
    try:
        block_claims.remove(target, pod_uid, str(disk["name"]))
        for mount in hot_plug.mounts_of(disk):
            claims.remove(target, mount.name, mount.parent)
    finally:
        target.close()


def _give_claim(give: Give, kubelet: Path, attachment_uid: str) -> None:
    with attachments.opened(attachment_uid, kubelet) as source:
        give(source.root, ownership.disk(layout.ATTACHMENT_VOLUME))


def _mount_image(disk: NodeDisk, target: Launcher, image: Image, new_bytes: int) -> None:
    try:
        if new_bytes:
            disk.make(image, new_bytes)
        disk.mount(image, target)
    finally:
        target.close()


def _unmount_image(disk: NodeDisk, target: Launcher, image: Image) -> None:
    try:
        disk.unmount(image, target)
    finally:
        target.close()


def _give(
    give: Give, root: int, process: int, nodes: Sequence[ownership.Node], files: Sequence[host_disks.File], lock: Callable[[], None] | None
) -> messages.Accelerator:
    """Give the pod its nodes and files, close both descriptors, and return the accelerator. ``lock``: call it; give IOMMU groups too."""
    with descriptors.closing(root), descriptors.closing(process):
        if lock is not None:
            nodes = [*nodes, *passthrough.groups(root)]
            lock()
        for file in files:
            host_disks.put(root, process, file)
        given = {node for node in nodes if give(root, node)}
    return "kvm" if ownership.KVM in given else "qemu"
