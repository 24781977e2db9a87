"""The interface of admission, which can change or refuse an authorized request before it takes effect.

kube-apiserver proxies our requests before its own admission, so only ours runs (:mod:`apiserver.admission`), in the
order of :mod:`apiserver.registry.generic.strategy`. Patches, verbs and ``/status`` are updates; a deletion has its
stored object as ``old``; streams come here before the upgrade. Plug-ins with side effects check ``dry_run``.

Objects are of the stored version (Go: the internal version; ``docs/decisions/api.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.users import ANONYMOUS, User

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


def _nobody(*_: object) -> None:
    """Ignore the call."""


@dataclass(slots=True, eq=False)
class Reinvocation:
    """State of a possible second run of the mutating plug-ins for one request (Go: ``admission.ReinvocationContext``)."""

    requested: bool = False
    """A plug-in changed what an earlier one wants to see again."""
    again: bool = False
    memory: dict[str, Any] = field(default_factory=dict)
    """By plug-in."""


@dataclass(slots=True, eq=False)
class Attributes:
    """One admission request (Go: ``admission.Attributes``)."""

    operation: Operation
    resource: Resource
    """In the request's version."""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    """Empty on a create with ``generateName``."""
    user: User = ANONYMOUS
    obj: HubObject | None = None
    """The new object, its ``Scale``, or a stream's options. Replace, never change it."""
    old: HubObject | None = None
    """Shared: never change it."""
    options: Object = field(default_factory=dict)
    """``CreateOptions``, ``UpdateOptions`` (patches too) or ``DeleteOptions`` of ``meta.k8s.io/v1``; empty for a stream."""
    dry_run: bool = False
    warn: Callable[[str], None] = _nobody
    """As in :class:`~apiserver.registry.generic.options.Caller`; likewise ``annotate`` and ``wait``."""
    annotate: Callable[[str, str], None] = _nobody
    wait: Callable[[str, float], None] = _nobody
    mutators: dict[str, None] = field(default_factory=dict)
    """They changed the object."""
    reinvocation: Reinvocation = field(default_factory=Reinvocation)


class Admission(Protocol):
    """An admission plug-in, or the chain of all. Refuses with a StatusError."""

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether the plug-in could change or refuse the request; must be fast."""
        ...

    async def mutate(self, attributes: Attributes) -> None:
        """Replace ``attributes.obj`` if needed, never changing it in place; raise a StatusError to refuse."""
        ...

    async def validate(self, attributes: Attributes) -> None:
        """Raise a StatusError to refuse, or do nothing."""
        ...


class AdmitAll:
    """Admits everything."""

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return False."""
        del operation, resource, subresource
        return False

    async def mutate(self, attributes: Attributes) -> None:
        """Change nothing."""

    async def validate(self, attributes: Attributes) -> None:
        """Admit: do nothing."""
