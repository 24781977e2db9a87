"""Attaches network cards to running guests, and detaches them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_never

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import hot_plug_interfaces
from controller.runtime.reconciling import Result
from handler.network.binding import Unsupported
from handler.network.setup import NotInPod
from handler.pods.launcher import LauncherRefused
from handler.pods.links import Link
from handler.reconcilers.guests import guest_interfaces, guest_status
from handler.reconcilers.guests.guest_interfaces import AttachCard, DetachCard, Failure, Failures, Step
from handler.reconcilers.guests.guest_machine import interface_of
from handler.reconcilers.guests.guest_ports import Ports
from handler.reconcilers.guests.guest_writes import StatusWriter
from handler.reconcilers.guests.pod_networks import HEALING, TooManyChanges
from launcher.protocol import messages


class InterfaceSteps:
    """Carries out the steps of ``guest_interfaces``, and remembers the failed ones until the next attempt."""

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
        path, failures = hot_plug_interfaces.path_of(step.name), self._current_failures(vm, link)
        self._failures[link.pod_uid] = failures
        now = asyncio.get_running_loop().time
        try:
            self._ports.networks.begin_change(link.pod_uid)
            match step:
                case AttachCard():
                    rest = await self._attach(vm, link, step.card)
                case DetachCard():
                    rest = await self._detach(vm, link, step.name)
                case _:
                    assert_never(step)
        except LauncherRefused as refused:
            if refused.reason == "Conflict":  # a migration or save has begun; its end changes the status
                return Result()
            problem, waits = str(refused), False
        except TooManyChanges as early:
            failures[path] = guest_interfaces.delayed(step, str(early), failures.get(path), now() + early.seconds)
            return None
        except (Unsupported, *HEALING, OSError) as error:
            problem, waits = str(error), isinstance(error, NotInPod)
        else:
            failures.pop(path, None)
            return rest
        failures[path] = guest_interfaces.failure_after(step, guest_status.printable(problem), failures.get(path), now(), waits=waits)
        return None

    def _current_failures(self, vm: Object, link: Link) -> dict[str, Failure]:
        return guest_interfaces.current(vm, link.status, self.failures_of(link.pod_uid)) if link.status is not None else {}

    async def _attach(self, vm: Object, link: Link, card: Object) -> Result | None:
        connection, name = link.connected(), str(card["name"])
        await self._ports.networks.set_up(vm, link.pod_uid, connection)
        made = await self._ports.node.join_network(vm, name, link.pod_uid, connection)
        await connection.call(messages.AttachInterface(card, interface_of(made)))
        self._ports.networks.add(link.pod_uid, made)
        return await self._record(vm, name, guest_interfaces.ATTACHED, f"the guest got interface {name}")

    async def _detach(self, vm: Object, link: Link, name: str) -> Result | None:
        connection = link.connected()
        await connection.call(messages.DetachInterface(name))
        # Also if QEMU has it still: a launcher can lie.
        await self._ports.node.leave_network(vm, name, connection)
        self._ports.networks.remove(link.pod_uid, name)
        return await self._record(vm, name, guest_interfaces.DETACHED, f"the guest released interface {name}")

    async def _record(self, vm: Object, name: str, reason: str, message: str) -> Result | None:
        if not await self._writer.write(vm, guest_interfaces.done(vm, name, self._ports.clock.now())):
            return Result(self._writer.delay(vm))
        self._ports.emit(vm, "Normal", reason, message)
        return None
