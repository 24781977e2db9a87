"""This node's side of live migrations, as source.

``migration_plan`` decides; here its actions meet launcher, relays and API. Everything may be repeated: the launcher tries a migration
once whatever it is told, relays that are open stay open, writes carry the resourceVersion that they were decided on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from apiserver.apis.meta import errors, objects, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import migration_attempts, phases, power, release
from apiserver.apis.virt.resources import MIGRATIONS
from controller.runtime.reconciling import Request, Result
from handler.network.namespaces import CommandFailed
from handler.pods.launcher import Connection, Refused
from handler.pods.links import Link, Who
from handler.reconcilers import guest_status, migration_causes, migration_limits, migration_plan, migration_side
from handler.reconcilers.migration_ports import Outgoing, Ports
from handler.reconcilers.run_guest import DISAGREE_SECONDS
from handler.relays.outgoing import Destination
from launcher.protocol import messages

logger = logging.getLogger(__name__)

TELL_AGAIN_SECONDS: Final = 2.0
"""The guest stands still until the target has heard."""


class MigrateSource(migration_side.Side):
    """The reconciler of migrations that leave this node."""

    def __init__(self, ports: Ports, relays: Outgoing) -> None:
        super().__init__(ports)
        self._relays = relays
        self._pods: dict[Request, str] = {}
        """The source's pod of each migration: the VM names the target's as soon as the guest is there."""
        self._told: set[str] = set()
        """uids of the migrations whose target has answered that it released the domain."""
        self._passed_on: set[str] = set()
        """uids of the migrations whose source's connections are passed on, or cannot be."""
        self._paused: set[str] = set()
        """uids of the migrations of which was said that their guest is paused."""
        self._moved: dict[str, tuple[int, float]] = {}
        """By uid: how many bytes have moved, and when that was last another number."""

    async def reconcile(self, request: Request) -> Result:
        """Bring the source's side closer to its end."""
        before: migration_plan.Action | None = None
        for _ in range(migration_side.MAX_STEPS):
            migration = self._ports.migrations.get(request.namespace, request.name)
            if migration is None:
                self._close(request)
                return Result()
            if self._is_another(request, migration):
                self._close(request)
                continue
            link = self._link(request, migration)
            observed = migration_plan.Observed(
                migration=migration,
                launcher=link.status if link else None,
                connected=link is not None and link.connection is not None,
                gone=link is not None and link.gone,
                told=migration_attempts.uid_of(migration) in self._told,
                passed_on=migration_attempts.uid_of(migration) in self._passed_on,
                stop=migration_causes.stop_of(self._ports.machines.get(request.namespace, migration_side.vm_name(migration))),
                now=self._ports.clock.now(),
                stalled_seconds=self._stalled(migration_attempts.uid_of(migration), link),
                can_pause=link is not None and link.connection is not None and link.connection.knows(messages.PauseForMigration),
                ending=self.ending,
            )
            action = migration_plan.plan_source(observed)
            if action == before:
                break  # it was done, and nothing came of it
            before = action
            if isinstance(action, migration_plan.Tell):
                if (rest := await self._tell(migration, link)) is not None:
                    return rest
                continue
            if not await self._apply(request, migration, link, action):
                return Result(requeue_after=_look_again(migration, action))
        return Result(requeue_after=DISAGREE_SECONDS)

    def _link(self, request: Request, migration: Object) -> Link | None:
        """Return the link to the source's pod; it was known before the guest moved, or this process was restarted since."""
        vm = self._ports.machines.get(request.namespace, migration_side.vm_name(migration))
        if pod_uid := migration_plan.source_pod(vm, migration):
            self._pods[request] = pod_uid
        known = self._pods.get(request)
        return self._ports.links.want(known, Who("source", request)) if known else None

    def _stalled(self, uid: str, link: Link | None) -> float:
        """Return for how many seconds this process has seen nothing of the guest move; 0 where nobody can tell."""
        known = link.status.migration_of(uid) if link is not None and link.status is not None else None
        if link is None or link.connection is None or known is None or known.state not in ("running", "cancelled"):
            self._moved.pop(uid, None)
            return 0.0
        now = asyncio.get_running_loop().time()
        moved = max(known.data_processed_bytes, known.memory_processed_bytes)
        if known.state == "running" and self._moved.get(uid, (-1, now))[0] != moved:
            self._moved[uid] = (moved, now)
        return now - self._moved.get(uid, (0, now))[1]

    def _close(self, request: Request) -> None:
        uid = self._uids.pop(request, "")
        self._moved.pop(uid, None)
        self._paused.discard(uid)
        self._relays.close(uid)
        self._told.discard(uid)
        self._passed_on.discard(uid)
        self._pods.pop(request, None)
        self._ports.links.release(Who("source", request))

    async def _apply(self, request: Request, migration: Object, link: Link | None, action: migration_plan.Action) -> bool:
        uid = migration_attempts.uid_of(migration)
        match action:
            case migration_plan.Close():
                self._close(request)
                return False
            case migration_plan.Begin():
                started = objects.dig(migration, "status", "startTime") or times.to_rfc3339(self._ports.clock.now())
                await self._write(migration, phases.RUNNING, startTime=started)
                return True
            case migration_plan.Relay():
                return await self._migrate(migration, link.pod_uid if link else "", migration_side.live(link))
            case migration_plan.Abort():
                await migration_side.live(link).call(messages.AbortMigration(uid))
                return False  # the launcher's next status says what became of it
            case migration_plan.Pause():
                await self._pause(migration, migration_side.live(link))
                return False
            case migration_plan.PassOn():
                await self._pass_on(migration, migration_side.live(link), action.addresses)
                return True
            case migration_plan.Linger():
                self._relays.close(uid)
                return False
            case migration_plan.Report():
                await self._report(migration, guest_status.printable(action.message))
                return True
            case migration_plan.Conclude():
                figures = self._figures(migration, link) if phases.phase_of(migration) == phases.RUNNING else {}
                await self._write(migration, action.phase, message=guest_status.printable(action.message), **figures)
                reason = "MigrationFailed" if action.phase == phases.FAILED else "MigrationCancelled"
                self._say(migration, "Warning", reason, f"the guest stays on its node: {guest_status.printable(action.message)}")
                return True
            case _:
                return False

    async def _migrate(self, migration: Object, pod_uid: str, connection: Connection) -> bool:
        uid, destination = migration_attempts.uid_of(migration), _destination(migration)
        try:
            await self._relays.open(uid, pod_uid, destination)
            await connection.call(migration_limits.request(migration))
        except Refused as refused:
            if refused.status.migration_of(uid) is not None or refused.reason == "Timeout":
                return True  # its status says more
            await self._fail(migration, f"the launcher refused: {refused}")
        except (OSError, TimeoutError, ValueError) as error:
            await self._fail(
                migration, f"the way to {destination.address or 'the target'} cannot be opened: {str(error) or 'it took too long'}"
            )
        else:
            self._say(migration, "Normal", "MigrationStarted", f"the guest moves to node {objects.dig(migration, 'status', 'targetNode')}")
        return True

    async def _pause(self, migration: Object, connection: Connection) -> None:
        await connection.call(messages.PauseForMigration(migration_attempts.uid_of(migration)))
        if migration_attempts.uid_of(migration) not in self._paused:
            self._paused.add(migration_attempts.uid_of(migration))
            message = "the guest is paused until it has arrived, because it did not within the time that its policy gives it"
            self._say(migration, "Normal", "MigrationPaused", message)

    async def _pass_on(self, migration: Object, connection: Connection, addresses: Sequence[str]) -> None:
        """Pass connections on that still come to the pod. Where that fails they wait for nobody, as without it: once is enough."""
        self._passed_on.add(migration_attempts.uid_of(migration))
        try:
            await self._ports.node.pass_on(connection, addresses)
        except CommandFailed as error:
            logger.warning("pass connections on to the target of migration %s: %s", objects.uid_of(migration), error)

    async def _tell(self, migration: Object, link: Link | None) -> Result | None:
        """The domain left: have it released. Without the target's answer the word goes into the Migration, too, and is said again.

        Return when to look again; None: it was released.
        """
        uid, destination = migration_attempts.uid_of(migration), _destination(migration)
        vm = self._ports.machines.get(objects.namespace_of(migration), migration_side.vm_name(migration))
        paused = vm is not None and power.wants_paused(migration_side.sound(vm))
        try:
            await self._relays.release(uid, link.pod_uid if link else "", destination, paused=paused)
        except (OSError, TimeoutError, ValueError) as error:
            logger.warning("release the guest of migration %s at %s: %s", uid, destination, str(error) or "no answer")
        else:
            self._told.add(uid)
            return None
        if not release.is_released(migration):
            message = "the guest left the source; virt-handler of the target lets it run"
            status = release.released(migration, release.BY_HANDLER, message, self._ports.clock.now())
            written = await self._ports.api.update(MIGRATIONS, {**migration, "status": status}, subresource="status")
            self._ports.migrations.remember(written)
        return Result(requeue_after=TELL_AGAIN_SECONDS)

    async def _report(self, migration: Object, message: str) -> None:
        """Say that the attempt failed; of a virt-api or a policy that takes no such word, that the Migration did."""
        found = migration_attempts.failed(migration, migration_attempts.CONNECTION_BROKEN, message, self._ports.clock.now())
        try:
            await self._write(migration, phases.phase_of(migration), attempts=found)
        except (errors.Forbidden, errors.Invalid, errors.BadRequest) as error:
            logger.warning("that an attempt of migration %s failed cannot be said: %s", objects.uid_of(migration), error)
            await self._fail(migration, message)

    async def _fail(self, migration: Object, message: str) -> None:
        """End it before the launcher began: the domain has not moved."""
        await self._write(migration, phases.FAILED, message=guest_status.printable(message))
        self._say(migration, "Warning", "MigrationFailed", guest_status.printable(message))


def _look_again(migration: Object, action: migration_plan.Action) -> float | None:
    """Return after how many seconds time alone may have changed what is done."""
    if isinstance(action, migration_plan.Wait) and action.seconds is not None:
        return action.seconds
    return migration_side.LOOK_AGAIN_SECONDS if phases.phase_of(migration) == phases.RUNNING else None


def _destination(migration: Object) -> Destination:
    status = migration.get("status") or {}
    return Destination(str(status.get("targetNode") or ""), str(status.get("targetAddress") or ""))
