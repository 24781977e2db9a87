"""Applies actions to the cluster, in order. The first failure stops; the next pass plans again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, assert_never

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta import errors
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import (
    NamespacedName,
    Object,
    dig,
    finalizers_of,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import names
from apiserver.client.informer import Informer
from apiserver.client.rest import STRATEGIC_MERGE_PATCH, Client
from controller.reconcilers.actions import (
    Action,
    AddFinalizer,
    AddOwner,
    CreatePod,
    DeleteObject,
    DeletePod,
    Emit,
    RemoveFinalizer,
    Requeue,
    ResizePod,
    SetPodCondition,
    WriteStatus,
)
from controller.reconcilers.pods import leftovers, ownership
from controller.reconcilers.settings import FIELD_MANAGER
from controller.runtime.recorder import Recorder

MAX_REFUSAL: Final = 1024
REFUSED_SECONDS: Final = 15.0
"""A quota or policy can change without a watch event."""
REFUSED_CLEANUP_SECONDS: Final = 600.0
"""For cleanup writes, which are not urgent and may be refused for many objects at once."""

logger = logging.getLogger(__name__)


class PodRefused(Exception):
    """The API server refuses the pod, or virt-api does not accept the created pod as this machine's.

    The message goes into a status, so it is one line of limited length.
    """

    def __init__(self, words: str) -> None:
        super().__init__(one_line(words, MAX_REFUSAL))


class HotPlugRefused(Exception):
    """The API server refuses pods or sizes for a running guest; ``messages`` by request."""

    def __init__(self, messages: Mapping[str, str]) -> None:
        super().__init__("; ".join(messages.values()))
        self.messages = messages


class _Refused(NamedTuple):
    """A refused pod; before ``until``, the same pod is refused with this message, without a request.

    A new request could get other words, and writing them causes the next pass.
    """

    pod: Object
    message: str
    until: float
    """In the event loop's time."""


class Applier:
    """Applies actions for objects of one kind, one object at a time."""

    def __init__(self, client: Client, recorder: Recorder, resource: Resource, objects: Informer, pods: Informer) -> None:
        self._client = client
        self._recorder = recorder
        self._resource = resource
        self._objects = objects
        self._pods = pods
        self._refused: dict[NamespacedName, _Refused] = {}

    async def apply(self, obj: Object, actions: Iterable[Action]) -> float | None:
        """Apply the actions in order; return the seconds until the object must be queued again, or None.

        Raises:
            Conflict: the object changed since it was observed.
            PodRefused: its pod is refused, or another pod has its name.
            HotPlugRefused: a hot-plug is refused; the next WriteStatus and all actions after it are not applied.
            StatusError, TransportError: another failure; later actions are not applied.
        """
        requeue_after: float | None = None
        made = ""
        refused: dict[str, str] = {}
        for action in actions:
            match action:
                case CreatePod(is_hot_plug=True) | ResizePod():
                    refused |= await self._hot_plug(obj, action)
                case WriteStatus() if refused:
                    break
                case CreatePod():
                    made = await self._create_pod(obj, action)
                case DeletePod() | SetPodCondition():
                    requeue_after = sooner(requeue_after, await self._change_pod(obj, action))
                case WriteStatus():
                    obj = await self._write_status(obj, action.status) if not action.uid_field else await self._name_pod(obj, action, made)
                case AddFinalizer() | RemoveFinalizer() | AddOwner():
                    obj = await self._change_metadata(obj, action)
                case DeleteObject():
                    requeue_after = sooner(requeue_after, await self._delete_object(obj))
                case Emit():
                    self._recorder.event(obj, self._resource, action.type, action.reason, action.message)
                case Requeue():
                    requeue_after = sooner(requeue_after, action.seconds)
                case _:
                    assert_never(action)
        if refused:
            raise HotPlugRefused(refused)
        return requeue_after

    async def _hot_plug(self, obj: Object, action: CreatePod | ResizePod) -> dict[str, str]:
        try:
            match action:
                case CreatePod():
                    await self._create_pod(obj, action)
                case ResizePod():
                    await self._resize(obj, action)
        except PodRefused as refused:
            return {action.request: str(refused)}
        return {}

    async def _create_pod(self, obj: Object, action: CreatePod) -> str:
        key, now = key_of(action.pod), asyncio.get_running_loop().time()
        if (refused := self._refused.get(key)) is not None and refused.until > now and refused.pod == action.pod:
            raise PodRefused(refused.message)
        try:
            pod = await self._client.create(PODS, action.pod, field_manager=FIELD_MANAGER)
        except errors.AlreadyExists:
            pod = await self._left_over(obj, action)
        except (errors.Forbidden, errors.Invalid, errors.BadRequest) as error:
            self._refused = {each: found for each, found in self._refused.items() if found.until > now}
            if not action.is_hot_plug:
                self._refused[key] = _Refused(action.pod, str(error), now + REFUSED_SECONDS)
            raise PodRefused(str(error)) from error
        self._pods.remember(pod)
        return uid_of(pod)

    async def _change_pod(self, obj: Object, action: DeletePod | SetPodCondition) -> float | None:
        match action:
            case DeletePod():
                return await self._delete_pod(obj, action)
            case SetPodCondition():
                return await self._set_condition(obj, action)

    async def _change_metadata(self, obj: Object, action: AddFinalizer | RemoveFinalizer | AddOwner) -> Object:
        match action:
            case AddFinalizer():
                obj = await self._set_finalizers(obj, [*finalizers_of(obj), action.finalizer])
                self._objects.remember(obj)
                return obj
            case RemoveFinalizer():
                return await self._remove_finalizer(obj, action.finalizer)
            case AddOwner():
                return await self._add_owner(obj, action.reference)

    async def _left_over(self, obj: Object, action: CreatePod) -> Object:
        """Return the existing pod if acceptable. Otherwise raise PodRefused, and delete the pod if the machine controls it."""
        name, namespace = name_of(action.pod), namespace_of(action.pod)
        found = await self._client.get(PODS, name, namespace)
        objection = leftovers.objection(found, action.pod, action.vm)
        if not objection:
            return found
        if not ownership.is_controlled_by(found, action.vm):
            raise PodRefused(f"pod {name} exists, but virt-controller did not create it: {objection}; delete that pod")
        if not is_deleting(found):
            await self._delete_pod(obj, DeletePod(name, uid_of(found)))
        raise PodRefused(
            f"pod {name} differs from the pod that virt-controller creates: {objection}; virt-controller deletes it and creates a new one"
        )

    async def _delete_pod(self, obj: Object, action: DeletePod) -> float | None:
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": action.uid}}
        if action.grace_seconds is not None:
            options["gracePeriodSeconds"] = action.grace_seconds
        try:
            answer = await self._client.delete(PODS, action.name, namespace_of(obj), options=options)
        except (errors.NotFound, errors.Conflict):
            return None
        except (errors.Forbidden, errors.Invalid) as error:
            message = f"pod {action.name} blocks this virtual machine, and the API server does not let virt-controller delete it: {error}"
            self._recorder.event(obj, self._resource, "Warning", "FailedDelete", message)
            return REFUSED_SECONDS
        if answer.get("kind") == "Pod" and ownership.is_labelled(answer):  # the informer gets no more events about an unlabelled pod
            self._pods.remember(answer)
        return None

    async def _set_condition(self, obj: Object, action: SetPodCondition) -> float | None:
        patch: Object = {"metadata": {"uid": action.uid}, "status": {"conditions": [action.condition]}}
        try:
            await self._patch_pod(obj, action.name, patch, "status")
        except (errors.NotFound, errors.Conflict):
            return None
        except (errors.Forbidden, errors.Invalid) as error:
            message = f"cannot set the readiness of the guest, which Services need, on pod {action.name}: {error}"
            self._recorder.event(obj, self._resource, "Warning", "FailedReadiness", message)
            return REFUSED_SECONDS
        return None

    async def _resize(self, obj: Object, action: ResizePod) -> None:
        """Resize the pod. Raises PodRefused if it is gone or the resize is refused; Conflict if it was replaced or its quota changed."""
        container = {"name": names.CONTAINER, "resources": action.resources}
        patch: Object = {"metadata": {"uid": action.uid}, "spec": {"containers": [container]}}
        try:
            await self._patch_pod(obj, action.name, patch, "resize")
        except (errors.NotFound, errors.Forbidden, errors.Invalid, errors.BadRequest) as error:
            raise PodRefused(str(error)) from error

    async def _patch_pod(self, obj: Object, name: str, patch: Object, subresource: str) -> None:
        written = await self._client.patch(
            PODS,
            name,
            patch,
            namespace_of(obj),
            subresource=subresource,
            content_type=STRATEGIC_MERGE_PATCH,
            field_manager=FIELD_MANAGER,
        )
        if ownership.is_labelled(written):
            self._pods.remember(written)

    async def _name_pod(self, obj: Object, action: WriteStatus, uid: str) -> Object:
        """Write the action's status with the created pod's uid. Raises PodRefused if virt-api rejects the pod's mounts."""
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
        """Make ``reference`` the first owner; return the object, unchanged if that is forbidden or invalid. Raises Conflict."""
        given: list[Object] = dig(obj, "metadata", "ownerReferences") or []
        ours = next((each for each in given if all(dig(each, key) == value for key, value in reference.items())), reference)
        owners = [ours, *(each for each in given if each != ours)]
        if owners == given:
            return obj
        patch = {"metadata": {"resourceVersion": resource_version_of(obj), "uid": uid_of(obj), "ownerReferences": owners}}
        try:
            written = await self._client.patch(self._resource, name_of(obj), patch, namespace_of(obj), field_manager=FIELD_MANAGER)
        except (errors.Forbidden, errors.Invalid) as error:
            self._log_refusal("cannot set its ownerReferences", obj, error)
            return obj
        self._objects.remember(written)
        return written

    async def _delete_object(self, obj: Object) -> float | None:
        preconditions = {"uid": uid_of(obj), "resourceVersion": resource_version_of(obj)}
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            await self._client.delete(self._resource, name_of(obj), namespace_of(obj), options=options)
        except errors.NotFound:
            return None
        except (errors.Forbidden, errors.Invalid) as error:
            self._log_refusal("cannot delete it", obj, error)
            return REFUSED_CLEANUP_SECONDS
        return None

    def _log_refusal(self, what: str, obj: Object, error: errors.StatusError) -> None:
        context = {"resource": self._resource.plural, "namespace": namespace_of(obj), "object": name_of(obj)}
        logger.warning(what, extra={**context, "error": one_line(str(error), MAX_REFUSAL)})

    async def _set_finalizers(self, obj: Object, finalizers: list[str]) -> Object:
        patch = {"metadata": {"resourceVersion": resource_version_of(obj), "uid": uid_of(obj), "finalizers": finalizers or None}}
        return await self._client.patch(self._resource, name_of(obj), patch, namespace_of(obj), field_manager=FIELD_MANAGER)


def sooner(first: float | None, second: float | None) -> float | None:
    """Return the shorter of two delays; None only if both are None."""
    return min((each for each in (first, second) if each is not None), default=None)


def status_patch(obj: Object, status: Mapping[str, object]) -> Object:
    """Return a merge patch that changes the object's status to ``status``, valid only for the version that was read."""
    old: Object = obj.get("status") or {}
    changes: Object = {key: value for key, value in status.items() if old.get(key) != value}
    for key in changes:
        if isinstance(changes[key], dict) and isinstance(old.get(key), dict):
            changes[key] = {**{each: None for each in old[key] if each not in changes[key]}, **changes[key]}
    changes |= {key: None for key in old if key not in status}
    return {"metadata": {"resourceVersion": resource_version_of(obj), "uid": uid_of(obj)}, "status": changes}
