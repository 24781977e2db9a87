"""The actions that plans consist of, and the execution of each.

A plan is carried out in order; the first failure ends it, and the next pass plans anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta import errors
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, dig, finalizers_of, is_deleting, name_of, namespace_of, resource_version_of, uid_of
from apiserver.apis.meta.resources import Resource
from apiserver.client.informer import Informer
from apiserver.client.rest import STRATEGIC_MERGE_PATCH, Client
from controller.reconcilers import leftovers, ownership
from controller.reconcilers.settings import FIELD_MANAGER
from controller.runtime.recorder import EventType, Recorder

MAX_REFUSAL: Final = 1024
"""Characters of what the API server said about a pod."""

logger = logging.getLogger(__name__)


MIN_LOOK_SECONDS: Final = 0.5
"""The shortest wait that a plan asks for."""
REFUSED_SECONDS: Final = 15.0
"""Seconds until a refused write is tried again: a quota or a policy changes without telling us."""
REFUSED_TIDYING_SECONDS: Final = 600.0
"""The same for a write that nothing waits for, and that may be refused for many objects at once."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create this pod of a machine; one that has its name is as good if :mod:`controller.reconcilers.leftovers` has no objection."""

    pod: Object
    vm: Object
    """The machine whose pod it is."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Ask for the deletion of this very pod."""

    name: str
    uid: str
    grace_seconds: int | None = None
    """None: the pod's own, in which the guest shuts down."""


@dataclass(frozen=True, slots=True)
class SetPodCondition:
    """Make this one of the conditions of this very pod."""

    name: str
    uid: str
    condition: Object


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Make this the status, provided that the object is still the one that was looked at."""

    status: Object
    uid_field: str = ""
    """The field that takes the uid of the pod that was created by the action before: what has no uid written down may be exchanged."""


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Hold the object again."""

    finalizer: str


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the object go."""

    finalizer: str


@dataclass(frozen=True, slots=True)
class AddOwner:
    """Make this the first of the object's ``ownerReferences``, provided that the object is still the one that was looked at."""

    reference: Object


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete the object itself, provided that it is still the one that was looked at."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Record an Event of the object."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Nothing will announce the next step: plan again after this long."""

    seconds: float


Action: TypeAlias = (
    CreatePod | DeletePod | SetPodCondition | WriteStatus | AddFinalizer | RemoveFinalizer | AddOwner | DeleteObject | Emit | LookAgain
)


class PodRefused(Exception):
    """The API server does not take the pod: quota, Pod Security, an admission webhook, a field it finds invalid.

    Or it was made, and virt-api does not take it as this machine's. What is said goes into a status: whoever's
    webhook said it, it is one line of bounded length.
    """

    def __init__(self, words: str) -> None:
        super().__init__(one_line(words, MAX_REFUSAL))


class Deeds:
    """Carries out actions on behalf of one object at a time."""

    def __init__(self, client: Client, recorder: Recorder, resource: Resource, objects: Informer, pods: Informer) -> None:
        self._client = client
        self._recorder = recorder
        self._resource = resource
        self._objects = objects
        self._pods = pods

    async def carry_out(self, obj: Object, actions: Iterable[Action]) -> float | None:
        """Return after how many seconds to plan again, if a plan asks for it.

        Raises:
            Conflict: the object changed since it was looked at.
            PodRefused: with the server's words.
        """
        again: float | None = None
        made = ""
        for action in actions:
            match action:
                case CreatePod():
                    made = await self._create_pod(obj, action)
                case DeletePod():
                    again = sooner(again, await self._delete_pod(obj, action))
                case SetPodCondition():
                    again = sooner(again, await self._set_condition(obj, action))
                case WriteStatus():
                    obj = await self._write_status(obj, action.status) if not action.uid_field else await self._name_pod(obj, action, made)
                case AddFinalizer():
                    obj = await self._set_finalizers(obj, [*finalizers_of(obj), action.finalizer])
                    self._objects.remember(obj)
                case RemoveFinalizer():
                    obj = await self._remove_finalizer(obj, action.finalizer)
                case AddOwner():
                    obj = await self._add_owner(obj, action.reference)
                case DeleteObject():
                    again = sooner(again, await self._delete_object(obj))
                case Emit():
                    self._recorder.event(obj, self._resource, action.type, action.reason, action.message)
                case LookAgain():
                    again = sooner(again, action.seconds)
                case _:
                    assert_never(action)
        return again

    async def _create_pod(self, obj: Object, action: CreatePod) -> str:
        """Return the uid of the pod."""
        try:
            pod = await self._client.create(PODS, action.pod, field_manager=FIELD_MANAGER)
        except errors.AlreadyExists:
            pod = await self._left_over(obj, action)
        except (errors.Forbidden, errors.Invalid, errors.BadRequest) as error:
            raise PodRefused(str(error)) from error
        self._pods.remember(pod)
        return uid_of(pod)

    async def _left_over(self, obj: Object, action: CreatePod) -> Object:
        """Return the pod that has the name, if it is as good; else ask for its deletion where that is ours to ask."""
        name, namespace = name_of(action.pod), namespace_of(action.pod)
        found = await self._client.get(PODS, name, namespace)
        objection = leftovers.objection(found, action.pod, action.vm)
        if not objection:
            return found
        if not ownership.is_controlled_by(found, action.vm):
            raise PodRefused(f"pod {name} exists and is not virt-controller's: {objection}; delete it")
        if not is_deleting(found):
            await self._delete_pod(obj, DeletePod(name, uid_of(found)))
        raise PodRefused(f"pod {name} exists and is not what virt-controller would make: {objection}; it is replaced once it is gone")

    async def _delete_pod(self, obj: Object, action: DeletePod) -> float | None:
        """Ask for it; return after how long to ask again where that was refused."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": action.uid}}
        if action.grace_seconds is not None:
            options["gracePeriodSeconds"] = action.grace_seconds
        try:
            answer = await self._client.delete(PODS, action.name, namespace_of(obj), options=options)
        except (errors.NotFound, errors.Conflict):
            return None  # gone, or another's by now
        except (errors.Forbidden, errors.Invalid) as error:  # a policy of the cluster's
            message = f"pod {action.name} is in the way of this machine, and virt-controller may not delete it: {error}"
            self._recorder.event(obj, self._resource, "Warning", "FailedDelete", message)
            return REFUSED_SECONDS
        if answer.get("kind") == "Pod" and ownership.is_labelled(answer):  # of another the copy here would hear nothing further
            self._pods.remember(answer)
        return None

    async def _set_condition(self, obj: Object, action: SetPodCondition) -> float | None:
        """Write it; return after how long to try again where that was refused. Nothing else that a machine needs waits for it."""
        patch: Object = {"metadata": {"uid": action.uid}, "status": {"conditions": [action.condition]}}
        try:
            written = await self._client.patch(
                PODS,
                action.name,
                patch,
                namespace_of(obj),
                subresource="status",
                content_type=STRATEGIC_MERGE_PATCH,
                field_manager=FIELD_MANAGER,
            )
        except (errors.NotFound, errors.Conflict):
            return None  # gone, or another's by now
        except (errors.Forbidden, errors.Invalid) as error:  # roles of an older chart, a policy of the cluster's
            message = f"whether Services may reach the guest in pod {action.name} cannot be written into that pod: {error}"
            self._recorder.event(obj, self._resource, "Warning", "FailedReadiness", message)
            return REFUSED_SECONDS
        if ownership.is_labelled(written):  # of another the copy here would hear nothing further
            self._pods.remember(written)
        return None

    async def _name_pod(self, obj: Object, action: WriteStatus, uid: str) -> Object:
        """Write down which pod was made. virt-api looks at what it mounts: something may have changed it on its way."""
        try:
            return await self._write_status(obj, {**action.status, action.uid_field: uid})
        except errors.Forbidden as error:
            raise PodRefused(str(error)) from error

    async def _write_status(self, obj: Object, status: Object) -> Object:
        patch = status_patch(obj, status)
        name, namespace = name_of(obj), namespace_of(obj)
        written = await self._client.patch(self._resource, name, patch, namespace, subresource="status", field_manager=FIELD_MANAGER)
        self._objects.remember(written)
        return written

    async def _remove_finalizer(self, obj: Object, finalizer: str) -> Object:
        try:
            return await self._set_finalizers(obj, [each for each in finalizers_of(obj) if each != finalizer])
        except errors.NotFound:
            return obj

    async def _add_owner(self, obj: Object, reference: Object) -> Object:
        """Return the object with its owner. Nothing waits for that: where it is refused (by an older chart's policy) it has none."""
        given: list[Object] = dig(obj, "metadata", "ownerReferences") or []
        ours = next((each for each in given if all(dig(each, key) == value for key, value in reference.items())), reference)
        owners = [ours, *(each for each in given if each != ours)]  # with what else its author wrote into it
        if owners == given:
            return obj
        patch = {"metadata": {"resourceVersion": resource_version_of(obj), "uid": uid_of(obj), "ownerReferences": owners}}
        try:
            written = await self._client.patch(self._resource, name_of(obj), patch, namespace_of(obj), field_manager=FIELD_MANAGER)
        except (errors.Forbidden, errors.Invalid) as error:
            self._log_refusal("no owner is written into it", obj, error)
            return obj
        self._objects.remember(written)
        return written

    async def _delete_object(self, obj: Object) -> float | None:
        """Delete it; return after how long to try again where that was refused."""
        preconditions = {"uid": uid_of(obj), "resourceVersion": resource_version_of(obj)}
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            await self._client.delete(self._resource, name_of(obj), namespace_of(obj), options=options)
        except errors.NotFound:
            return None
        except (errors.Forbidden, errors.Invalid) as error:  # roles of an older chart, a policy of the cluster's
            self._log_refusal("it is not deleted", obj, error)
            return REFUSED_TIDYING_SECONDS
        return None

    def _log_refusal(self, what: str, obj: Object, error: errors.StatusError) -> None:
        context = {"resource": self._resource.plural, "namespace": namespace_of(obj), "object": name_of(obj)}
        logger.warning(what, extra={**context, "error": one_line(str(error), MAX_REFUSAL)})

    async def _set_finalizers(self, obj: Object, finalizers: list[str]) -> Object:
        patch = {"metadata": {"resourceVersion": resource_version_of(obj), "uid": uid_of(obj), "finalizers": finalizers or None}}
        return await self._client.patch(self._resource, name_of(obj), patch, namespace_of(obj), field_manager=FIELD_MANAGER)


def sooner(first: float | None, second: float | None) -> float | None:
    """Return the shorter of two waits; None is no wait at all."""
    return min((each for each in (first, second) if each is not None), default=None)


def status_patch(obj: Object, status: Mapping[str, object]) -> Object:
    """Return the merge patch from the object's status to ``status``: only what differs, and only onto what was read."""
    old: Object = obj.get("status") or {}
    changes: Object = {key: value for key, value in status.items() if old.get(key) != value}
    for key in changes:  # a mapping that only loses fields must say which: a merge patch keeps what it does not name
        if isinstance(changes[key], dict) and isinstance(old.get(key), dict):
            changes[key] = {**{each: None for each in old[key] if each not in changes[key]}, **changes[key]}
    changes |= {key: None for key in old if key not in status}
    return {"metadata": {"resourceVersion": resource_version_of(obj), "uid": uid_of(obj)}, "status": changes}
