"""The source side of live migrations from this node.

It executes the actions of ``side_plan``, which can be repeated: the launcher tries each migration once, open relays stay open, and writes
carry their resourceVersion.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import assert_never

from apiserver.apis.meta import errors, objects, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import structure
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import departure, migration_attempts, operations, phases, power
from apiserver.apis.virt.places.resources import MIGRATIONS
from apiserver.apis.virt.spec import hot_plug
from controller.runtime.reconciling import Request, Result
from handler.network.namespaces import CommandFailed
from handler.pods.launcher import Connection, LauncherRefused
from handler.pods.links import Holder, Link
from handler.reconcilers.guests import guest_status
from handler.reconcilers.migrations import migration_causes, migration_limits, migration_side, side_plan
from handler.reconcilers.migrations.migration_ports import Outgoing, Ports
from handler.reconcilers.migrations.migration_stalls import Stalls
from handler.relays.outgoing import Destination
from launcher.protocol import messages

logger = logging.getLogger(__name__)


class MigrateSource(migration_side.Side[side_plan.SourceAction]):
    """The reconciler of migrations that leave this node."""

    def __init__(self, ports: Ports, relays: Outgoing) -> None:
        super().__init__(ports)
        self._relays = relays
        self._pods: dict[Request, str] = {}
        """The source's pod: after the arrival the machine's status has the target's."""
        self._released: set[str] = set()
        """Uids of migrations that the target reported as released."""
        self._forwarded: set[str] = set()
        """Uids of migrations with forwarded connections, or a failed attempt."""
        self._paused: set[str] = set()
        """Uids of migrations with a reported pause."""
        self._stalls = Stalls()

    def _plan(self, migration: Object, link: Link | None) -> side_plan.SourcePlan:
        uid, connection = migration_attempts.uid_of(migration), link.connection if link is not None else None
        vm = self._ports.machines.get(objects.namespace_of(migration), migration_side.vm_name(migration))
        seen = side_plan.Observed(
            migration=migration,
            launcher=link.status if link is not None else None,
            connected=connection is not None,
            gone=link is not None and link.gone,
            released=uid in self._released,
            forwarded=uid in self._forwarded,
            stop=migration_causes.stop_of(vm),
            now=self._ports.clock.now(),
            stalled_seconds=self._stalled(uid, link),
            can_pause=connection is not None and connection.knows(messages.PauseForMigration),
            operating=_may_operate(vm, migration),
            importing=hot_plug.import_barrier(vm) if vm is not None else "",
            ending=self.ending,
        )
        return side_plan.plan_source(seen)

    def _link(self, request: Request, migration: Object) -> Link | None:
        vm = self._ports.machines.get(request.namespace, migration_side.vm_name(migration))
        if pod_uid := side_plan.source_pod(vm, migration):
            self._pods[request] = pod_uid
        left = self._pods.get(request)
        return self._ports.links.acquire(left, Holder("source", request)) if left else None

    def _stalled(self, uid: str, link: Link | None) -> float:
        status = link.status if link is not None and link.connection is not None else None
        report = status.migration_of(uid) if status is not None else None
        return self._stalls.seconds(uid, report, asyncio.get_running_loop().time())

    def _forget(self, request: Request) -> None:
        uid = self._uids.pop(request, "")
        self._stalls.forget(uid)
        self._paused.discard(uid)
        self._relays.close(uid)
        self._released.discard(uid)
        self._forwarded.discard(uid)
        self._pods.pop(request, None)
        self._ports.links.release(Holder("source", request))

    async def _apply(self, request: Request, migration: Object, link: Link | None, action: side_plan.SourceAction) -> Result | None:
        uid = migration_attempts.uid_of(migration)
        match action:
            case side_plan.Requeue():
                return Result(action.seconds)
            case side_plan.ForgetMigration():
                self._forget(request)
                return Result()
            case side_plan.CloseRelays():
                self._relays.close(uid)
                return Result()
            case side_plan.AbortMigration():
                await migration_side.connection_of(link).call(messages.AbortMigration(uid))
                return Result()
            case side_plan.PauseGuest():
                await self._pause(migration, migration_side.connection_of(link))
                return Result()
            case side_plan.BeginMigration():
                started = dig_migration(migration, "status", "startTime") or times.to_rfc3339(self._ports.clock.now())
                await self._write(migration, phases.RUNNING, startTime=started)
            case side_plan.MigrateGuest():
                await self._migrate(migration, link.pod_uid if link else "", migration_side.connection_of(link))
            case side_plan.RequestRelease():
                return await self._request_release(migration, link)
            case side_plan.ForwardConnections():
                await self._forward(migration, migration_side.connection_of(link), action.addresses)
            case side_plan.FailAttempt():
                await self._fail_attempt(migration, guest_status.printable(action.message))
            case side_plan.EndMigration():
                await self._end(migration, link, action)
            case _:
                assert_never(action)
        return None

    async def _migrate(self, migration: Object, pod_uid: str, connection: Connection) -> None:
        uid, destination = migration_attempts.uid_of(migration), _destination(migration)
        try:
            await self._relays.open(uid, pod_uid, destination)
            await connection.call(migration_limits.request(migration))
        except LauncherRefused as refused:
            if refused.status.migration_of(uid) is not None or refused.reason == "Timeout":
                return
            await self._fail(migration, f"virt-launcher refused: {refused}")
        except (OSError, TimeoutError, ValueError) as error:
            await self._fail(migration, f"cannot connect to {destination.address or 'the target'}: {str(error) or 'timed out'}")
        else:
            self._emit(
                migration, "Normal", "MigrationStarted", f"the guest is moving to node {dig_migration(migration, 'status', 'targetNode')}"
            )

    async def _pause(self, migration: Object, connection: Connection) -> None:
        await connection.call(messages.PauseForMigration(migration_attempts.uid_of(migration)))
        if migration_attempts.uid_of(migration) not in self._paused:
            self._paused.add(migration_attempts.uid_of(migration))
            message = "the guest is paused until it has arrived, because the migration reached its time limit (allowPause)"
            self._emit(migration, "Normal", "MigrationPaused", message)

    async def _forward(self, migration: Object, connection: Connection, addresses: Sequence[str]) -> None:
        """Forward connections that still come to the pod, without retries: they only fail."""
        self._forwarded.add(migration_attempts.uid_of(migration))
        try:
            await self._ports.node.forward(connection, addresses)
        except CommandFailed as error:
            logger.warning("cannot forward connections to the target of migration %s: %s", objects.uid_of(migration), error)

    async def _request_release(self, migration: Object, link: Link | None) -> Result | None:
        """Request the release of the domain that left; return when to check again, or None if the target answered.

        Without an answer the release is also written into the Migration.
        """
        uid, destination = migration_attempts.uid_of(migration), _destination(migration)
        vm = self._ports.machines.get(objects.namespace_of(migration), migration_side.vm_name(migration))
        paused = vm is not None and power.wants_paused(migration_side.validated(vm))
        try:
            await self._relays.release(uid, link.pod_uid if link else "", destination, paused=paused)
        except (OSError, TimeoutError, ValueError) as error:
            logger.warning("cannot release the guest of migration %s at %s: %s", uid, destination, str(error) or "no answer")
        else:
            self._released.add(uid)
            return None
        if not departure.is_released(migration):
            message = "the guest left the source; virt-handler of the target resumes it"
            status = departure.released(migration, departure.BY_HANDLER, message, self._ports.clock.now())
            written = await self._ports.api.update(MIGRATIONS, {**migration, "status": status}, subresource="status")
            self._ports.migrations.remember(written)
        return Result(requeue_after=self._ports.limits.release_again_seconds)

    async def _fail_attempt(self, migration: Object, message: str) -> None:
        found = migration_attempts.failed(migration, migration_attempts.CONNECTION_BROKEN, message, self._ports.clock.now())
        try:
            await self._write(migration, phases.phase_of(migration), attempts=found)
        except (errors.Forbidden, errors.Invalid, errors.BadRequest) as error:
            logger.warning("cannot report the failed attempt of migration %s: %s", objects.uid_of(migration), error)
            await self._fail(migration, message)

    async def _end(self, migration: Object, link: Link | None, end: side_plan.EndMigration) -> None:
        figures = self._figures(migration, link) if phases.phase_of(migration) == phases.RUNNING else {}
        message = guest_status.printable(end.message)
        await self._write(migration, end.phase, message=message, **figures)
        if end.stays:
            self._emit(migration, "Warning", f"Migration{end.phase}", f"the guest stays on its node: {message}")

    async def _fail(self, migration: Object, message: str) -> None:
        await self._write(migration, phases.FAILED, message=guest_status.printable(message))
        self._emit(migration, "Warning", "MigrationFailed", guest_status.printable(message))


def _may_operate(vm: Object | None, migration: Object) -> bool:
    """Return whether the machine has an unfinished operation, or may get one, because its status does not name the Migration yet.

    ``vm`` None: True; an invalid ``vm``: False.
    """
    if vm is None:
        return True
    if structure.of_virtual_machine(vm):
        return False  # it is invalid, and no operation of it is carried out
    return bool(operations.unfinished(vm)) or dig_vm(vm, "status", "migration", "uid") != objects.uid_of(migration)


def _destination(migration: Object) -> Destination:
    status = migration.get("status") or {}
    return Destination(str(status.get("targetNode") or ""), str(status.get("targetAddress") or ""))
