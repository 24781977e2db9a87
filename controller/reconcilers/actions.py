"""The actions that plans consist of. Pure.

Writes to the planned object fail if it has changed since it was observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from apiserver.apis.meta.objects import Object, name_of
from controller.runtime.recorder import EventType

MIN_REQUEUE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create this pod of a machine, or use an existing one of its name that :mod:`controller.reconcilers.pods.leftovers` accepts."""

    pod: Object
    vm: Object
    is_hot_plug: bool = False
    """For a disk of a running guest: a refusal of the pod does not stop the other actions."""

    @property
    def request(self) -> str:
        """The pod's name: the key by which ``HotPlugRefused`` has a refusal's message."""
        return name_of(self.pod)


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod with this uid, if it still exists."""

    name: str
    uid: str
    grace_seconds: int | None = None
    """None: the pod's own, in which the guest shuts down."""


@dataclass(frozen=True, slots=True)
class SetPodCondition:
    """Set this condition on the pod with this uid, if it exists."""

    name: str
    uid: str
    condition: Object


@dataclass(frozen=True, slots=True)
class ResizePod:
    """Give the container of the pod with this uid other resources, without a restart."""

    name: str
    uid: str
    resources: Object

    @property
    def request(self) -> str:
        """The pod's uid and new resources: the key in ``HotPlugRefused``."""
        return f"{self.uid} {self.resources}"


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Replace the object's status by this one."""

    status: Object
    uid_field: str = ""
    """Receives the uid of the pod that the preceding action created. Without a recorded uid the pod could be replaced."""


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Add this finalizer to the object."""

    finalizer: str


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove this finalizer from the object."""

    finalizer: str


@dataclass(frozen=True, slots=True)
class AddOwner:
    """Make this the first of the ``ownerReferences``."""

    reference: Object


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete the object."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Record an Event for the object."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """Plan again after this long, because no watch event announces the next step."""

    seconds: float


Action: TypeAlias = (
    CreatePod
    | DeletePod
    | SetPodCondition
    | ResizePod
    | WriteStatus
    | AddFinalizer
    | RemoveFinalizer
    | AddOwner
    | DeleteObject
    | Emit
    | Requeue
)
