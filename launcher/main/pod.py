"""The life of the one domain of a pod: carries requests out, watches, and knows when it is over."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from launcher.domain import disks, document
from launcher.domain.states import NAMES, State
from launcher.hypervisor.port import (
    DomainExists,
    GuestFacts,
    Hypervisor,
    HypervisorError,
    Observation,
    OperationInvalid,
    OperationTimeout,
    Unavailable,
)
from launcher.main import agent, arrival, files, life, qemu_log
from launcher.main.agent import Agent
from launcher.main.children import Children
from launcher.main.console import Console
from launcher.main.departure import Departure
from launcher.main.preparation import Preparation, StartFailure
from launcher.main.wire import Refused
from launcher.protocol import messages

logger = logging.getLogger(__name__)

CONSOLE_SECONDS: Final = 5.0
POLL_SECONDS: Final = 10.0
"""Events tell of every change; this heals what an event that never came would leave."""
STOP_SECONDS: Final = 0.5
RELAPSE_SECONDS: Final = 0.5
"""A guest whose disk fails repeats the request that failed as soon as it runs."""
ABANDON_SECONDS: Final = 1.0
"""For the end of a domain whose guest never ran; our own end takes what is left of it."""


class Pod:
    """The pod's domain. ``run`` works until the guest is off for good; ``handle`` and ``terminate`` may be called meanwhile."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        console: Callable[[Callable[[], None]], Console],
        children: Children,
        *,
        qemu_log: Callable[[str], Path],
        serve_addresses: Callable[[messages.Machine], None],
        status_changed: Callable[[], None],
    ) -> None:
        """Do nothing yet.

        Args:
            hypervisor: where the domain lives.
            console: makes the console, given what to call when the number of viewers changed.
            children: runs commands.
            qemu_log: the file with QEMU's output, by name of the domain.
            serve_addresses: answers the guest's DHCP from then on; OSError where that cannot be.
            status_changed: called whenever ``status`` is another one.
        """
        self._hypervisor = hypervisor
        self.console = console(self._viewers_changed)
        self._preparation = Preparation(hypervisor, children, serve_addresses)
        self._qemu_log = qemu_log
        self._status_changed = status_changed
        self.status = messages.Status(revision=0)
        self._machine: messages.Machine | None = None
        self._name = ""
        self._run = life.Run()
        self._stopping: life.Stopping | None = None
        self._domain: Observation | None = None
        self._existed = False
        """A domain of ours was active in this pod; once it is not any more, the run is over."""
        self._making: asyncio.Timeout | None = None
        """While a domain is made, or the place for one that comes: ends that."""
        self._departure: Departure | None = None
        """The outgoing migration that runs."""
        self._operation = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._changed = asyncio.Event()
        self._stop_requested = asyncio.Event()
        self._agent = Agent(hypervisor, answered=self._take_facts, gone=self._agent_gone)
        self._over = asyncio.Event()
        self._group = asyncio.TaskGroup()
        hypervisor.subscribe(self._changed.set)

    async def run(self) -> None:
        """Watch the domain until it is over."""
        async with self._group as group:
            tasks = [group.create_task(part()) for part in (self._watch, self._stop, self._agent.run)]
            await self._over.wait()
            for task in tasks:
                task.cancel()

    def terminate(self) -> None:
        """Power the guest off within its grace period and end: SIGTERM. A guest that never ran has nothing to lose: end at once."""
        if self._making is not None and not self._run.ran:
            self._making.reschedule(asyncio.get_running_loop().time())  # who makes it ends the run
        elif self._machine is None:
            self._end("destroyed", life.NOT_RUN)
        else:
            self._request_stop(self._machine.grace_seconds)

    async def handle(self, request: messages.Request) -> None:
        """Carry a request out.

        Raises:
            Refused: with the reason.
        """
        match request:
            case messages.GetStatus():
                return
            case messages.Sync():
                await self._sync(request)
            case messages.PrepareMigrationTarget():
                await self._prepare(request)
            case messages.Migrate():
                await self._migrate(request)
            case messages.AbortMigration():
                await self._abort(request)
            case messages.ReleaseMigration():
                await self._release(request)
            case messages.Shutdown():
                if self._has_run("shut down"):
                    self._request_stop(max(request.grace_seconds, 0.0))
            case messages.Destroy():
                await self._destroy()
            case messages.Suspend():
                await self._change_state("suspend", self._hypervisor.suspend)
            case messages.Resume():
                await self._resume()

    # --- start -------------------------------------------------------------------------------------------------------------------

    async def _sync(self, request: messages.Sync) -> None:
        async with self._operation:
            if self._machine is not None or self.status.ending is not None:
                if self._machine is not None and self._machine.uid != request.machine.uid:
                    raise Refused("Invalid", f"this pod belongs to the virtual machine {self._machine.uid}")
                if self.status.ending is not None and self.status.ending.kind == "start-failed":
                    raise Refused("Failed", self.status.ending.message)
                if arrival.expected(self.status) is not None:
                    raise Refused("Conflict", "this pod is the target of a migration; nothing is started in it")
                return
            if self._over.is_set():
                raise Refused("Conflict", "this pod is ending")
            self._adopt(request.machine)
            try:
                async with self._until_abandoned():
                    await self._start(request)
            except files.ImagesMissing as error:
                self._machine, self._name = None, ""  # nothing was made: the pod is as if it had not been asked
                raise Refused("NotReady", str(error), error.disks) from error
            except StartFailure as error:
                async with self._until_abandoned():
                    await self._start_failed(error)
                raise Refused("Failed", str(error)) from error
        await self._look()

    @contextlib.asynccontextmanager
    async def _until_abandoned(self) -> AsyncIterator[None]:
        """Do what is inside until ``terminate`` is called; then leave no domain, and end.

        Raises:
            Refused: it was called.
        """
        limit = self._making = asyncio.timeout(None)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            logger.info("the start is abandoned: this pod has to end")
            self._run = dataclasses.replace(self._run, destroyed=True)
            with contextlib.suppress(TimeoutError, HypervisorError):
                async with asyncio.timeout(ABANDON_SECONDS):
                    await self._hypervisor.destroy(self._name)
            self._end("destroyed", life.NOT_RUN)
            raise Refused("Conflict", "this pod is ending") from error
        finally:
            self._making = None

    def _adopt(self, machine: messages.Machine) -> None:
        self._machine = machine
        self._name = document.domain_name(machine.namespace, machine.name)

    async def _start(self, request: messages.Sync) -> None:
        xml = await self._prepare_start(request.machine)
        await self._hypervisor.create(self._name, xml)
        self._existed = True
        self._set(started=True)
        try:
            async with asyncio.timeout(CONSOLE_SECONDS):
                if _has_console(request.machine):
                    self.console.attach()
                    await self.console.connected.wait()
        except TimeoutError:
            logger.warning("the serial port cannot be reached; the guest starts without its console")
        if not request.paused:
            await self._let_run(self._name)

    async def _let_run(self, name: str) -> None:
        self._run = dataclasses.replace(self._run, ran=True)
        await self._hypervisor.resume(name)

    async def _prepare_start(self, machine: messages.Machine) -> str:
        xml = await self._preparation.prepare(machine)
        self._set(not_migratable=disks.not_migratable(machine.domain))
        return xml

    async def _start_failed(self, error: BaseException) -> None:
        """Leave no domain behind, whether or not the failed call made one, and end."""
        if not isinstance(error, DomainExists):
            await self._preparation.undo(self._name)
        self._end("start-failed", str(error) or type(error).__name__)

    # --- states ------------------------------------------------------------------------------------------------------------------

    def _has_run(self, doing: str) -> bool:
        """Tell whether there is a guest; False when it is already off.

        Raises:
            Refused: when there has been none.
        """
        if self.status.ending is not None:
            return False
        if not self._existed:
            raise Refused("Conflict", f"cannot {doing}: no guest runs in this pod")
        return True

    async def _change_state(self, doing: str, call: Callable[[str], Any]) -> None:
        async with self._operation:
            if not self._has_run(doing):
                raise Refused("Conflict", f"cannot {doing}: the guest is off")
            if self._departure is not None:
                raise Refused("Conflict", f"cannot {doing}: the guest is being migrated")
            try:
                await call(self._name)
            except HypervisorError as error:
                raise _refused(error) from error
        await self._look()

    async def _resume(self) -> None:
        """Resume, and see whether the guest stays so: what stopped it may do so again at its next access."""
        before = self._domain
        await self._change_state("resume", self._let_run)
        if before is None or before.state is not State.PAUSED or before.reason == "user":
            return
        await asyncio.sleep(RELAPSE_SECONDS)
        await self._look()
        now = self.status.domain
        if now is not None and (now.state, now.reason) == ("paused", before.reason):
            raise Refused("Failed", f"the guest stopped again at once: {now.detail or now.reason}")

    async def _destroy(self) -> None:
        if self._has_run("destroy"):
            self._run = dataclasses.replace(self._run, destroyed=True)
            try:
                await self._hypervisor.destroy(self._name)
            except HypervisorError as error:
                raise _refused(error) from error
            await self._look()

    # --- the way to the end ------------------------------------------------------------------------------------------------------

    def _request_stop(self, grace_seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        if not self._run.ran and arrival.expected(self.status) is None:
            grace_seconds = 0.0
        logger.info("the guest has to power off", extra={"grace_seconds": grace_seconds})
        if self._stopping is None:
            self._stopping = life.Stopping(now + grace_seconds, now)
        else:
            self._stopping = dataclasses.replace(self._stopping, deadline=min(now + grace_seconds, self._stopping.deadline))
        self._run = dataclasses.replace(self._run, asked_to_stop=True)
        self._stop_requested.set()
        self._set(stopping=True)

    async def _stop(self) -> None:
        await self._stop_requested.wait()
        while True:
            # What is known may be as old as the last event, and a guest that moves is not ours to press buttons of.
            fresh = await self._look()
            now = asyncio.get_running_loop().time()
            if self._stopping is not None and self.status.ending is None:
                if not self._existed and not self._operation.locked() and (self._domain is None or not self._domain.active):
                    self._over.set()  # a target to which nothing came
                known = arrival.expected(self.status)
                step = life.next_step(
                    now, self._stopping, self._domain, leaving=self._departure is not None, incoming=known.state if known else None
                )
                try:
                    await self._take_step(step if fresh or step is life.Step.GIVE_UP else life.Step.WAIT, now)
                except HypervisorError as error:
                    logger.warning("powering the guest off", extra={"step": step.value, "error": str(error)})
            await asyncio.sleep(STOP_SECONDS)

    async def _take_step(self, step: life.Step, now: float) -> None:
        if self._stopping is None:
            return
        match step:
            case life.Step.WAIT:
                return
            case life.Step.ASK_AGENT | life.Step.PRESS_BUTTON:
                self._stopping = dataclasses.replace(self._stopping, attempts=self._stopping.attempts + 1, last_attempt=now)
                await self._hypervisor.press_power_button(self._name, agent=step is life.Step.ASK_AGENT)
            case life.Step.RESUME:
                await self._hypervisor.resume(self._name)
            case life.Step.ABORT_MIGRATION:
                if self._departure is not None:
                    await self._departure.abort()
            case life.Step.DESTROY:
                self._run = dataclasses.replace(self._run, destroyed=True)
                await self._hypervisor.destroy(self._name)
            case life.Step.GIVE_UP:
                self._end("destroyed", "libvirtd did not power the guest off; the end of the pod does")
        await self._look()

    def _end(self, kind: messages.EndingKind, message: str) -> None:
        if self.status.ending is None:
            log = qemu_log.last_lines(self._qemu_log(self._name)) if kind in ("crashed", "start-failed") else ()
            ending = messages.Ending(kind, message, self._run.migrated_to, log, time.time(), panicked=message == life.PANICKED)
            logger.info("the run of the domain is over", extra={"ending": kind, "reason": message})
            self._set(ending=ending, domain=None)
        self._over.set()

    # --- watching ----------------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            for cut in qemu_log.trim_all(self._qemu_log(self._name)) if self._name else ():
                logger.info("a log was cut: it had grown too long", extra={"path": str(cut), "bytes": qemu_log.MAX_BYTES})
            await self._look()

    async def _look(self) -> bool:
        """Take in what is so now; return whether that could be done."""
        async with self._looking:  # or an older observation could arrive after a newer one
            if not self._name:
                return True
            try:
                self._take(await self._hypervisor.observe(self._name))
            except HypervisorError as error:
                logger.info("the domain cannot be observed", extra={"error": str(error)})
                return False
            return True

    def _take(self, seen: Observation | None) -> None:
        """Make the status agree with what was seen."""
        if self.status.ending is not None:
            return
        self._agent.take(seen)
        self._domain = seen
        if seen is not None and seen.active:
            self._take_active(seen)
        else:
            self.console.detach()
            self._take_inactive(seen)

    def _take_active(self, seen: Observation) -> None:
        if self._machine is not None and _has_console(self._machine):
            self.console.attach()
        if (incoming := arrival.expected(self.status)) is not None:
            self._arriving(arrival.advanced(incoming, seen, time.time()))
        kind: messages.Accelerator = "kvm" if seen.type == "kvm" else "qemu"
        names = disks.names_by_target(self._machine.domain) if seen.disk_errors and self._machine is not None else {}
        domain = messages.DomainStatus(seen.name, seen.uuid, kind, NAMES[seen.state], seen.reason, life.fault_of(seen, names))
        if self.status.domain is None or (domain.state, domain.reason) != (self.status.domain.state, self.status.domain.reason):
            logger.info("the guest is %s (%s)", domain.state, domain.detail or domain.reason, extra={"domain": domain.name})
        if seen.reboots > self.status.reboots:
            logger.info("the guest rebooted")
        self._set(domain=domain, reboots=seen.reboots, started=self.status.started or self._existed)

    def _take_inactive(self, seen: Observation | None) -> None:
        incoming = arrival.expected(self.status)
        if incoming is not None and not self._existed:
            gone = arrival.lost(incoming, time.time())
            if gone is not incoming and self._stopping is not None:
                self._over.set()
            self._migration(gone)
        self._set(domain=None)
        if not self._existed or (self._operation.locked() and not self.status.started):
            return
        if self._departure is not None:
            return  # it finds out where the domain is
        self._end(*life.ending_of(self._run, seen))

    def _take_facts(self, facts: GuestFacts) -> None:
        self._set(agent=agent.status_of(facts), interfaces=agent.interfaces_of(facts, self._machine))

    def _agent_gone(self) -> None:
        self._set(agent=dataclasses.replace(self.status.agent, connected=False))

    # --- migration ---------------------------------------------------------------------------------------------------------------

    async def _prepare(self, request: messages.PrepareMigrationTarget) -> None:
        async with self._operation:
            if self.status.migration_of(request.migration_uid) is not None:
                return
            if self._machine is not None or self._over.is_set():
                raise Refused("Conflict", "this pod is no empty target")
            if reason := disks.not_migratable(request.machine.domain):
                raise Refused("Invalid", reason)
            try:
                async with self._until_abandoned():
                    await self._prepare_start(request.machine)
            except StartFailure as error:
                raise Refused("Failed", str(error)) from error
            self._adopt(request.machine)
            self._migration(messages.MigrationStatus(request.migration_uid, "incoming", "prepared"))

    async def _release(self, request: messages.ReleaseMigration) -> None:
        async with self._operation:
            await self._look()  # the source may know that the domain arrived before this process does
            known = self.status.migration_of(request.migration_uid)
            if known is None or known.direction != "incoming" or known.state not in ("arrived", "succeeded"):
                raise Refused("Conflict", f"there is nothing to release: the migration is {known.state if known else 'unknown'}")
            if known.state == "arrived":
                try:
                    if not request.paused:
                        await self._hypervisor.resume(self._name)
                except HypervisorError as error:
                    raise _refused(error) from error
                self._arriving(dataclasses.replace(known, state="succeeded", end_time=time.time()))
        await self._look()

    def _arriving(self, migration: messages.MigrationStatus) -> None:
        if migration.state == "succeeded":
            self._existed, self._run = True, dataclasses.replace(self._run, ran=True)
        self._migration(migration)

    async def _migrate(self, request: messages.Migrate) -> None:
        uid = request.migration_uid
        async with self._operation:
            if self.status.migration_of(uid) is not None:
                return
            if not self._has_run("migrate") or self._departure is not None or self._stopping is not None:
                raise Refused("Conflict", "cannot migrate: the guest is off, being shut down or being migrated already")
            if self.status.not_migratable:
                raise Refused("Invalid", f"cannot migrate: {self.status.not_migratable}")
            self._departure = Departure(self._hypervisor, self._name, uid, self._migration)
            self._group.create_task(self._depart(self._departure))

    async def _depart(self, departure: Departure) -> None:
        outcome = await departure.run()
        self._departure = None
        if outcome.state == "succeeded":
            self._run = dataclasses.replace(self._run, migrated_to=outcome.uid)
            self._migration(outcome)
            self._end("migrated", "the guest runs on in another pod")
        else:
            self._migration(outcome)
            await self._look()

    async def _abort(self, request: messages.AbortMigration) -> None:
        migration = self.status.migration_of(request.migration_uid)
        if migration is None:
            raise Refused("Conflict", "this pod has no such migration")
        if migration.direction == "incoming" and migration.state == "prepared":
            self._migration(dataclasses.replace(migration, state="cancelled", end_time=time.time()))
        elif self._departure is not None and self._departure.status.uid == migration.uid:
            try:
                await self._departure.abort()
            except HypervisorError as error:
                raise _refused(error) from error

    # --- status ------------------------------------------------------------------------------------------------------------------

    def _migration(self, changed: messages.MigrationStatus) -> None:
        self._set(migrations=life.with_migration(self.status.migrations, changed))

    def _viewers_changed(self) -> None:
        self._set(consoles=self.console.viewers)

    def _set(self, **changes: Any) -> None:  # noqa: ANN401  # members of Status
        changed = dataclasses.replace(self.status, **changes)
        if changed != self.status:
            self.status = dataclasses.replace(changed, revision=self.status.revision + 1)
            self._status_changed()


def _has_console(machine: messages.Machine) -> bool:
    consoles = (machine.domain.get("devices") or {}).get("consoles")
    return consoles is None or bool(consoles)


def _refused(error: HypervisorError) -> Refused:
    match error:
        case OperationInvalid():
            return Refused("Conflict", str(error))
        case OperationTimeout() | Unavailable():
            return Refused("Timeout", str(error))
        case _:
            return Refused("Failed", str(error))
