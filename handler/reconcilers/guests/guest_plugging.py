"""Attaches disks and network cards to running guests, and detaches them."""

from __future__ import annotations

from typing import Final, assert_never

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.spec import hot_plug
from controller.runtime.reconciling import Result
from handler.devices.ownership import NotTheDevice
from handler.network.binding import Unsupported
from handler.network.setup import NotInPod
from handler.pods.attachments import NotListening
from handler.pods.hanging import StorageHangs
from handler.pods.launcher import LauncherRefused
from handler.pods.links import Link
from handler.pods.process import NotOfThisPod
from handler.reconcilers.guests import device_steps, guest_steps
from handler.reconcilers.guests.claim_filling import ClaimFilling, Unfinished
from handler.reconcilers.guests.failed_steps import FailedSteps
from handler.reconcilers.guests.guest_machine import interface_of
from handler.reconcilers.guests.guest_ports import Ports
from handler.reconcilers.guests.guest_steps import AttachCard, AttachDisk, DetachCard, DetachDisk, Step
from handler.reconcilers.guests.guest_writes import StatusWriter
from handler.reconcilers.guests.pod_networks import HEALING, TooManyChanges
from launcher.protocol import messages

ATTACHMENT_PATIENCE: Final = 5
"""Attempts, in 31 s, before an attachment pod that does not listen is a failure: it starts at the same time as the first one."""


def _in_words(error: Exception) -> str:
    """Return the error for users; a system's error with what virt-handler did."""
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if isinstance(error.filename, str) else ""
        return f"virt-handler cannot change the device in the pod: {error.strerror}{place}"
    return str(error) or type(error).__name__


class Plugging:
    """Plugs and unplugs disks and cards."""

    def __init__(self, ports: Ports, writer: StatusWriter, failures: FailedSteps, filling: ClaimFilling) -> None:
        self._ports = ports
        self._writer = writer
        self._failures = failures
        self._filling = filling

    async def take(self, vm: Object, link: Link, step: Step) -> Result | None:
        """Attach or detach a device, and record a failure; return when to check again, None: at once.

        Raises Disconnected or StatusError.
        """
        self._failures.begin(vm, link)
        try:
            rest = await self._take(vm, link, step)
        except LauncherRefused as refused:
            if refused.reason == "Conflict":  # a migration or save has begun; its end changes the status
                return Result()
            self._failures.failed(link.pod_uid, step, str(refused))
        except TooManyChanges as early:
            self._failures.delayed(link.pod_uid, step, str(early), early.seconds)
        except Unfinished as early:
            self._failures.unfinished(link.pod_uid, step, str(early), early.seconds, has_failed=early.has_failed)
        except (NotOfThisPod, NotTheDevice, StorageHangs, Unsupported, *HEALING, OSError) as error:
            patience = ATTACHMENT_PATIENCE if isinstance(error, NotListening) else 0
            self._failures.failed(link.pod_uid, step, _in_words(error), waits=isinstance(error, NotInPod), patience=patience)
        else:
            self._failures.succeeded(link.pod_uid, step)
            return rest
        return None

    async def _take(self, vm: Object, link: Link, step: Step) -> Result | None:
        match step:
            case AttachDisk():
                return await self._attach_disk(vm, link, step)
            case DetachDisk():
                return await self._detach_disk(vm, link, step)
            case AttachCard():
                return await self._attach_card(vm, link, step)
            case DetachCard():
                return await self._detach_card(vm, link, step)
            case _:
                assert_never(step)

    async def _attach_disk(self, vm: Object, link: Link, step: AttachDisk) -> Result | None:
        connection, disk, name = link.connected(), step.device, step.name
        if (pod := hot_plug.pod_of(vm, disk)) is not None:
            await self._filling.fill(vm, disk)
            await self._ports.node.mount_claim(link.pod_uid, connection, pod.uid, disk)
        await connection.call(messages.AttachDisk(disk))
        what = f"drive {name} got its medium" if disks.is_drive(disk) else f"the guest got disk {name}"
        self._ports.emit(vm, "Normal", guest_steps.DISK_ATTACHED, what)
        return None

    async def _detach_disk(self, vm: Object, link: Link, step: DetachDisk) -> Result | None:
        connection, disk, name = link.connected(), step.device, step.name
        await connection.call(messages.DetachDisk(name))
        await self._filling.end(vm, (name,))
        # also the pod's own volume, because a launcher can lie
        await self._ports.node.unmount_claim(link.pod_uid, connection, disk)
        what = f"drive {name} ejected its medium" if disks.is_drive(disk) else f"the guest gave back disk {name}"
        return await self._record(vm, step, guest_steps.DISK_DETACHED, what)

    async def _attach_card(self, vm: Object, link: Link, step: AttachCard) -> Result | None:
        self._ports.networks.begin_change(link.pod_uid)
        connection, name = link.connected(), step.name
        await self._ports.networks.set_up(vm, link.pod_uid, connection)
        made = await self._ports.node.join_network(vm, name, link.pod_uid, connection)
        await connection.call(messages.AttachInterface(step.device, interface_of(made)))
        self._ports.networks.add(link.pod_uid, made)
        return await self._record(vm, step, guest_steps.CARD_ATTACHED, f"the guest got interface {name}")

    async def _detach_card(self, vm: Object, link: Link, step: DetachCard) -> Result | None:
        self._ports.networks.begin_change(link.pod_uid)
        connection, name = link.connected(), step.name
        await connection.call(messages.DetachInterface(name))
        # even if QEMU reports it, because a launcher can lie
        await self._ports.node.leave_network(vm, name, link.pod_uid, connection)
        self._ports.networks.remove(link.pod_uid, name)
        return await self._record(vm, step, guest_steps.CARD_DETACHED, f"the guest gave back interface {name}")

    async def _record(self, vm: Object, step: Step, reason: str, message: str) -> Result | None:
        if not await self._writer.write(vm, device_steps.done(vm, step.path, self._ports.clock.now())):
            return Result(self._writer.delay(vm))
        self._ports.emit(vm, "Normal", reason, message)
        return None
