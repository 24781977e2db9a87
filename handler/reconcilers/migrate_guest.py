"""This node's side of live migrations: as source, and as target.

``migration_plan`` decides; here its actions meet launcher, relays and API. Everything may be repeated: the launcher tries a migration
once whatever it is told, relays that are open stay open, writes carry the resourceVersion that they were decided on.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Final, Literal

from apiserver.apis.meta import errors, objects, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import chosen_cpu, migration_attempts, phases, power, release, structure
from apiserver.apis.virt.resources import MIGRATIONS, VIRTUAL_MACHINES
from controller.runtime.flowcontrol import TokenBucket
from controller.runtime.reconciling import InvalidObject, Request, Result
from handler.devices import ownership
from handler.network.binding import Unsupported
from handler.network.namespaces import CommandFailed
from handler.pods.hanging import StorageHangs
from handler.pods.launcher import Connection, Disconnected, Refused
from handler.pods.links import Link, Who
from handler.reconcilers import guest_status, migration_causes, migration_limits, migration_plan, migration_progress
from handler.reconcilers.migration_ports import Door, Outgoing, Ports
from handler.reconcilers.run_guest import DISAGREE_SECONDS, WRITE_SECONDS, WRITES_BURST, machine_of
from handler.reconcilers.wiring import HEALING
from handler.relays.incoming import Expected
from handler.relays.outgoing import Destination
from handler.storage.adding import DisksFault
from launcher.protocol import messages

logger = logging.getLogger(__name__)

MAX_STEPS: Final = 8
LOOK_AGAIN_SECONDS: Final = 10.0
TELL_AGAIN_SECONDS: Final = 2.0
"""The guest stands still until the target has heard."""


class _Side:
    """Base of both sides: knows a Migration again, and writes it."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self.ending = False
        """This virt-handler ends soon: no migration begins."""
        self._uids: dict[Request, str] = {}
        """Of the attempts (``migration_attempts.uid_of``), as everywhere here."""

    def _is_another(self, request: Request, migration: Object) -> bool:
        """Return whether this is another attempt than at the last look, or another Migration of the name: something is held for that."""
        return self._uids.setdefault(request, migration_attempts.uid_of(migration)) != migration_attempts.uid_of(migration)

    async def _write(self, migration: Object, phase: str, **more: str | Object | list[Object]) -> None:
        now = self._ports.clock.now()
        old = migration.get("status") or {}
        status = {**phases.enter(old, phase, now), **more}
        if phase in phases.MIGRATION_FINAL:
            status.setdefault("endTime", times.to_rfc3339(now))
        if status == old:
            return
        written = await self._ports.api.update(MIGRATIONS, {**migration, "status": status}, subresource="status")
        self._ports.migrations.remember(written)

    def _figures(self, migration: Object, link: Link | None) -> dict[str, Object]:
        known = link.status.migration_of(migration_attempts.uid_of(migration)) if link is not None and link.status is not None else None
        return migration_progress.at_end(known, self._ports.clock.now(), objects.dig(migration, "status", "progress"))

    def _say(self, migration: Object, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Say it of the Migration, and of its virtual machine where this node knows it."""
        self._ports.events.event(migration, MIGRATIONS, type_, reason, message)
        if (vm := self._ports.machines.get(objects.namespace_of(migration), _vm_name(migration))) is not None:
            self._ports.events.event(vm, VIRTUAL_MACHINES, type_, reason, message)


class MigrateSource(_Side):
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
        for _ in range(MAX_STEPS):
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
                stop=migration_causes.stop_of(self._ports.machines.get(request.namespace, _vm_name(migration))),
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
                return Result(requeue_after=LOOK_AGAIN_SECONDS if phases.phase_of(migration) == phases.RUNNING else None)
        return Result(requeue_after=DISAGREE_SECONDS)

    def _link(self, request: Request, migration: Object) -> Link | None:
        """Return the link to the source's pod; it was known before the guest moved, or this process was restarted since."""
        vm = self._ports.machines.get(request.namespace, _vm_name(migration))
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
                return await self._migrate(migration, link.pod_uid if link else "", _live(link))
            case migration_plan.Abort():
                await _live(link).call(messages.AbortMigration(uid))
                return False  # the launcher's next status says what became of it
            case migration_plan.Pause():
                await self._pause(migration, _live(link))
                return False
            case migration_plan.PassOn():
                await self._pass_on(migration, _live(link), action.addresses)
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
        vm = self._ports.machines.get(objects.namespace_of(migration), _vm_name(migration))
        paused = vm is not None and power.wants_paused(_sound(vm))
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


class MigrateTarget(_Side):
    """The reconciler of migrations that come to this node."""

    def __init__(self, ports: Ports, door: Door, address: Callable[[], str]) -> None:
        super().__init__(ports)
        self._door = door
        self._address = address
        self._expected: set[str] = set()
        """uids of the migrations for which the door is open."""
        self._faults: dict[str, TokenBucket] = {}
        """By uid: how many faults of its target may still be told, whose words are the launcher's."""

    async def reconcile(self, request: Request) -> Result:
        """Bring the target's side closer to its end."""
        before: migration_plan.Action | None = None
        for _ in range(MAX_STEPS):
            migration = self._ports.migrations.get(request.namespace, request.name)
            pod_uid = str(objects.dig(migration, "status", "targetPodUID") or "")
            if migration is None:
                self._close(request)
                return Result()
            if self._is_another(request, migration):
                self._close(request)
                continue
            link = self._ports.links.want(pod_uid, Who("target", request)) if pod_uid else None
            observed = migration_plan.Observed(
                migration=migration,
                launcher=link.status if link else None,
                connected=link is not None and link.connection is not None,
                gone=link is not None and link.gone,
                relaying=migration_attempts.uid_of(migration) in self._expected,
                address=self._address(),
                now=self._ports.clock.now(),
                ending=self.ending,
            )
            action = migration_plan.plan_target(observed)
            if action == before:
                break  # it was done, and nothing came of it
            before = action
            if link is None or not await self._apply(request, migration, link, action):
                return Result(requeue_after=LOOK_AGAIN_SECONDS if isinstance(action, migration_plan.Listen) else None)
        return Result(requeue_after=DISAGREE_SECONDS)

    def _close(self, request: Request) -> None:
        self._forget(self._uids.pop(request, ""))
        self._ports.links.release(Who("target", request))

    def _forget(self, uid: str) -> None:
        self._expected.discard(uid)
        self._door.forget(uid)
        self._faults.pop(uid, None)

    async def _apply(self, request: Request, migration: Object, link: Link, action: migration_plan.Action) -> bool:
        uid = migration_attempts.uid_of(migration)
        match action:
            case migration_plan.Close():
                self._close(request)
                return False
            case migration_plan.Prepare():
                try:
                    await self._prepare(migration, link)
                except (Refused, Unsupported, *HEALING, ownership.NotTheDevice, StorageHangs, DisksFault, OSError) as error:
                    await self._tell_fault(migration, error)
                    raise
                return True
            case migration_plan.Expect():
                source = str(objects.dig(migration, "status", "sourceNode") or "")
                self._door.expect(uid, Expected(link.pod_uid, source, functools.partial(self._release, uid, link)))
                self._expected.add(uid)
                return True
            case migration_plan.Offer():
                phase = phases.phase_of(migration)
                ready = phases.TARGET_READY if phase == phases.PREPARING_TARGET else phase
                told = {"message": ""} if ready != phase and objects.dig(migration, "status", "message") else {}  # it is ready now
                await self._write(migration, ready, targetAddress=action.address, **told)
                return True
            case migration_plan.Release():
                await self._release(uid, link, power.wants_paused(await self._machine(migration)))
                return True
            case migration_plan.TakeOver():
                await self._take_over(migration, link)
                return True
            case migration_plan.Listen():
                self._forget(uid)
                return False
            case migration_plan.Measure():
                with contextlib.suppress(errors.Forbidden, errors.Invalid, errors.BadRequest):  # of a virt-api that is older
                    await self._write(migration, phases.SUCCEEDED, **self._figures(migration, link))
                self._close(request)
                return False
            case _:
                return False

    async def _prepare(self, migration: Object, link: Link) -> None:
        vm, connection = await self._machine(migration), _live(link)
        given = await self._ports.node.give_devices(vm, link.pod_uid, connection)
        # The guest runs already, and goes on as it is.
        accelerator: messages.Accelerator = "kvm" if objects.dig(vm, "status", "domain", "type") == "kvm" else "qemu"
        if accelerator == "kvm" and given != "kvm":
            raise ownership.NotTheDevice("the guest runs with KVM, and there is no /dev/kvm in the pod")
        served = await self._ports.disks.add(vm, link.pod_uid)
        interfaces = await self._ports.wiring.wire(vm, link.pod_uid, connection)
        machine = machine_of(vm, accelerator, interfaces, chosen_cpu.running(vm), served)
        request = messages.PrepareMigrationTarget(migration_attempts.uid_of(migration), machine, relays_disks=True)
        await connection.call(request)

    async def _tell_fault(self, migration: Object, error: Exception) -> None:
        """Say in the Migration why its target is not ready; it is tried again until virt-controller gives up.

        A launcher that its guest has taken over finds new words each time: they are told as often as a machine's status is written.
        """
        message = guest_status.printable(f"the target on node {objects.dig(migration, 'status', 'targetNode')} is not ready: {error}")
        if phases.phase_of(migration) != phases.PREPARING_TARGET or objects.dig(migration, "status", "message") == message:
            return
        now = asyncio.get_running_loop().time()
        if self._faults.setdefault(migration_attempts.uid_of(migration), TokenBucket(WRITES_BURST, 1 / WRITE_SECONDS, now)).try_accept(now):
            await self._write(migration, phases.PREPARING_TARGET, message=message)
            self._say(migration, "Warning", "MigrationTargetNotReady", message)

    async def _release(self, migration_uid: str, link: Link, paused: bool) -> None:  # noqa: FBT001 - as the door calls it
        """Let the guest run: the source's launcher said that it left. Needs no API server."""
        await _live(link).call(messages.ReleaseMigration(migration_uid, paused))

    async def _take_over(self, migration: Object, link: Link) -> None:
        """Write the VM first: from then on it is this node's. Whoever restarts in between finds it done and writes the rest."""
        vm = await self._machine(migration)
        source = objects.dig(migration, "status", "sourceNode")
        if link.status is not None and objects.dig(vm, "status", "podUID") != link.pod_uid:
            if objects.dig(vm, "status", "nodeName") != source:
                raise errors.Conflict(f"virtual machine {_vm_name(migration)} is not on {source}, where it came from")
            interfaces = await self._ports.wiring.wire(vm, link.pod_uid, _live(link))
            status = self._moved(guest_status.running(vm, link.status, interfaces, self._ports.clock.now()), migration)
            written = await self._ports.api.update(VIRTUAL_MACHINES, {**vm, "status": status}, subresource="status")
            self._ports.machines.remember(written)
        message = f"the guest moved to node {objects.dig(migration, 'status', 'targetNode')}"
        await self._write(migration, phases.SUCCEEDED, message=message, **self._figures(migration, link))
        self._say(migration, "Normal", "Migrated", f"the guest moved from node {source}")

    def _moved(self, status: Object, migration: Object) -> Object:
        moved = migration["status"]
        record = {
            "name": objects.name_of(migration),
            "uid": objects.uid_of(migration),
            **{key: moved[key] for key in ("sourceNode", "sourcePod", "targetNode", "targetPod", "startTime") if key in moved},
            "endTime": times.to_rfc3339(self._ports.clock.now()),
            "phase": phases.SUCCEEDED,
        }
        here = {"nodeName": moved["targetNode"], "podName": moved["targetPod"], "podUID": moved["targetPodUID"]}
        return {**status, **here, "migration": record}

    async def _machine(self, migration: Object) -> Object:
        # It is on the other node, so the informer of this one does not know it.
        return _sound(await self._ports.api.get(VIRTUAL_MACHINES, _vm_name(migration), objects.namespace_of(migration)))


def _sound(vm: Object) -> Object:
    """Return a machine that no loop of this process has looked at yet. Raises InvalidObject."""
    if faults := structure.of_virtual_machine(vm):
        raise InvalidObject(f"virtual machine {objects.name_of(vm)}: {'; '.join(faults)}")
    return vm


def _vm_name(migration: Object) -> str:
    return str(objects.dig(migration, "spec", "selector", "name") or "")


def _destination(migration: Object) -> Destination:
    status = migration.get("status") or {}
    return Destination(str(status.get("targetNode") or ""), str(status.get("targetAddress") or ""))


def _live(link: Link | None) -> Connection:
    if link is None or link.connection is None:
        raise Disconnected("the launcher is not connected")
    return link.connection
