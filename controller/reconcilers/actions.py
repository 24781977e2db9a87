"""The actions that plans consist of (:mod:`controller.reconcilers.applying` applies them). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from apiserver.apis.meta.objects import Object
from controller.runtime.recorder import EventType

MIN_REQUEUE_SECONDS: Final = 0.5
"""The shortest wait that a plan asks for."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create this pod of a machine; one that has its name is as good if :mod:`controller.reconcilers.pods.leftovers` has no objection."""

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
    """Make this the status, provided that the object is still the one that was observed."""

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
    """Make this the first of the object's ``ownerReferences``, provided that the object is still the one that was observed."""

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
class Requeue:
    """Plan again after this long: nothing will announce the next step."""

    seconds: float


Action: TypeAlias = (
    CreatePod | DeletePod | SetPodCondition | WriteStatus | AddFinalizer | RemoveFinalizer | AddOwner | DeleteObject | Emit | Requeue
)
