"""Starts a guest: prepares its pod, requests the start from its launcher, and writes what prevents it, in several passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import conditions, managed_save, operations, power
from apiserver.apis.virt.spec import chosen_cpu
from controller.runtime.reconciling import Result
from handler.devices import ownership
from handler.network.binding import Unsupported
from handler.pods.hanging import StorageHangs
from handler.pods.launcher import Connection, Disconnected, LauncherRefused, Pending
from handler.pods.links import Link
from handler.reconcilers.guests import guest_imports, guest_operations, guest_status, pod_networks
from handler.reconcilers.guests.guest_machine import machine_of
from handler.reconcilers.guests.guest_ports import Ports
from handler.reconcilers.guests.guest_status import End
from handler.reconcilers.guests.guest_writes import StatusWriter
from handler.storage.adding import DisksFault
from handler.storage.node_disk import Refused, image_of
from launcher.protocol import messages

IMAGE_NOT_MOUNTED: Final = (
    "the file with the guest's memory on the node's disk cannot be mounted: {}; "
    "to boot without it: kubectl virt stop, then kubectl virt start --discard-state"
)


class GuestStart:
    """Starts this node's guests, each by several calls, and keeps what is done by uid of the pod."""

    def __init__(self, ports: Ports, writer: StatusWriter) -> None:
        self._ports = ports
        self._limits = ports.limits
        self._writer = writer
        self._accelerators: dict[str, messages.Accelerator] = {}
        """Of pods prepared by this process."""
        self._imported: set[str] = set()
        """Pods with imported images, or without imports."""
        self._starting: dict[str, Pending] = {}
        """Unanswered starts."""

    def is_starting(self, pod_uid: str) -> bool:
        """Return whether the launcher got the request to start its guest, and has not answered it."""
        return pod_uid in self._starting

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Drop the state of pods that are gone."""
        self._accelerators = {uid: which for uid, which in self._accelerators.items() if is_alive(uid)}
        self._imported = {uid for uid in self._imported if is_alive(uid)}
        self._starting = {uid: pending for uid, pending in self._starting.items() if is_alive(uid)}

    async def start(self, vm: Object, link: Link, *, paused: bool) -> Result | None:
        """Start the guest, or write what prevents it; return when to check again, None: at once.

        What a retry may change is also raised: NotTheDevice, CommandFailed, Fault, OSError, LauncherRefused (Timeout); also Disconnected.
        """
        try:
            return await self._begin(vm, link, paused=paused)
        except StorageHangs as error:
            await self._write_disks_fault(vm, conditions.DISK_NOT_ANSWERING, str(error))
            return Result(requeue_after=self._limits.start_again_seconds)
        except ownership.NotTheDevice as error:
            await self._write_disks_fault(vm, conditions.DISK_NOT_USABLE, str(error))
            raise
        except DisksFault as fault:
            return await self._write_plugin_fault(vm, fault)
        except Refused as refused:
            await self._writer.write_end(vm, End(power.RESULT_FAILED, "StartFailed", guest_status.printable(str(refused))))
            return Result()
        except Unsupported as error:
            end = End(power.RESULT_FAILED, conditions.NETWORK_NOT_SUPPORTED, guest_status.printable(str(error)))
            await self._writer.write_end(vm, end)
            return Result()
        except pod_networks.HEALING as error:
            await self._write_network_fault(vm, self._ports.networks.lasting(link.pod_uid, error))
            raise
        except LauncherRefused as refused:
            return await self._write_refusal(vm, refused)

    async def _begin(self, vm: Object, link: Link, *, paused: bool) -> Result | None:
        connection = link.connected()
        image = _image(vm)
        needed = guest_operations.SUSPEND_TO_NODE_DISK if image is not None and image.on_node_disk else operations.SUSPEND
        if image is not None and needed not in connection.operations:
            end = End(power.RESULT_FAILED, "StartFailed", guest_operations.LAUNCHER_TOO_OLD)
            await self._writer.write_end(vm, end)
            return Result()
        if image is not None and image.on_node_disk:
            await self._mount_image(vm, link, connection, image)
        accelerator = self._accelerators.get(link.pod_uid)
        if accelerator is None:
            accelerator = self._accelerators[link.pod_uid] = await self._ports.node.give_devices(vm, link.pod_uid, connection)
        if (rest := await self._import(vm, link, connection, accelerator)) is not None:
            return rest  # before the pod's network becomes the guest's
        served = await self._ports.disks.add(vm, link.pod_uid)
        interfaces = await self._ports.networks.set_up(vm, link.pod_uid, connection)
        if await self._write_network_found(vm):
            return Result(requeue_after=self._limits.start_again_seconds)
        machine = machine_of(vm, accelerator, interfaces, chosen_cpu.chosen(vm), served)
        if not await self._sync(link, connection, machine, image, paused=paused):
            return Result(requeue_after=self._limits.start_again_seconds)
        return None

    async def _mount_image(self, vm: Object, link: Link, connection: Connection, image: messages.Image) -> None:
        try:
            await self._ports.node.mount_memory_image(link.pod_uid, connection, image_of(vm, image.id))
        except OSError as error:
            await self._write_disks_fault(vm, conditions.DISK_NOT_USABLE, IMAGE_NOT_MOUNTED.format(error.strerror))
            raise

    async def _import(self, vm: Object, link: Link, connection: Connection, accelerator: messages.Accelerator) -> Result | None:
        if link.pod_uid in self._imported or not guest_imports.of(vm) or not connection.knows(messages.Import):
            return None
        now = self._ports.clock.now()
        try:
            await connection.call(messages.Import(machine_of(vm, accelerator, (), None)))
        except LauncherRefused as refused:
            if refused.reason != "NotReady":
                raise
            status = guest_imports.status_of(vm, refused.status, now)
            if await self._writer.write(vm, status):
                for event in guest_imports.events(vm, status):
                    self._ports.emit(vm, *event)
            return Result(requeue_after=self._limits.import_seconds)
        self._imported.add(link.pod_uid)
        if not guest_imports.is_importing(vm):
            return None
        self._ports.emit(vm, "Normal", guest_imports.SUCCEEDED, "the images of all disks exist")
        await self._writer.write(vm, guest_imports.without(guest_status.with_disks_found(vm, now)))
        return Result(requeue_after=self._limits.start_again_seconds)

    async def _sync(
        self, link: Link, connection: Connection, machine: messages.Machine, image: messages.Image | None, *, paused: bool
    ) -> bool:
        """Request the guest's start, once per connection; return whether the launcher answered within ``start_patience_seconds``.

        Raises LauncherRefused, Disconnected.
        """
        pending = self._starting.get(link.pod_uid)
        if pending is None or pending.connection is not connection:
            capabilities = self._ports.node.capabilities(machine.accelerator)
            request = messages.Sync(machine, paused=paused, image=image, capabilities=capabilities)
            pending = self._starting[link.pod_uid] = connection.begin(request)
        try:
            answered = await pending.answered(within=self._limits.start_patience_seconds)
        except (LauncherRefused, Disconnected):
            self._starting.pop(link.pod_uid, None)
            raise
        if answered:
            self._starting.pop(link.pod_uid, None)
        return answered

    async def _write_network_found(self, vm: Object) -> bool:
        if conditions.Wait.NETWORK_PLUGIN not in conditions.waits_for(vm):
            return False
        return await self._writer.write(vm, guest_status.with_network(vm, vm.get("status") or {}, None, self._ports.clock.now()))

    async def _write_disks_fault(self, vm: Object, reason: str, message: str) -> None:
        status = guest_status.with_disks_fault(vm, vm.get("status") or {}, reason, message, self._ports.clock.now())
        if await self._writer.write(vm, status):
            self._ports.emit(vm, "Warning", reason, guest_status.printable(message))

    async def _write_plugin_fault(self, vm: Object, fault: DisksFault) -> Result:
        message = guest_status.printable(str(fault))
        if fault.final:
            await self._writer.write_end(vm, End(power.RESULT_FAILED, conditions.DISK_NOT_SUPPORTED, message))
            return Result()
        if await self._writer.write(vm, guest_status.waiting(vm, fault.reason, message, self._ports.clock.now())):
            self._ports.emit(vm, "Warning", fault.reason, message)
        return Result(requeue_after=fault.retry_seconds)

    async def _write_network_fault(self, vm: Object, fault: guest_status.NetworkFault | None) -> None:
        status = guest_status.with_network(vm, vm.get("status") or {}, fault, self._ports.clock.now())
        if fault is not None and await self._writer.write(vm, status):
            self._ports.emit(vm, "Warning", fault.reason, guest_status.printable(fault.message))

    async def _write_refusal(self, vm: Object, refused: LauncherRefused) -> Result:
        now = self._ports.clock.now()
        if refused.reason == "NotReady":
            told = (vm, refused.disks, str(refused), now)
            status = guest_status.waiting_for_disks(*told, full=refused.full, unresolved=refused.unresolved)
            if await self._writer.write(vm, status) and guest_status.is_news_of_disks(vm, status):
                found = objects.condition(status["conditions"], conditions.DISKS_READY) or {}
                self._ports.emit(vm, "Warning", str(found.get("reason")), str(found.get("message")))
            return Result(requeue_after=self._limits.image_seconds)
        if refused.reason == "Timeout":
            if conditions.Wait.IMAGE in conditions.waits_for(vm):
                await self._writer.write(vm, guest_status.with_disks_found(vm, now))
            raise refused
        ending = refused.status.ending
        end = guest_status.end_of(ending) if ending is not None else None
        message = guest_status.printable(str(refused))
        await self._writer.write_end(vm, end or End(power.RESULT_FAILED, "StartFailed", message))
        return Result()


def _image(vm: Object) -> messages.Image | None:
    found = managed_save.image_of(vm)
    return None if found is None else messages.Image(found.id, found.digest, on_node_disk=bool(managed_save.node_with(vm)))
