"""The interface of admission, which can change or refuse an authorized request before it takes effect.

kube-apiserver proxies our requests before its own admission, so only ours runs. :mod:`apiserver.admission` has the plug-ins;
:mod:`apiserver.registry.generic.admitting` calls them.

====== =================================================================================================================
create ``mutate`` with the client's object (no name yet under ``generateName``), defaults, validation, ``validate``
update ``mutate`` with the change applied to the newest object, defaults, validation, ``validate``; all of it again
       after a conflicting write. Patches, verbs and ``/status`` are updates
delete ``mutate``, ``validate``, with the stored object as ``old``, once the preconditions hold
stream ``mutate``, ``validate``, before the upgrade
====== =================================================================================================================

Dry runs are included; plug-ins with side effects check ``dry_run``.

Plug-ins get objects of the stored version (Go: the internal version), enforced by ``HubObject``. Webhooks and policies convert them to the
version that their rules name.
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
    """Ignore a warning, annotation or wait."""


@dataclass(slots=True, eq=False)
class Reinvocation:
    """Second run of mutating plug-ins (Go: ``admission.ReinvocationContext``)."""

    requested: bool = False
    """A plug-in changed what an earlier one wants to see again."""
    again: bool = False
    """This is the second run."""
    memory: dict[str, Any] = field(default_factory=dict)
    """Data by plug-in."""


@dataclass(slots=True, eq=False)
class Attributes:
    """One admission request (Go: ``admission.Attributes``)."""

    operation: Operation
    resource: Resource
    """In the request's version; the objects are of the stored one."""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    """Empty on a create with ``generateName``."""
    user: User = ANONYMOUS
    obj: HubObject | None = None
    """The new object, its ``Scale``, or a stream's options. ``mutate`` may replace it, but never changes it in place."""
    old: HubObject | None = None
    """The stored object, or its ``Scale``; shared, so never change it."""
    options: Object = field(default_factory=dict)
    """``CreateOptions``, ``UpdateOptions`` (patches too) or ``DeleteOptions`` of ``meta.k8s.io/v1``; empty for a stream."""
    dry_run: bool = False
    warn: Callable[[str], None] = _nobody
    """As in :class:`~apiserver.registry.generic.options.Caller`; likewise ``annotate`` and ``wait``."""
    annotate: Callable[[str, str], None] = _nobody
    wait: Callable[[str, float], None] = _nobody
    mutators: dict[str, None] = field(default_factory=dict)
    """Plug-ins that changed the object, for error messages."""
    reinvocation: Reinvocation = field(default_factory=Reinvocation)


class Admission(Protocol):
    """A plug-in, or the chain of all. Refuses by raising a StatusError."""

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether the plug-in could change or refuse the request; must be cheap."""
        ...

    async def mutate(self, attributes: Attributes) -> None:
        """Change ``attributes.obj``, or refuse."""
        ...

    async def validate(self, attributes: Attributes) -> None:
        """Refuse, or do nothing."""
        ...


class AdmitAll:
    """Admits everything, for a server without a cluster."""

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return False: nothing to check."""
        del operation, resource, subresource
        return False

    async def mutate(self, attributes: Attributes) -> None:
        """Change nothing."""

    async def validate(self, attributes: Attributes) -> None:
        """Admit."""
