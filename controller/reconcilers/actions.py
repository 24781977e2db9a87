"""What plans consist of, and the deed for each. A plan is carried out in order; the first failure ends it, and the next pass plans anew."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta import errors
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, dig, finalizers_of, name_of, namespace_of, resource_version_of, uid_of
from apiserver.apis.meta.resources import Resource
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from controller.reconcilers.settings import FIELD_MANAGER
from controller.runtime.recorder import EventType, Recorder

MAX_REFUSAL: Final = 1024
"""Characters of what the API server said about a pod."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create this pod; that somebody created the very same before is as good."""

    pod: Object


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Ask for the deletion of this very pod, with its own grace period."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Make this the status, provided that the object is still the one that was looked at."""

    status: Object


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the object go."""

    finalizer: str


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


Action: TypeAlias = CreatePod | DeletePod | WriteStatus | RemoveFinalizer | Emit | LookAgain


class PodRefused(Exception):
    """The API server does not take the pod: quota, Pod Security, an admission webhook, a field it finds invalid.

    What it says goes into a status: whoever's webhook said it, it is one line of bounded length.
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
        for action in actions:
            match action:
                case CreatePod():
                    await self._create_pod(action.pod)
                case DeletePod():
                    await self._delete_pod(namespace_of(obj), action)
                case WriteStatus():
                    obj = await self._write_status(obj, action.status)
                case RemoveFinalizer():
                    obj = await self._remove_finalizer(obj, action.finalizer)
                case Emit():
                    self._recorder.event(obj, self._resource, action.type, action.reason, action.message)
                case LookAgain():
                    again = action.seconds if again is None else min(again, action.seconds)
                case _:
                    assert_never(action)
        return again

    async def _create_pod(self, pod: Object) -> None:
        try:
            self._pods.remember(await self._client.create(PODS, pod, field_manager=FIELD_MANAGER))
        except errors.AlreadyExists:
            found = await self._client.get(PODS, name_of(pod), namespace_of(pod))
            owner = dig(pod, "metadata", "ownerReferences")[0]["uid"]
            if not any(each.get("uid") == owner for each in dig(found, "metadata", "ownerReferences") or ()):
                raise PodRefused(f"pod {name_of(pod)} exists and belongs to something else: delete it") from None
            self._pods.remember(found)
        except (errors.Forbidden, errors.Invalid, errors.BadRequest) as error:
            raise PodRefused(str(error)) from error

    async def _delete_pod(self, namespace: str, action: DeletePod) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": action.uid}}
        try:
            answer = await self._client.delete(PODS, action.name, namespace, options=options)
        except (errors.NotFound, errors.Conflict):
            return  # gone, or another's by now
        if answer.get("kind") == "Pod":
            self._pods.remember(answer)

    async def _write_status(self, obj: Object, status: Object) -> Object:
        patch = status_patch(obj, status)
        name, namespace = name_of(obj), namespace_of(obj)
        written = await self._client.patch(self._resource, name, patch, namespace, subresource="status", field_manager=FIELD_MANAGER)
        self._objects.remember(written)
        return written

    async def _remove_finalizer(self, obj: Object, finalizer: str) -> Object:
        left = [each for each in finalizers_of(obj) if each != finalizer]
        patch = {"metadata": {"resourceVersion": resource_version_of(obj), "uid": uid_of(obj), "finalizers": left or None}}
        try:
            return await self._client.patch(self._resource, name_of(obj), patch, namespace_of(obj), field_manager=FIELD_MANAGER)
        except errors.NotFound:
            return obj


def status_patch(obj: Object, status: Mapping[str, object]) -> Object:
    """Return the merge patch from the object's status to ``status``: only what differs, and only onto what was read."""
    old: Object = obj.get("status") or {}
    changes: Object = {key: value for key, value in status.items() if old.get(key) != value}
    for key in changes:  # a mapping that only loses fields must say which: a merge patch keeps what it does not name
        if isinstance(changes[key], dict) and isinstance(old.get(key), dict):
            changes[key] = {**{each: None for each in old[key] if each not in changes[key]}, **changes[key]}
    changes |= {key: None for key in old if key not in status}
    return {"metadata": {"resourceVersion": resource_version_of(obj), "uid": uid_of(obj)}, "status": changes}
