"""The source's side of a live migration: runs it, and determines for certain whether the domain left.

``succeeded``, which releases the domain in the target, is reported only after QEMU has exited in this pod, and anything else only after the
domain continues or has ended here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

from apiserver.apis.virt.places import layout
from launcher.domain.states import State
from launcher.hypervisor.port import (
    Disks,
    DomainNotFound,
    Hypervisor,
    HypervisorError,
    MigrationAborted,
    MigrationFailed,
    Observation,
    OperationInvalid,
    Terms,
)
from launcher.main.decisions.times import TIMES, Times
from launcher.main.programs import pod_memory
from launcher.main.programs.pod_memory import Available
from launcher.protocol import messages
from launcher.protocol.made_disks import UNSENT

logger = logging.getLogger(__name__)

MAX_DOWNTIME_MILLISECONDS: Final = 2_000_000
MAX_CONNECTIONS: Final = 255
"""QEMU's limits (``migration/options.c``)."""
MEMORY_KEPT: Final = 48 << 20
"""With less free memory of the pod, a migration is aborted, before the kernel kills QEMU."""
MEMORY_ENDS: Final = (
    "aborted because the guest's pod was about to run out of memory: a migration over a slow network during the guest's boot needs more "
    "memory; migrate again after the boot"
)


class Finding(Enum):
    """What a look at the domain found after libvirt's call to migrate it."""

    LEFT = "QEMU has ended, the domain is on the target"
    STAYED = "the domain continues, or has ended, here"
    JOB_RUNS = "libvirt is still migrating"
    HELD = "libvirt left the domain paused for a decision"
    REMAINS = "the target has it, and QEMU still runs here"


def finding(seen: Observation | None, *, returned: bool, job: bool) -> Finding:
    """Return the Finding: the domain left, stayed, or must be looked at again, by an observation after libvirt's call.

    ``seen`` is None after libvirt undefined the domain, because it left. ``returned``: the call had no error, so the target's libvirt has
    a complete domain. ``job``: libvirt reports a running migration.
    """
    if seen is None or (seen.state is State.SHUTOFF and seen.reason == "migrated"):
        return Finding.LEFT
    if returned:
        return Finding.REMAINS if seen.active else Finding.LEFT
    if not seen.active:
        return Finding.STAYED
    if job:
        return Finding.JOB_RUNS
    return Finding.HELD if seen.state is State.PAUSED and seen.reason == "migrating" else Finding.STAYED


def outcome(error: HypervisorError | None, *, left: bool, abort_asked: bool) -> tuple[messages.MigrationState, str]:
    """Return a migration's final state and a message.

    ``left``: the domain is the target's, regardless of the call's error. ``abort_asked``: libvirt was called to abort it.
    """
    if left:
        return "succeeded", ""
    return "cancelled" if abort_asked or isinstance(error, MigrationAborted) else "failed", str(error or "")


def terms_of(request: messages.Migrate) -> Terms:
    """Return a request's terms within QEMU's limits, because virt-handler may have read a damaged object."""
    return Terms(
        bandwidth_bytes=max(request.bandwidth_bytes, 0),
        max_downtime_milliseconds=min(max(request.max_downtime_milliseconds, 0), MAX_DOWNTIME_MILLISECONDS),
        parallel_connections=min(max(request.parallel_connections, 1), MAX_CONNECTIONS),
        auto_converge=request.auto_converge,
    )


class OutgoingMigration:
    """One outgoing migration; ``report`` is called with its newest ``status``."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        name: str,
        request: messages.Migrate,
        disks: Disks,
        send: Callable[[], Awaitable[None]],
        report: Callable[[messages.MigrationStatus], None],
        times: Times = TIMES,
        memory: Available = pod_memory.available,
        *,
        pauses: bool = False,
    ) -> None:
        """``pauses``: the guest stands still until it arrives."""
        self._pauses = pauses
        self._times = times
        self._memory = memory
        self.status = messages.MigrationStatus(request.migration_uid, "outgoing", "running", start_time=time.time())
        self._terms = terms_of(request)
        self._disks = disks
        self._send = send
        """Sends the target what it needs before libvirt begins; raises HypervisorError."""
        self._sending: asyncio.Timeout | None = None
        self._pausing = asyncio.Lock()
        self._paused = False
        """The guest was paused so that it arrives, or may have been."""
        self._over = False
        self._hypervisor = hypervisor
        self._name = name
        self._report = report
        self._abort_asked = False
        self._memory_ends = False
        """It is being aborted for lack of memory."""
        report(self.status)

    async def run(self) -> messages.MigrationStatus:
        """Migrate and return the final state; the caller reports it together with its consequences."""
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(each) for each in (self._report_progress(), self._watch_memory())]
            state, message = await self._move()
            for each in beside:
                each.cancel()
        await self._go_on(stayed=state != "succeeded")
        logger.info("a migration ended", extra={"migration": self.status.uid, "state": state, "reason": message})
        return dataclasses.replace(self.status, state=state, message=message, end_time=time.time())

    async def abort(self) -> None:
        """Abort the migration; :meth:`run` returns the result. Raises HypervisorError."""
        self._abort_asked = True
        if self._sending is not None:
            self._sending.reschedule(asyncio.get_running_loop().time())
            return
        await self._hypervisor.abort_job(self._name)

    async def pause(self) -> None:
        """Pause a running guest, so it arrives; no effect after the migration. After HypervisorError, it may be paused."""
        async with self._pausing:
            seen = None if self._over else await self._hypervisor.observe(self._name)
            if seen is None or seen.state is not State.RUNNING:
                return
            self._paused = True
            await self._hypervisor.suspend(self._name)

    async def _go_on(self, *, stayed: bool) -> None:
        async with self._pausing:
            self._over = True
            while stayed and self._paused:
                await self._hypervisor.ready()
                try:
                    await self._hypervisor.resume(self._name)
                except (DomainNotFound, OperationInvalid):  # it ended
                    return
                except HypervisorError as error:
                    logger.warning("cannot resume the guest that stayed yet, retrying", extra={"error": str(error)})
                    await asyncio.sleep(self._times.settle)
                else:
                    return

    async def _move(self) -> tuple[messages.MigrationState, str]:
        error: HypervisorError | None = None
        try:
            await self._send_first()
            if self._pauses:
                await self.pause()
            await self._hypervisor.migrate(
                self._name,
                libvirt_uri=f"qemu+unix:///session?socket={layout.RUN_DIRECTORY}/{layout.MIGRATION_LIBVIRT_SOCKET}",
                data_uri=f"unix://{layout.RUN_DIRECTORY}/{layout.MIGRATION_DATA_SOCKET}",
                terms=self._terms,
                disks=self._disks,
            )
        except HypervisorError as raised:
            error = raised
        left = await self._left(returned=error is None)
        if not left and self._memory_ends and not self._abort_asked:
            return "failed", MEMORY_ENDS
        return outcome(error, left=left, abort_asked=self._abort_asked)

    async def _send_first(self) -> None:
        try:
            async with asyncio.timeout(self._times.send) as self._sending:
                await self._send()
        except TimeoutError as error:
            if not self._abort_asked:
                raise MigrationFailed(f"{UNSENT} within {self._times.send:g} s") from error
        finally:
            self._sending = None
        if self._abort_asked:
            raise MigrationAborted("it was aborted before libvirt began")

    async def _left(self, *, returned: bool) -> bool:
        """Return whether the domain left, once that is certain. Resume or destroy it here if necessary.

        A restarted libvirtd cleans up before it answers.
        """
        while True:
            await self._hypervisor.ready()
            try:
                match await self._look(returned=returned):
                    case Finding.LEFT:
                        return True
                    case Finding.STAYED:
                        return False
                    case Finding.JOB_RUNS:
                        pass
                    case Finding.HELD:
                        # No success was reported, so no component released it in the target: it is ours.
                        await self._hypervisor.resume(self._name)
                        continue
                    case Finding.REMAINS:
                        logger.warning("QEMU still runs although the domain left; ending it")
                        await self._hypervisor.destroy(self._name)
                        continue
            except HypervisorError as error:
                logger.info("the result of the migration is not known yet", extra={"error": str(error)})
            await asyncio.sleep(self._times.settle)

    async def _look(self, *, returned: bool) -> Finding:
        seen = await self._hypervisor.observe(self._name)
        job = seen is not None and seen.active and await self._hypervisor.progress(self._name) is not None
        return finding(seen, returned=returned, job=job)

    async def _report_progress(self) -> None:
        while True:
            await asyncio.sleep(self._times.progress)
            try:
                progress = await self._hypervisor.progress(self._name)
            except HypervisorError:
                continue
            if progress is not None:
                self.status = dataclasses.replace(self.status, **dataclasses.asdict(progress))
                self._report(self.status)

    async def _watch_memory(self) -> None:
        while True:
            await asyncio.sleep(self._times.memory_look)
            left = self._memory()
            if left is None or left >= MEMORY_KEPT:
                continue
            logger.warning("aborting the migration, because the pod is about to run out of memory", extra={"bytes_left": left})
            self._memory_ends = True
            try:
                await self._hypervisor.abort_job(self._name)
            except HypervisorError:  # the next check retries
                self._memory_ends = False
