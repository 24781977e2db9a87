"""The loop for VirtualMachineReplicaSets: gather, plan, apply.

A plan of the informers' copies only says whether there is something to do. The writes follow from virt-api's list of machines, so no
watch event creates a machine too many.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Literal, TypeVar

from apiserver.apis.core.resources import PERSISTENT_VOLUME_CLAIMS
from apiserver.apis.meta import errors
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import (
    NamespacedName,
    Object,
    generation_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    resource_version_of,
    uid_of,
    without_managed_fields,
)
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import ordinals, replica_sets
from apiserver.apis.virt.places.resources import REPLICA_SETS, VIRTUAL_MACHINES
from apiserver.client.rest import Client, TransportError
from controller.reconcilers.applying import MAX_REFUSAL, REFUSED_SECONDS, sooner, status_patch
from controller.reconcilers.indexes import Informers
from controller.reconcilers.replica_sets import claims, finished, membership, replica_set_plan
from controller.reconcilers.replica_sets.membership import BY_CONTROLLER, BY_NAMESPACE, Orphans
from controller.reconcilers.replica_sets.replica_set_plan import BURST, Observed, Plan
from controller.reconcilers.replica_sets.replica_set_status import Failure, refusal, status
from controller.reconcilers.settings import FIELD_MANAGER
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller, Request, Result
from controller.runtime.recorder import Recorder

logger = logging.getLogger(__name__)
T = TypeVar("T")

_FIRST_BATCH: Final = 1
"""Each further batch doubles, so a refusal for all is asked for only once."""
_DELETED_AT_ONCE: Final = 16


class ReplicaSets:
    """The reconciler of ``virtualmachinereplicasets``."""

    def __init__(self, client: Client, recorder: Recorder, clock: Clock, informers: Informers) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._informers = informers

    def subscribe(self, controller: Controller) -> None:
        """Enqueue a set when it changes, or a machine or claim of it, or a machine that it may adopt."""

        def set_changed(old: Object | None, new: Object | None) -> None:
            obj = new or old or {}
            controller.enqueue(NamespacedName(namespace_of(obj), name_of(obj)))

        def machine_changed(old: Object | None, new: Object | None) -> None:
            for each in (old, new):
                if each is not None and (name := membership.set_named_by(each)):
                    controller.enqueue(NamespacedName(namespace_of(each), name))
            if new is None or not isinstance((membership.controller_of_vm(new) or [""])[0], Orphans):
                return
            if old is None or any(of(old) != of(new) for of in (labels_of, membership.controller_of_vm, finished.is_finished)):
                for each in membership.matching(self._informers.replica_sets.by_index(BY_NAMESPACE, namespace_of(new)), new):
                    controller.enqueue(NamespacedName(namespace_of(each), name_of(each)))

        def claim_changed(old: Object | None, new: Object | None) -> None:
            obj = new or old or {}
            for each in self._informers.replica_sets.by_index(BY_NAMESPACE, namespace_of(obj)):
                if not membership.faults(each) and ordinals.ordinal_of_claim(each, name_of(obj)) is not None:
                    controller.enqueue(NamespacedName(namespace_of(each), name_of(each)))

        self._informers.claims.subscribe(claim_changed)
        self._informers.replica_sets.subscribe(set_changed)
        self._informers.vms.subscribe(machine_changed)

    async def reconcile(self, request: Request) -> Result:
        """Adopt, release, create, update and delete a set's machines; write its status."""
        replica_set = self._informers.replica_sets.get(request.namespace, request.name)
        if replica_set is None:
            return Result()  # the garbage collector has its machines
        failure = None
        if self._plan(replica_set, self._known(replica_set)).acts:
            failure = await self._act(replica_set, self._plan(replica_set, await self._present(replica_set)))
        plan = self._plan(replica_set, self._known(replica_set))
        await self._write_status(replica_set, status(replica_set, plan, failure, self._clock.now()))
        return Result(sooner(plan.requeue_after, REFUSED_SECONDS if failure is not None else None))

    def _plan(self, replica_set: Object, machines: Sequence[Object]) -> Plan:
        return replica_set_plan.plan(Observed(replica_set, machines, self._clock.now(), self._claims_of(replica_set)))

    def _claims_of(self, replica_set: Object) -> list[Object]:
        return list(self._informers.claims.by_index(claims.BY_SET, uid_of(replica_set)))

    def _known(self, replica_set: Object) -> list[Object]:
        vms = self._informers.vms
        return [
            *vms.by_index(BY_CONTROLLER, uid_of(replica_set)),
            *vms.by_index(BY_CONTROLLER, Orphans(namespace_of(replica_set))),
        ]

    async def _present(self, replica_set: Object) -> list[Object]:
        """Return the sound machines that match the set's selector, from virt-api; of others, the set's and orphans, from the informer."""
        selector = membership.selector_of(replica_set)
        listed = await self._client.list(
            VIRTUAL_MACHINES, namespace_of(replica_set), label_selector=str(selector), trim=without_managed_fields
        )
        sound = (vm for vm in listed["items"] if membership.controller_of_vm(vm))
        return [*sound, *(vm for vm in self._known(replica_set) if not selector.matches(labels_of(vm)))]

    async def _act(self, replica_set: Object, plan: Plan) -> Failure | None:
        for vm in plan.released:
            await self._release(replica_set, vm)
        if plan.adopted and not await self._is_current(replica_set):
            return None
        for vm in plan.adopted:
            await self._adopt(replica_set, vm)
        failure = (
            await self._delete(replica_set, plan.delete)
            or await self._delete_claims(replica_set, plan.delete_claims)
            or await self._create(replica_set, [*[None] * plan.create, *plan.ordinals])
        )
        return await self._roll_out(replica_set, plan.rollout.update) or failure

    async def _is_current(self, replica_set: Object) -> bool:
        try:
            found = await self._client.get(REPLICA_SETS, name_of(replica_set), namespace_of(replica_set))
        except errors.NotFound:
            return False
        return (uid_of(found), generation_of(found)) == (uid_of(replica_set), generation_of(replica_set)) and not is_deleting(found)

    async def _adopt(self, replica_set: Object, vm: Object) -> None:
        reference = owner_reference(replica_set, REPLICA_SETS, block_owner_deletion=True)
        await self._write_owners(vm, [*(dig_vm(vm, "metadata", "ownerReferences") or ()), reference])

    async def _release(self, replica_set: Object, vm: Object) -> None:
        kept = [dict(each) for each in dig_vm(vm, "metadata", "ownerReferences") or () if each.get("uid") != uid_of(replica_set)]
        await self._write_owners(vm, kept)

    async def _write_owners(self, vm: Object, owners: list[Object]) -> None:
        patch = {"metadata": {"resourceVersion": resource_version_of(vm), "uid": uid_of(vm), "ownerReferences": owners or None}}
        try:
            written = await self._client.patch(VIRTUAL_MACHINES, name_of(vm), patch, namespace_of(vm), field_manager=FIELD_MANAGER)
        except errors.NotFound:
            return
        self._informers.vms.remember(written)

    async def _create(self, replica_set: Object, wanted: Sequence[int | None]) -> Failure | None:
        return await self._in_batches(replica_set, replica_sets.FAILED_CREATE, wanted, lambda each: self._create_one(replica_set, each))

    async def _in_batches(
        self, replica_set: Object, reason: str, wanted: Sequence[T], write: Callable[[T], Coroutine[Any, Any, None]]
    ) -> Failure | None:
        done, size = 0, _FIRST_BATCH
        while batch := [write(each) for each in wanted[done : done + size]]:
            if refused := await self._each(replica_set, reason, batch):
                return refused
            done, size = done + size, size * 2
        return None

    async def _create_one(self, replica_set: Object, ordinal: int | None) -> None:
        if ordinal is not None and not await self._ensure_claims(replica_set, ordinal):
            return  # a claim's event brings another pass
        path = REPLICA_SETS.path(namespace_of(replica_set), name_of(replica_set), replica_sets.REPLICATE)
        body = {"preconditions": {"uid": uid_of(replica_set)}, **({} if ordinal is None else {"ordinal": ordinal})}
        made = await self._client.request("POST", path, body=body, params={"fieldManager": FIELD_MANAGER})
        self._informers.vms.remember(made)
        self._tell(replica_set, "Normal", "SuccessfulCreate", f"Created virtual machine: {name_of(made)}")

    async def _roll_out(self, replica_set: Object, numbers: Sequence[int]) -> Failure | None:
        return await self._in_batches(
            replica_set, replica_sets.FAILED_UPDATE, numbers[:BURST], lambda each: self._roll_out_one(replica_set, each)
        )

    async def _roll_out_one(self, replica_set: Object, ordinal: int) -> None:
        path = REPLICA_SETS.path(namespace_of(replica_set), name_of(replica_set), replica_sets.ROLLOUT)
        body = {"preconditions": {"uid": uid_of(replica_set)}, "ordinal": ordinal}
        written = await self._client.request("POST", path, body=body, params={"fieldManager": FIELD_MANAGER})
        self._informers.vms.remember(written)
        self._tell(replica_set, "Normal", "SuccessfulUpdate", f"Updated virtual machine: {name_of(written)}")

    async def _ensure_claims(self, replica_set: Object, ordinal: int) -> bool:
        """Create the missing claims of a machine; return False if one is being deleted or not yet known."""
        present = True
        for wanted in claims.of_machine(replica_set, ordinal):
            found = self._informers.claims.get(namespace_of(wanted), name_of(wanted))
            if found is not None:
                present = present and not is_deleting(found)
                continue
            try:
                made = await self._client.create(PERSISTENT_VOLUME_CLAIMS, wanted, field_manager=FIELD_MANAGER)
            except errors.AlreadyExists:
                present = False
            else:
                self._informers.claims.remember(made)
                self._tell(replica_set, "Normal", "SuccessfulCreate", f"Created claim: {name_of(made)}")
        return present

    async def _delete_claims(self, replica_set: Object, superfluous: Sequence[Object]) -> Failure | None:
        if not superfluous or not await self._is_current(replica_set):
            return None
        for start in range(0, len(superfluous), _DELETED_AT_ONCE):
            batch = [self._delete_claim(replica_set, each) for each in superfluous[start : start + _DELETED_AT_ONCE]]
            if refused := await self._each(replica_set, replica_sets.FAILED_DELETE, batch):
                return refused
        return None

    async def _delete_claim(self, replica_set: Object, claim: Object) -> None:
        """Delete a claim, unless virt-api still has the machine, even one that left the set."""
        ordinal = ordinals.ordinal_of_claim(replica_set, name_of(claim))
        if ordinal is None or await self._exists(ordinals.machine_name(replica_set, ordinal), namespace_of(replica_set)):
            return
        answer = await self._delete_object(PERSISTENT_VOLUME_CLAIMS, claim)
        if answer is not None:
            if answer.get("kind") == PERSISTENT_VOLUME_CLAIMS.kind:
                self._informers.claims.remember(answer)
            self._tell(replica_set, "Normal", "SuccessfulDelete", f"Deleted claim: {name_of(claim)}")

    async def _exists(self, name: str, namespace: str) -> bool:
        try:
            await self._client.get(VIRTUAL_MACHINES, name, namespace)
        except errors.NotFound:
            return False
        return True

    async def _delete(self, replica_set: Object, machines: Sequence[Object]) -> Failure | None:
        for start in range(0, len(machines), _DELETED_AT_ONCE):
            batch = [self._delete_one(replica_set, vm) for vm in machines[start : start + _DELETED_AT_ONCE]]
            if refused := await self._each(replica_set, replica_sets.FAILED_DELETE, batch):
                return refused
        return None

    async def _delete_one(self, replica_set: Object, vm: Object) -> None:
        answer = await self._delete_object(VIRTUAL_MACHINES, vm)
        if answer is None:
            return
        if answer.get("kind") == VIRTUAL_MACHINES.kind:
            self._informers.vms.remember(answer)
        self._tell(replica_set, "Normal", "SuccessfulDelete", f"Deleted virtual machine: {name_of(vm)}")

    async def _delete_object(self, resource: Resource, obj: Object) -> Object | None:
        """Delete the object as observed; return the answer, or None if gone, replaced or changed: its event brings another pass."""
        preconditions = {"uid": uid_of(obj), "resourceVersion": resource_version_of(obj)}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            return await self._client.delete(resource, name_of(obj), namespace_of(obj), options=options)
        except (errors.NotFound, errors.Conflict):
            return None

    async def _each(self, replica_set: Object, reason: str, writes: Sequence[Coroutine[Any, Any, None]]) -> Failure | None:
        """Do these writes concurrently; record and return the first refusal, if any.

        Raises:
            Conflict: the set or a machine has changed.
            TransportError: a write's outcome is unknown.
        """
        refused: list[errors.StatusError] = []
        unknown: list[errors.Conflict | TransportError] = []

        async def attempt(write: Coroutine[Any, Any, None]) -> None:
            try:
                await write
            except (errors.Conflict, TransportError) as error:
                unknown.append(error)
            except errors.StatusError as error:
                refused.append(error)

        async with asyncio.TaskGroup() as tasks:
            for each in writes:
                tasks.create_task(attempt(each))
        if unknown:
            raise unknown[0]
        if not refused:
            return None
        told = refusal(replica_set, reason, str(refused[0])).message  # before it is cut
        failure = Failure(reason, one_line(told, MAX_REFUSAL))
        self._tell(replica_set, "Warning", reason, failure.message)
        return failure

    def _tell(self, replica_set: Object, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._recorder.event(replica_set, REPLICA_SETS, type_, reason, message)

    async def _write_status(self, replica_set: Object, new: Object) -> None:
        if new == replica_set.get("status"):
            return
        patch, name, namespace = status_patch(replica_set, new), name_of(replica_set), namespace_of(replica_set)
        try:
            written = await self._client.patch(REPLICA_SETS, name, patch, namespace, subresource="status", field_manager=FIELD_MANAGER)
        except errors.NotFound:
            return
        self._informers.replica_sets.remember(written)
