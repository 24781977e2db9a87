"""Executes the actions of ``guest_plan``."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Final, assert_never

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import memory
from apiserver.apis.virt.lifecycle import conditions, operations
from apiserver.apis.virt.spec.described import domain_of
from apiserver.apis.virt.spec.live_changes import Change
from controller.runtime.reconciling import Result
from handler.network.binding import Interface
from handler.pods.hanging import StorageHangs
from handler.pods.launcher import Connection, LauncherRefused
from handler.pods.links import Link
from handler.reconcilers.guests import (
    device_steps,
    guest_changes,
    guest_operations,
    guest_plan,
    guest_report,
    guest_status,
    guest_steps,
    passt_faults,
    reboot_loops,
)
from handler.reconcilers.guests.claim_filling import ClaimFilling
from handler.reconcilers.guests.failed_steps import FailedSteps
from handler.reconcilers.guests.guest_plan import Action
from handler.reconcilers.guests.guest_plugging import Plugging
from handler.reconcilers.guests.guest_ports import Ports
from handler.reconcilers.guests.guest_start import GuestStart
from handler.reconcilers.guests.guest_writes import StatusWriter
from handler.storage.node_disk import Refused, image_of
from launcher.protocol import messages

logger = logging.getLogger(__name__)

PRE_STOP_FAILED: Final = "FailedPreStopHook"
"""The kubelet's reason."""


class Applier:
    """Applies planned actions to this node's guests, and keeps their failures and counts by pod."""

    def __init__(self, ports: Ports, writer: StatusWriter, start: GuestStart) -> None:
        self._ports = ports
        self._writer = writer
        self._start = start
        self.failed_steps = FailedSteps()
        self._filling = ClaimFilling(ports)
        self._plugging = Plugging(ports, writer, self.failed_steps, self._filling)
        self._counts: dict[str, tuple[int, int, int, int]] = {}
        """By uid of the pod: reboots, watchdog firings and passt failures that had their Event, or preceded this process."""
        self._failures: dict[str, dict[Change, guest_changes.Failure]] = {}
        """By pod uid."""
        self._reboots: dict[str, reboot_loops.Reboots] = {}
        """By pod uid."""

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Drop the state of pods that are gone."""
        self._counts = {uid: counts for uid, counts in self._counts.items() if is_alive(uid)}
        self._reboots = {uid: reboots for uid, reboots in self._reboots.items() if is_alive(uid)}
        self._failures = {uid: found for uid, found in self._failures.items() if is_alive(uid)}
        self.failed_steps.forget(is_alive)
        self._filling.forget(is_alive)

    def failures_of(self, pod_uid: str) -> guest_changes.Failures:
        """Return the failed changes of a pod's guest, by setting."""
        return self._failures.get(pod_uid, {})

    async def apply(self, vm: Object, link: Link, actions: Sequence[Action]) -> Result | None:
        """Apply the machine's planned actions in order; return the last one's Result: when to check again, None: at once."""
        rest: Result | None = Result()
        for action in actions:
            match action:
                case guest_plan.StartGuest():
                    rest = await self._start.start(vm, link, paused=action.paused)
                case guest_plan.SendRequest():
                    rest = await self._send(vm, link, action.request)
                case guest_steps.AttachDisk() | guest_steps.DetachDisk() | guest_steps.AttachCard() | guest_steps.DetachCard():
                    rest = await self._plugging.take(vm, link, action)
                case guest_plan.ChangeGuest():
                    rest = await self._change(vm, link, action.request)
                case guest_operations.Fail():
                    rest = await self._end_operation(vm, action.id, operations.FAILED, action.message)
                case guest_operations.ResumeByRequest():
                    rest = await self._resume_by_request(vm, link, action.id)
                case guest_plan.ReportGuest():
                    rest = await self._report(vm, link)
                case guest_plan.ReportNotUnderstood():
                    rest = await self._report_not_understood(vm, action.message)
                case guest_plan.EndAttempt():
                    rest = await self._end(vm, action)
                case _:
                    assert_never(action)
        return rest

    async def _end(self, vm: Object, action: guest_plan.EndAttempt) -> Result | None:
        """Write the end of the attempt once nothing writes to its disks; until then, only return when to try again."""
        try:
            await self._filling.end(vm)
        except (StorageHangs, OSError) as error:
            logger.warning("cannot end virtual machine %s yet: %s", objects.key_of(vm), error)
            return Result(self._ports.limits.start_again_seconds)
        await self._writer.write_end(vm, action.end, action.operations)
        return Result()

    async def _report_not_understood(self, vm: Object, message: str) -> Result:
        status = guest_status.not_understood(vm, message, self._ports.clock.now())
        if await self._writer.write(vm, status):
            found = objects.condition(status["conditions"], conditions.READY) or {}
            self._ports.emit(vm, "Warning", conditions.LAUNCHER_NOT_UNDERSTOOD, str(found.get("message")))
        return Result(requeue_after=self._ports.limits.not_understood_seconds)

    async def _resume_by_request(self, vm: Object, link: Link, operation_id: str) -> Result | None:
        try:
            await link.connected().call(messages.Resume())
        except LauncherRefused as refused:
            if refused.reason == "Conflict":  # the status that says why is here or coming
                return Result()
            return await self._end_operation(vm, operation_id, operations.FAILED, str(refused))
        return await self._end_operation(vm, operation_id, operations.SUCCEEDED)

    async def _end_operation(self, vm: Object, operation_id: str, result: operations.Result, message: str = "") -> Result | None:
        """Write an operation's result and Events, and return None; if the rate limit forbids it, return the delay as a Result."""
        found = operations.with_result(vm, operation_id, result, guest_status.printable(message), self._ports.clock.now())
        status = {**(vm.get("status") or {}), "operations": found}
        if not await self._writer.write(vm, status):
            return Result(self._writer.delay(vm))
        for event in guest_operations.events(vm, status):
            self._ports.emit(vm, *event)
        return None

    async def _change(self, vm: Object, link: Link, request: messages.Change) -> Result | None:
        change, failures = Change(request.what, request.name), self._failures.setdefault(link.pod_uid, {})
        try:
            status = await link.connected().call(request)
        except LauncherRefused as refused:
            if refused.reason == "Conflict":  # a migration or save has begun; its end changes the status
                return Result()
            problem = str(refused)
        else:
            problem = guest_changes.WITHOUT_EFFECT if change in guest_changes.missing(vm, status) else ""
        if problem:
            now = asyncio.get_running_loop().time()
            failures[change] = guest_changes.failure_after(vm, change, guest_status.printable(problem), failures.get(change), now)
        else:
            failures.pop(change, None)
        return None

    async def _send(
        self, vm: Object, link: Link, request: messages.Shutdown | messages.Suspend | messages.Resume | messages.Operate
    ) -> Result | None:
        if isinstance(request, messages.Operate) and request.action == guest_operations.SUSPEND_TO_NODE_DISK:
            try:
                await self._mount_new_image(vm, link, request.id)
            except StorageHangs as error:
                self._ports.emit(vm, "Warning", conditions.DISK_NOT_ANSWERING, guest_status.printable(str(error)))
                return Result(self._ports.limits.start_again_seconds)
            except (Refused, OSError) as error:
                return await self._end_operation(vm, request.id, operations.FAILED, str(error))
        try:
            await link.connected().call(request)
        except LauncherRefused as refused:
            if refused.reason == "Conflict":  # the domain changed its state meanwhile, and its status follows
                logger.debug("launcher refused %s: %s", type(request).__name__, refused)
                return Result()
            if isinstance(request, messages.Operate):
                return await self._end_operation(vm, request.id, operations.FAILED, str(refused))
            self._ports.emit(vm, "Warning", f"{type(request).__name__}Failed", guest_status.printable(str(refused)))
            if isinstance(request, messages.Resume) and refused.reason == "Failed":
                return None  # what stopped the guest does so still
            raise
        match request:
            case messages.Shutdown():
                message = f"{guest_plan.why_down(vm)}; the guest has {request.grace_seconds:.0f} s to shut down"
                self._ports.emit(vm, "Normal", "ShuttingDown", message)
            case messages.Suspend():
                self._ports.emit(vm, "Normal", "Paused", "the guest was paused")
            case messages.Resume():
                self._ports.emit(vm, "Normal", "Unpaused", "the guest continues")
            case messages.Operate():
                pass  # the launcher's status has the result
        return None

    async def _mount_new_image(self, vm: Object, link: Link, image_id: str) -> None:
        needed = memory.max_guest_bytes(domain_of(vm))
        await self._ports.node.mount_memory_image(link.pod_uid, link.connected(), image_of(vm, image_id), needed)

    async def _report(self, vm: Object, link: Link) -> Result | None:
        if link.connection is None or link.status is None:
            return Result()
        self._emit_counts(vm, link.pod_uid, link.status)
        seen = await self._observe(vm, link, link.connection, link.status)
        status, again = guest_report.status_of(seen)
        # a program's fault may disappear without an event
        if self._ports.networks.may_heal(link.pod_uid) or self._ports.disks.is_wrong(link.pod_uid):
            again = self._ports.limits.network_seconds
        now = asyncio.get_running_loop().time()
        for pause in (
            guest_changes.pause(vm, link.status, self.failures_of(link.pod_uid), now),
            device_steps.pause(guest_steps.missing(vm, link.status), self.failed_steps.of(link.pod_uid), now),
        ):
            if pause is not None:
                again = min(pause, again) if again is not None else pause
        if not seen.is_dead and self._writer.is_written(vm, status):
            return Result(again)
        if not await self._writer.write(vm, status):
            return Result(self._writer.delay(vm))
        for event in guest_report.events(seen, status):
            self._ports.emit(vm, *event)
        return None if seen.is_dead else Result(again)

    async def _observe(self, vm: Object, link: Link, connection: Connection, launcher: messages.Status) -> guest_report.Observed:
        if (fault := await self._ports.networks.ensure(vm, link.pod_uid, connection)) is not None:
            self._ports.emit(vm, "Warning", fault.reason, guest_status.printable(fault.message))
        now, interfaces = self._ports.clock.now(), self._ports.networks.interfaces(link.pod_uid)
        verdict = self._ports.probes.verdict(vm, link, _address_of(interfaces))
        self._reboots[link.pod_uid] = reboots = reboot_loops.noted(self._reboots.get(link.pod_uid), launcher.reboots, now)
        seen = guest_report.Observed(vm, launcher, interfaces, verdict, network=fault, disks=None, now=now, reboots=reboots)
        seen = dataclasses.replace(
            seen,
            failures=self.failures_of(link.pod_uid),
            failed_steps=self.failed_steps.of(link.pod_uid),
            imports=self._filling.of(vm),
        )
        if seen.is_dead:
            return seen
        return dataclasses.replace(seen, disks=await self._ports.disks.check(vm, link.pod_uid, launcher.servers_silent))

    def _emit_counts(self, vm: Object, pod_uid: str, launcher: messages.Status) -> None:
        counts = (launcher.reboots, launcher.watchdogs, launcher.passt_ends, int(bool(launcher.pre_stop_problem)))
        reboots, watchdogs, passt_ends, hooks = self._counts.setdefault(pod_uid, counts)
        if launcher.watchdogs > watchdogs:
            self._ports.emit(vm, "Warning", guest_status.WATCHDOG_FIRED, "the guest's watchdog fired")
        if launcher.reboots > reboots:
            self._ports.emit(vm, "Normal", "Rebooted", "the guest rebooted")
        if launcher.passt_ends > passt_ends:
            self._ports.emit(vm, "Warning", passt_faults.PASST_ENDED, passt_faults.LOST)
        if counts[-1] > hooks:
            self._ports.emit(vm, "Warning", PRE_STOP_FAILED, guest_status.printable(launcher.pre_stop_problem))
        self._counts[pod_uid] = counts


def _address_of(interfaces: Sequence[Interface] | None) -> str | None:
    if interfaces is None:
        return None
    return next((each.addresses[0] for each in interfaces if each.addresses and each.is_own), "")
