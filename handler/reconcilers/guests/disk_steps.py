"""Attaches disks to running guests, and detaches them."""

from __future__ import annotations

from typing import assert_never

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.spec import hot_plug
from controller.runtime.reconciling import Result
from handler.devices.ownership import NotTheDevice
from handler.pods.hanging import StorageHangs
from handler.pods.launcher import LauncherRefused
from handler.pods.links import Link
from handler.pods.process import NotOfThisPod
from handler.reconcilers.guests import device_steps, guest_disks
from handler.reconcilers.guests.failed_steps import FailedSteps
from handler.reconcilers.guests.guest_disks import Attach, Detach, Step
from handler.reconcilers.guests.guest_ports import Ports
from handler.reconcilers.guests.guest_writes import StatusWriter
from launcher.protocol import messages


class DiskSteps:
    """Carries out the steps of ``guest_disks``."""

    def __init__(self, ports: Ports, writer: StatusWriter, failures: FailedSteps) -> None:
        self._ports = ports
        self._writer = writer
        self._failures = failures

    async def take(self, vm: Object, link: Link, step: Step) -> Result | None:
        """Carry a step out; return when to check again, or None at once."""
        self._failures.begin(vm, link)
        try:
            match step:
                case Attach():
                    await self._attach(vm, link, step.device)
                    rest = None
                case Detach():
                    rest = await self._detach(vm, link, step)
                case _:
                    assert_never(step)
        except LauncherRefused as refused:
            if refused.reason == "Conflict":  # a migration or save has begun; its end changes the status
                return Result()
            self._failures.failed(link.pod_uid, step, str(refused))
        except (NotOfThisPod, NotTheDevice, StorageHangs, OSError) as error:
            self._failures.failed(link.pod_uid, step, str(error))
        else:
            self._failures.succeeded(link.pod_uid, step)
            return rest
        return None

    async def _attach(self, vm: Object, link: Link, disk: Object) -> None:
        connection, name = link.connected(), str(disk["name"])
        if (pod := hot_plug.pod_of(vm, disk)) is not None:
            await self._ports.node.mount_claim(link.pod_uid, connection, pod.uid, disk)
        await connection.call(messages.AttachDisk(disk))
        what = f"drive {name} got its medium" if disks.is_drive(disk) else f"the guest got disk {name}"
        self._ports.emit(vm, "Normal", guest_disks.ATTACHED, what)

    async def _detach(self, vm: Object, link: Link, step: Detach) -> Result | None:
        connection, disk, name = link.connected(), step.device, step.name
        if self._ports.node.has_device(connection, name):
            raise NotTheDevice(f"disk {name!r} is a block device in its pod, so the guest keeps it until its next start")
        await connection.call(messages.DetachDisk(name))
        # also the pod's own volume, because a launcher can lie
        await self._ports.node.unmount_claim(link.pod_uid, connection, disk)
        if not await self._writer.write(vm, device_steps.done(vm, step.path, self._ports.clock.now())):
            return Result(self._writer.delay(vm))
        what = f"drive {name} ejected its medium" if disks.is_drive(disk) else f"the guest released disk {name}"
        self._ports.emit(vm, "Normal", guest_disks.DETACHED, what)
        return None
