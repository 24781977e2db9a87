"""Admission: what others have to say about a request, after it was authorized and before it takes effect.

kube-apiserver proxies our requests before its own admission, so nobody else looks. The plug-ins are :mod:`apiserver.admission`'s; this is
what they are asked. :mod:`apiserver.registry.generic.admitting` asks: for the store about writes, for the connect endpoint about streams.

====== ==========================================================================================================================
create ``mutate`` with the client's object (no name yet under ``generateName``), then defaults and validation, then ``validate``
update ``mutate`` with what the change makes of the newest object, then defaults and validation, then ``validate``; all of it again when
       somebody else wrote in between. Patches, verbs and ``/status`` are updates
delete ``mutate``, then ``validate``, with the stored object as ``old``, once the preconditions hold
stream ``mutate``, then ``validate``, before the upgrade
====== ==========================================================================================================================

A dry run is asked about like the rest; plug-ins with side effects look at ``dry_run``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.users import ANONYMOUS, User

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


def _nobody(*_: object) -> None:
    """Drop what nobody listens to."""


@dataclass(slots=True, eq=False)
class Reinvocation:
    """Second run of the mutating plug-ins, and what they remember of the first (Go: ``admission.ReinvocationContext``)."""

    requested: bool = False
    """A plug-in changed what another, which ran before it, asked to see again."""
    again: bool = False
    """This is the second time."""
    memory: dict[str, Any] = field(default_factory=dict)
    """By the plug-in's name."""


@dataclass(slots=True, eq=False)
class Attributes:
    """One question (Go: ``admission.Attributes``)."""

    operation: Operation
    resource: Resource
    """As requested: of the request's version, whatever version is stored."""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    """Empty on a create that leaves the name to the server."""
    user: User = ANONYMOUS
    obj: Object | None = None
    """The new object, or the options of a stream. ``mutate`` may put another in its place; nobody changes it where it is."""
    old: Object | None = None
    """The stored object; shared, never to be changed."""
    options: Object = field(default_factory=dict)
    """``CreateOptions``, ``UpdateOptions`` (of patches, too) or ``DeleteOptions`` of ``meta.k8s.io/v1``; empty for a stream."""
    dry_run: bool = False
    warn: Callable[[str], None] = _nobody
    """Takes a warning for the client."""
    annotate: Callable[[str, str], None] = _nobody
    """Takes an annotation (key, value) for the audit log."""
    wait: Callable[[str, float], None] = _nobody
    """Takes for whom (``mutating-webhook``) the request waited, and how many seconds."""
    mutators: dict[str, None] = field(default_factory=dict)
    """Plug-ins that changed the object, in their order, as an error names them."""
    reinvocation: Reinvocation = field(default_factory=Reinvocation)


class Admission(Protocol):
    """One plug-in, or the chain of all. Says no by raising a StatusError."""

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether the answer could be anything but yes: asked before every request, so it must be very cheap."""
        ...

    async def mutate(self, attributes: Attributes) -> None:
        """Change ``attributes.obj``, or refuse."""
        ...

    async def validate(self, attributes: Attributes) -> None:
        """Refuse, or do nothing."""
        ...


class AdmitAll:
    """For a server without a cluster, which knows neither namespaces nor webhooks."""

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return that there is nothing to ask."""
        del operation, resource, subresource
        return False

    async def mutate(self, attributes: Attributes) -> None:
        """Change nothing."""

    async def validate(self, attributes: Attributes) -> None:
        """Admit."""
