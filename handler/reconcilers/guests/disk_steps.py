"""Attaches disks to running guests, and detaches them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from handler.reconcilers.guests import guest_disks, guest_status
from handler.reconcilers.guests.guest_disks import Attach, Detach, Failure, Failures, Step
from handler.reconcilers.guests.guest_ports import Ports
from handler.reconcilers.guests.guest_writes import StatusWriter
from launcher.protocol import messages


class DiskSteps:
    """Carries out the steps of ``guest_disks``, and remembers the failed ones until the next attempt."""

    def __init__(self, ports: Ports, writer: StatusWriter) -> None:
        self._ports = ports
        self._writer = writer
        self._failures: dict[str, dict[str, Failure]] = {}
        """By uid of the guest's pod."""

    def failures_of(self, pod_uid: str) -> Failures:
        """Return the failed steps of a pod's guest."""
        return self._failures.get(pod_uid, {})

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Remove pods that are gone."""
        self._failures = {uid: found for uid, found in self._failures.items() if is_alive(uid)}

    async def take(self, vm: Object, link: Link, step: Step) -> Result | None:
        """Carry a step out; return when to check again, or None at once. The next report writes a failure."""
        path, failures = hot_plug.path_of(step.name), self._current_failures(vm, link)
        self._failures[link.pod_uid] = failures
        try:
            match step:
                case Attach():
                    await self._attach(vm, link, step.disk)
                    rest = None
                case Detach():
                    rest = await self._detach(vm, link, step.disk)
                case _:
                    assert_never(step)
        except LauncherRefused as refused:
            if refused.reason == "Conflict":  # a migration or save has begun; its end changes the status
                return Result()
            problem = str(refused)
        except (NotOfThisPod, NotTheDevice, StorageHangs, OSError) as error:
            problem = str(error)
        else:
            failures.pop(path, None)
            return rest
        now = asyncio.get_running_loop().time()
        failures[path] = guest_disks.failure_after(step, guest_status.printable(problem), failures.get(path), now)
        return None

    def _current_failures(self, vm: Object, link: Link) -> dict[str, Failure]:
        return guest_disks.current(vm, link.status, self.failures_of(link.pod_uid)) if link.status is not None else {}

    async def _attach(self, vm: Object, link: Link, disk: Object) -> None:
        connection, name = link.connected(), str(disk["name"])
        if (pod := hot_plug.pod_of(vm, disk)) is not None:
            await self._ports.node.mount_claim(link.pod_uid, connection, pod.uid, disk)
        await connection.call(messages.AttachDisk(disk))
        what = f"drive {name} got its medium" if disks.is_drive(disk) else f"the guest got disk {name}"
        self._ports.emit(vm, "Normal", guest_disks.ATTACHED, what)

    async def _detach(self, vm: Object, link: Link, disk: Object) -> Result | None:
        connection, name = link.connected(), str(disk["name"])
        if self._ports.node.has_device(connection, name):
            raise NotTheDevice(f"disk {name!r} is a block device in its pod, so the guest keeps it until its next start")
        await connection.call(messages.DetachDisk(name))
        # Also the pod's own volume: a launcher can lie.
        await self._ports.node.unmount_claim(link.pod_uid, connection, disk)
        if not await self._writer.write(vm, guest_disks.detached(vm, disk, self._ports.clock.now())):
            return Result(self._writer.delay(vm))
        what = f"drive {name} ejected its medium" if disks.is_drive(disk) else f"the guest released disk {name}"
        self._ports.emit(vm, "Normal", guest_disks.DETACHED, what)
        return None
