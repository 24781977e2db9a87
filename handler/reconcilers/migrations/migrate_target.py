"""The target side of live migrations to this node.

It executes the actions of ``side_plan``, which are idempotent.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import assert_never

from apiserver.apis.meta import errors, objects, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import migration_attempts, phases, power
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import chosen_cpu, hot_plug_interfaces
from controller.runtime.flowcontrol import TokenBucket
from controller.runtime.reconciling import Request, Result
from handler.devices import ownership
from handler.network.binding import Interface, Unsupported
from handler.pods.hanging import StorageHangs
from handler.pods.launcher import Connection, LauncherRefused
from handler.pods.links import Holder, Link
from handler.reconcilers.guests import guest_status
from handler.reconcilers.guests.guest_machine import machine_of
from handler.reconcilers.guests.pod_networks import HEALING, TooManyChanges
from handler.reconcilers.migrations import migration_side, side_plan
from handler.reconcilers.migrations.migration_ports import Ports, RelayServer
from handler.relays.incoming import Expected
from handler.storage.adding import DisksFault
from launcher.protocol import messages


class MigrateTarget(migration_side.Side[side_plan.TargetAction]):
    """The reconciler of migrations to this node."""

    def __init__(self, ports: Ports, server: RelayServer, address: Callable[[], str]) -> None:
        super().__init__(ports)
        self._server = server
        self._address = address
        self._expected: set[str] = set()
        """Uids of migrations with accepted source relays."""
        self._faults: dict[str, TokenBucket] = {}
        """By uid: limits the reports of target faults, whose text the launcher chooses."""

    def _link(self, request: Request, migration: Object) -> Link | None:
        pod_uid = str(dig_migration(migration, "status", "targetPodUID") or "")
        return self._ports.links.acquire(pod_uid, Holder("target", request)) if pod_uid else None

    def _plan(self, migration: Object, link: Link | None) -> side_plan.TargetPlan:
        seen = side_plan.Observed(
            migration=migration,
            launcher=link.status if link is not None else None,
            connected=link is not None and link.connection is not None,
            gone=link is not None and link.gone,
            relaying=migration_attempts.uid_of(migration) in self._expected,
            address=self._address(),
            now=self._ports.clock.now(),
            ending=self.ending,
        )
        return side_plan.plan_target(seen)

    def _forget(self, request: Request) -> None:
        self._close_relays(self._uids.pop(request, ""))
        self._ports.links.release(Holder("target", request))

    def _close_relays(self, uid: str) -> None:
        self._expected.discard(uid)
        self._server.forget(uid)
        self._faults.pop(uid, None)

    async def _apply(self, request: Request, migration: Object, link: Link | None, action: side_plan.TargetAction) -> Result | None:
        uid = migration_attempts.uid_of(migration)
        if isinstance(action, side_plan.Requeue):
            return Result(action.seconds)
        if link is None:
            return Result()
        match action:
            case side_plan.ForgetMigration():
                self._forget(request)
                return Result()
            case side_plan.CloseRelays():
                self._close_relays(uid)
                return Result()
            case side_plan.PrepareTarget():
                return await self._try_to_prepare(migration, link)
            case side_plan.AcceptRelays():
                source = str(dig_migration(migration, "status", "sourceNode") or "")
                self._server.expect(uid, Expected(link.pod_uid, source, functools.partial(self._release, uid, link)))
                self._expected.add(uid)
            case side_plan.OfferAddress():
                phase = phases.phase_of(migration)
                ready = phases.TARGET_READY if phase == phases.PREPARING_TARGET else phase
                more = {"message": ""} if ready != phase and dig_migration(migration, "status", "message") else {}
                await self._write(migration, ready, targetAddress=action.address, **more)
            case side_plan.ReleaseGuest():
                await self._release(uid, link, power.wants_paused(await self._machine(migration)))
            case side_plan.TakeOverMachine():
                await self._take_over(migration, link)
            case side_plan.WriteFigures():
                with contextlib.suppress(errors.Forbidden, errors.Invalid, errors.BadRequest):  # from an older virt-api
                    await self._write(migration, phases.SUCCEEDED, **self._figures(migration, link))
            case _:
                assert_never(action)
        return None

    async def _try_to_prepare(self, migration: Object, link: Link) -> Result | None:
        try:
            await self._prepare(migration, link)
        except TooManyChanges as early:
            await self._write_fault(migration, early)
            return Result(early.seconds)
        except (LauncherRefused, Unsupported, *HEALING, ownership.NotTheDevice, StorageHangs, DisksFault, OSError) as error:
            await self._write_fault(migration, error)
            raise
        return None

    async def _prepare(self, migration: Object, link: Link) -> None:
        vm, connection = await self._machine(migration), migration_side.connection_of(link)
        given = await self._ports.node.give_devices(hot_plug_interfaces.with_added(vm), link.pod_uid, connection)
        # the guest keeps its accelerator
        accelerator: messages.Accelerator = "kvm" if dig_vm(vm, "status", "domain", "type") == "kvm" else "qemu"
        if accelerator == "kvm" and given != "kvm":
            raise ownership.NotTheDevice("the guest uses KVM, but the target pod has no /dev/kvm")
        served = await self._ports.disks.add(vm, link.pod_uid)
        interfaces = (*await self._ports.networks.set_up(vm, link.pod_uid, connection), *await self._coming(vm, link.pod_uid, connection))
        vm = hot_plug_interfaces.with_coming(vm, [each.name for each in interfaces])
        machine = machine_of(vm, accelerator, interfaces, chosen_cpu.running(vm), served)
        request = messages.PrepareMigrationTarget(
            migration_attempts.uid_of(migration),
            machine,
            relays_disks=True,
            relays_made_disks=True,
            capabilities=self._ports.node.capabilities(accelerator),
        )
        await connection.call(request)

    async def _coming(self, vm: Object, pod_uid: str, connection: Connection) -> tuple[Interface, ...]:
        found: list[Interface] = []
        if coming := hot_plug_interfaces.coming(vm):
            self._ports.networks.begin_change(pod_uid)
        for each in coming:
            with contextlib.suppress(Unsupported, *HEALING):
                found.append(await self._ports.node.join_network(vm, str(each["name"]), pod_uid, connection))
        return tuple(found)

    async def _write_fault(self, migration: Object, error: Exception) -> None:
        """Write why the target is not ready, at the rate of a machine's status writes: a launcher may report new texts each time."""
        message = guest_status.printable(f"the target on node {dig_migration(migration, 'status', 'targetNode')} is not ready: {error}")
        if phases.phase_of(migration) != phases.PREPARING_TARGET or dig_migration(migration, "status", "message") == message:
            return
        now, limits = asyncio.get_running_loop().time(), self._ports.limits
        bucket = TokenBucket(limits.writes_burst, 1 / limits.write_seconds, now)
        if self._faults.setdefault(migration_attempts.uid_of(migration), bucket).try_accept(now):
            await self._write(migration, phases.PREPARING_TARGET, message=message)
            self._emit(migration, "Warning", "MigrationTargetNotReady", message)

    async def _release(self, migration_uid: str, link: Link, paused: bool) -> None:  # noqa: FBT001 - as the listener calls it
        """Resume the guest here, unless a user ``paused`` it. Needs no API server.

        First, the source's launcher must report that the guest left.
        """
        await migration_side.connection_of(link).call(messages.ReleaseMigration(migration_uid, paused))

    async def _take_over(self, migration: Object, link: Link) -> None:
        vm = await self._machine(migration)
        source = dig_migration(migration, "status", "sourceNode")
        if link.status is not None and dig_vm(vm, "status", "podUID") != link.pod_uid:
            if dig_vm(vm, "status", "nodeName") != source:
                raise errors.Conflict(f"virtual machine {migration_side.vm_name(migration)} is not on the source node {source} any more")
            interfaces = await self._ports.networks.set_up(vm, link.pod_uid, migration_side.connection_of(link))
            status = self._moved(guest_status.running(vm, link.status, interfaces, self._ports.clock.now()), migration)
            written = await self._ports.api.update(VIRTUAL_MACHINES, {**vm, "status": status}, subresource="status")
            self._ports.machines.remember(written)
        message = f"the guest moved to node {dig_migration(migration, 'status', 'targetNode')}"
        await self._write(migration, phases.SUCCEEDED, message=message, **self._figures(migration, link))
        self._emit(migration, "Normal", "Migrated", f"the guest moved from node {source}")

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
        # this node's informer does not have a machine of the other node
        return migration_side.validated(
            await self._ports.api.get(VIRTUAL_MACHINES, migration_side.vm_name(migration), objects.namespace_of(migration))
        )
