"""This node's side of live migrations, as target.

``migration_plan`` decides; here its actions meet launcher, the listener for the source's relays and API. Everything may be repeated: the
launcher prepares a domain once whatever it is told, a listener that is open stays open, writes carry the resourceVersion that they were
decided on.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable

from apiserver.apis.meta import errors, objects, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import chosen_cpu, migration_attempts, phases, power
from apiserver.apis.virt.resources import VIRTUAL_MACHINES
from controller.runtime.flowcontrol import TokenBucket
from controller.runtime.reconciling import Request, Result
from handler.devices import ownership
from handler.network.binding import Unsupported
from handler.pods.hanging import StorageHangs
from handler.pods.launcher import Refused
from handler.pods.links import Link, Who
from handler.reconcilers import guest_status, migration_plan, migration_side
from handler.reconcilers.migration_ports import Door, Ports
from handler.reconcilers.run_guest import DISAGREE_SECONDS, WRITE_SECONDS, WRITES_BURST, machine_of
from handler.reconcilers.wiring import HEALING
from handler.relays.incoming import Expected
from handler.storage.adding import DisksFault
from launcher.protocol import messages


class MigrateTarget(migration_side.Side):
    """The reconciler of migrations that come to this node."""

    def __init__(self, ports: Ports, door: Door, address: Callable[[], str]) -> None:
        super().__init__(ports)
        self._door = door
        self._address = address
        self._expected: set[str] = set()
        """uids of the migrations for which source relays are accepted."""
        self._faults: dict[str, TokenBucket] = {}
        """By uid: how many faults of its target may still be told, whose words are the launcher's."""

    async def reconcile(self, request: Request) -> Result:
        """Bring the target's side closer to its end."""
        before: migration_plan.Action | None = None
        for _ in range(migration_side.MAX_STEPS):
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
                return Result(requeue_after=migration_side.LOOK_AGAIN_SECONDS if isinstance(action, migration_plan.Listen) else None)
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
        vm, connection = await self._machine(migration), migration_side.live(link)
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

    async def _release(self, migration_uid: str, link: Link, paused: bool) -> None:  # noqa: FBT001 - as the listener calls it
        """Let the guest run: the source's launcher said that it left. Needs no API server."""
        await migration_side.live(link).call(messages.ReleaseMigration(migration_uid, paused))

    async def _take_over(self, migration: Object, link: Link) -> None:
        """Write the VM first: from then on it is this node's. Whoever restarts in between finds it done and writes the rest."""
        vm = await self._machine(migration)
        source = objects.dig(migration, "status", "sourceNode")
        if link.status is not None and objects.dig(vm, "status", "podUID") != link.pod_uid:
            if objects.dig(vm, "status", "nodeName") != source:
                raise errors.Conflict(f"virtual machine {migration_side.vm_name(migration)} is not on {source}, where it came from")
            interfaces = await self._ports.wiring.wire(vm, link.pod_uid, migration_side.live(link))
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
        return migration_side.sound(
            await self._ports.api.get(VIRTUAL_MACHINES, migration_side.vm_name(migration), objects.namespace_of(migration))
        )
