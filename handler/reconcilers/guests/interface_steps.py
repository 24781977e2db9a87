"""Attaches network cards to running guests, and detaches them."""

from __future__ import annotations

from typing import assert_never

from apiserver.apis.meta.objects import Object
from controller.runtime.reconciling import Result
from handler.network.binding import Unsupported
from handler.network.setup import NotInPod
from handler.pods.launcher import LauncherRefused
from handler.pods.links import Link
from handler.reconcilers.guests import device_steps, guest_interfaces
from handler.reconcilers.guests.failed_steps import FailedSteps
from handler.reconcilers.guests.guest_interfaces import AttachCard, DetachCard, Step
from handler.reconcilers.guests.guest_machine import interface_of
from handler.reconcilers.guests.guest_ports import Ports
from handler.reconcilers.guests.guest_writes import StatusWriter
from handler.reconcilers.guests.pod_networks import HEALING, TooManyChanges
from launcher.protocol import messages


class InterfaceSteps:
    """Carries out the steps of ``guest_interfaces``."""

    def __init__(self, ports: Ports, writer: StatusWriter, failures: FailedSteps) -> None:
        self._ports = ports
        self._writer = writer
        self._failures = failures

    async def take(self, vm: Object, link: Link, step: Step) -> Result | None:
        """Carry a step out; return when to check again, or None at once."""
        self._failures.begin(vm, link)
        try:
            self._ports.networks.begin_change(link.pod_uid)
            match step:
                case AttachCard():
                    rest = await self._attach(vm, link, step)
                case DetachCard():
                    rest = await self._detach(vm, link, step)
                case _:
                    assert_never(step)
        except LauncherRefused as refused:
            if refused.reason == "Conflict":  # a migration or save has begun; its end changes the status
                return Result()
            self._failures.failed(link.pod_uid, step, str(refused))
        except TooManyChanges as early:
            self._failures.delayed(link.pod_uid, step, str(early), early.seconds)
        except (Unsupported, *HEALING, OSError) as error:
            self._failures.failed(link.pod_uid, step, str(error), waits=isinstance(error, NotInPod))
        else:
            self._failures.succeeded(link.pod_uid, step)
            return rest
        return None

    async def _attach(self, vm: Object, link: Link, step: AttachCard) -> Result | None:
        connection, name = link.connected(), step.name
        await self._ports.networks.set_up(vm, link.pod_uid, connection)
        made = await self._ports.node.join_network(vm, name, link.pod_uid, connection)
        await connection.call(messages.AttachInterface(step.device, interface_of(made)))
        self._ports.networks.add(link.pod_uid, made)
        return await self._record(vm, step, guest_interfaces.ATTACHED, f"the guest got interface {name}")

    async def _detach(self, vm: Object, link: Link, step: DetachCard) -> Result | None:
        connection, name = link.connected(), step.name
        await connection.call(messages.DetachInterface(name))
        # even if QEMU reports it, because a launcher can lie
        await self._ports.node.leave_network(vm, name, connection)
        self._ports.networks.remove(link.pod_uid, name)
        return await self._record(vm, step, guest_interfaces.DETACHED, f"the guest released interface {name}")

    async def _record(self, vm: Object, step: Step, reason: str, message: str) -> Result | None:
        if not await self._writer.write(vm, device_steps.done(vm, step.path, self._ports.clock.now())):
            return Result(self._writer.delay(vm))
        self._ports.emit(vm, "Normal", reason, message)
        return None
