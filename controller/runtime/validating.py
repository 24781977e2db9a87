"""Validates objects of the API before a reconciler gets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from controller.runtime.reconciling import Reconciler, Request, Result, Terminal

INVALID_OBJECT: Final = "InvalidObject"
MAX_MESSAGE: Final = 1000


class Objects(Protocol):
    """The objects of a kind, as an informer has them."""

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one object, or None."""
        ...


class Events(Protocol):
    """Records events for users."""

    def event(self, obj: Object, resource: Resource, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Record an Event of ``obj``."""
        ...


Validate = Callable[[Object], Sequence[str]]


class Validated:
    """A reconciler that skips invalid objects: it records an Event, and waits until the object changes."""

    def __init__(self, reconciler: Reconciler, objects: Objects, events: Events, resource: Resource, validate: Validate) -> None:
        self._reconciler = reconciler
        self._objects = objects
        self._events = events
        self._resource = resource
        self._validate = validate

    async def reconcile(self, request: Request) -> Result:
        """Reconcile the object if valid or gone.

        Raises:
            Terminal: it is invalid, which an Event reports.
        """
        obj = self._objects.get(request.namespace, request.name)
        if obj is not None and (faults := self._validate(obj)):
            message = one_line(f"the object is ignored until these errors are fixed: {'; '.join(faults)}", MAX_MESSAGE)
            self._events.event(obj, self._resource, "Warning", INVALID_OBJECT, message)
            raise Terminal(message)
        return await self._reconciler.reconcile(request)
