"""The border between what the API says and a reconciler: only objects of sound structure get through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from controller.runtime.reconciling import Reconciler, Request, Result, Terminal

INVALID_OBJECT: Final = "InvalidObject"
"""Reason of the Event."""
MAX_MESSAGE: Final = 1000
"""Characters: what is wrong is told, never the whole of what stands there."""


class Objects(Protocol):
    """An informer."""

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one object."""
        ...


class Events(Protocol):
    """Says what happened, for people."""

    def event(self, obj: Object, resource: Resource, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Say it."""
        ...


Validate = Callable[[Object], Sequence[str]]
"""Returns what is wrong with an object, in sentences; nothing when it is sound."""


class Validated:
    """A reconciler whose objects are validated first: of one that is not sound an Event tells, and nothing is done until it changes.

    No object can raise anything unforeseen in the reconciler by its types, and the loop and all other objects go on.
    """

    def __init__(self, reconciler: Reconciler, objects: Objects, events: Events, resource: Resource, validate: Validate) -> None:
        self._reconciler = reconciler
        self._objects = objects
        self._events = events
        self._resource = resource
        self._validate = validate

    async def reconcile(self, request: Request) -> Result:
        """Have the object reconciled if it is sound.

        Raises:
            Terminal: what is wrong with it.
        """
        obj = self._objects.get(request.namespace, request.name)
        if obj is not None and (faults := self._validate(obj)):
            message = one_line(f"nothing is done about it until it is mended: {'; '.join(faults)}", MAX_MESSAGE)
            self._events.event(obj, self._resource, "Warning", INVALID_OBJECT, message)
            raise Terminal(message)
        return await self._reconciler.reconcile(request)
