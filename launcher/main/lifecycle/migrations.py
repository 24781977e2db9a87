"""Live migrations of the pod's domain, incoming or outgoing."""

from __future__ import annotations

import asyncio
import functools
import time

from launcher.hypervisor.port import NO_DISKS, Hypervisor
from launcher.main.decisions import known, machines, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import TIMES, Times
from launcher.main.disks import made_disks, sent_disks
from launcher.main.disks.received_disks import ReceivedDisks
from launcher.main.lifecycle.making import Making
from launcher.main.lifecycle.outgoing_migration import OutgoingMigration
from launcher.main.lifecycle.preparation import StartFailure
from launcher.main.lifecycle.watching import Watch
from launcher.main.programs import pod_memory
from launcher.main.programs.pod_memory import Available
from launcher.protocol import messages


class Migrations:
    """Carries out the requests for both sides of a migration."""

    def __init__(
        self, hypervisor: Hypervisor, watch: Watch, making: Making, times: Times = TIMES, memory: Available = pod_memory.available
    ) -> None:  # fmt: skip
        self._hypervisor = hypervisor
        self._times = times
        self._memory = memory
        self._watch = watch
        self._record = watch.record
        self._making = making
        self._outgoing: OutgoingMigration | None = None
        """The running one; ``known.leaving`` is its status."""
        self._tasks = asyncio.TaskGroup()

    async def run(self) -> None:
        """Run migrations until the pod must end and the last outgoing one, which decides where the domain is, is over."""
        async with self._tasks:
            await self._record.over.wait()

    async def prepare(self, request: messages.PrepareMigrationTarget) -> None:
        """Prepare this empty pod as a migration's target, unless it is one. Raises RequestRefused."""
        async with self._record.operation:
            if not requests.is_to_prepare(self._record.known, request):
                return
            try:
                async with self._making.until_abandoned():
                    xml = await self._making.preparation.prepare(
                        request.machine, request.capabilities, arriving=True, made_come=request.relays_made_disks
                    )
                    server = await self._receiving(request)
            except StartFailure as error:
                raise RequestRefused("Failed", str(error)) from error
            self._record.take(known.adopted, request.machine)
            self._record.take(known.prepared, xml)
            self._record.take(known.with_migration, messages.MigrationStatus(request.migration_uid, "incoming", "prepared"))
            if server is not None:
                self._tasks.create_task(self._receive(server))

    async def _receiving(self, request: messages.PrepareMigrationTarget) -> asyncio.Server | None:
        names = made_disks.names(request.machine.domain) if request.relays_made_disks else ()
        return await ReceivedDisks(names, self._is_awaited).listen() if names else None

    def _is_awaited(self) -> bool:
        arriving = self._record.known.arriving
        return arriving is not None and arriving.state == "prepared"

    async def _receive(self, server: asyncio.Server) -> None:
        try:
            await self._record.over.wait()
        finally:
            server.close()

    async def release(self, request: messages.ReleaseMigration) -> None:
        """Make the arrived domain the pod's own, and resume it unless ``request.paused``. Idempotent.

        Raises:
            RequestRefused: nothing arrived, or libvirt could not resume it; then it may be repeated. If the domain is gone, the pod ends.
        """
        async with self._record.operation:
            await self._watch.look()  # this process may notice the arrival later
            if requests.is_lost(self._record.known, request.migration_uid):
                self._record.take(known.ended, "crashed", requests.LOST, time.time())
            if requests.is_to_release(self._record.known, request.migration_uid):
                self._record.take(known.releasing)
                with requests.errors_refused():
                    if not request.paused:
                        await self._hypervisor.resume(self._record.known.name)
                self._record.take(known.released, request.migration_uid, time.time())
        await self._watch.look()

    async def migrate(self, request: messages.Migrate) -> None:
        """Begin an outgoing migration of the domain, unless it began before. Raises RequestRefused."""
        async with self._record.operation:
            if requests.is_to_migrate(self._record.known, request):
                now = self._record.known
                disks = machines.disks_of(now.machine) if now.machine is not None else NO_DISKS
                pauses = now.machine is not None and machines.must_pause_to_move(now.machine)
                send = functools.partial(self._send, now.machine if request.relays_made_disks else None)
                self._outgoing = OutgoingMigration(
                    self._hypervisor, now.name, request, disks, send, self._report, self._times, self._memory, pauses=pauses
                )
                self._tasks.create_task(self._run_outgoing(self._outgoing))

    async def pause(self, uid: str) -> None:
        """Pause the guest of this outgoing migration, so it arrives; no effect after the migration. Raises RequestRefused."""
        if not requests.is_to_pause(self._record.known, uid) or self._outgoing is None:
            return
        with requests.errors_refused():
            await self._outgoing.pause()
        await self._watch.look()

    async def abort(self, uid: str) -> None:
        """Request the migration's end: in the source the domain stays if it has not left; a target stops waiting.

        Raises RequestRefused if the pod takes no part in it, or libvirt refuses.
        """
        if not requests.is_to_abort(self._record.known, uid):
            self._record.take(known.withdrawn, uid, time.time())
            return
        with requests.errors_refused():
            await self.abort_outgoing()

    async def abort_outgoing(self) -> None:
        """Abort the outgoing migration in libvirt, if one runs. Raises HypervisorError."""
        if self._outgoing is not None:
            await self._outgoing.abort()

    async def _run_outgoing(self, outgoing: OutgoingMigration) -> None:
        outcome = await outgoing.run()
        self._outgoing = None
        self._record.take(known.outgoing_ended, outcome, time.time())
        if not self._record.known.ended:
            await self._watch.look()

    async def _send(self, machine: messages.Machine | None) -> None:
        if machine is not None and (names := made_disks.names(machine.domain)):
            await sent_disks.send(names)

    def _report(self, migration: messages.MigrationStatus) -> None:
        self._record.take(known.with_migration, migration)
