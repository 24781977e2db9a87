"""Strategy: the rules of one resource, called by the generic store.

:mod:`apiserver.registry.generic.store` calls them in this order; a dry run stops before the commit:

====== ==================================================================================================================
create ``read``, ``default``, managed fields, mutating admission, metadata, ``prepare_for_create``, ``validate``,
       validating admission, ``locks``, commit
update ``read``, ``default``, managed fields, mutating admission, metadata, ``prepare_for_update``
       (``prepare_for_status_update`` for ``/status``), ``validate_update`` (``validate_status_update``), validating
       admission, ``locks``, commit; ``metadata.generation`` grows if anything but metadata and status changed
verb   ``Verb.apply``, then as an update of the whole object; again from the start after a conflicting write
delete admission, ``prepare_for_delete``, commit
====== ==================================================================================================================

Objects are plain JSON (``dict[str, Any]``) and deep copies: a hook may change ``obj`` in place, but never ``old``. Hooks
are pure, fast and synchronous. An update without a difference is not written, so hooks must not set times in unchanged
objects. The same functions default and validate the status.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol

from apiserver.apis.meta import amounts, decoding
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.validation import FieldError
from apiserver.registry.generic.scaling import Scaling


@dataclass(frozen=True, slots=True)
class Column:
    """A Table column between ``Name`` and ``Age``, which the store adds."""

    name: str
    type: str = "string"
    """``string``, ``integer``, ``number``, ``boolean`` or ``date``."""
    description: str = ""
    priority: int = 0
    """Above 0: only shown by ``-o wide``."""
    format: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """Violations of the schema in a body."""

    unknown: tuple[str, ...] = ()
    """Paths of unknown fields (``spec.foo``, ``spec.disks[0].bar``), already dropped from the object."""
    errors: tuple[FieldError, ...] = ()
    """Fields of wrong type, missing, or outside an enumeration.

    They cause a refusal; ``default`` and ``validate`` then look for further errors in the result of :meth:`Strategy.prune`,
    which may lack required fields.
    """


NOTHING_WRONG: Final = Reading()


class Verb:
    """An action on one object: PUT or POST of ``…/NAME/VERB``; it answers with the changed object."""

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        """Change ``obj`` (a copy) and return it. ``body`` is the request's JSON object, ``{}`` if absent.

        Spec and status may change; the write uses the revision of ``obj``. Called again with the newer object after a
        conflicting write.

        Raises:
            StatusError: Conflict if the object's state forbids it, Invalid or BadRequest for a wrong body.
        """
        raise NotImplementedError


class CreatingVerb:
    """An action that creates or finds an object of another resource, and answers with it and code 201."""

    creates: Resource

    def make(self, obj: Object, body: Object, now: datetime) -> Object:
        """Return the object to create in the namespace of ``obj``, with all steps of a POST, locks included.

        Raises:
            StatusError: as :meth:`Verb.apply`.
        """
        raise NotImplementedError


class ServerTrust(Protocol):
    """Trust in the server of a stream, beyond TLS verification."""

    def refusal(self, certificate: Mapping[str, object]) -> str:
        """Return why a verified certificate (format of ``ssl.SSLSocket.getpeercert``) is not trusted; empty if it is."""
        ...

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` when the answer may have changed, to end streams to untrusted servers; returns the unsubscribe function."""
        ...


@dataclass(frozen=True, slots=True)
class Destination:
    """Server of a stream: a websocket over mutual TLS."""

    url: str
    """Such as ``https://10.0.0.1:8444/v1/…``."""
    server_name: str
    """The name that the server's certificate must have."""
    tls: ssl.SSLContext
    trust: ServerTrust | None = None


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A stream's query parameter, for OpenAPI."""

    name: str
    type: str
    """``string``, ``integer`` or ``boolean``."""
    description: str


class Connect:
    """A stream subresource (``console``), which joins the client's websocket to that of a :class:`Destination`."""

    subprotocols: ClassVar[tuple[str, ...]] = ()
    """Supported subprotocols; the first one that the client offers is used on both sides."""
    ping_seconds: ClassVar[float] = 20.0
    interactive: ClassVar[bool] = True
    """True if clients can do more than read: requires the right to ``create`` the subresource besides ``get``."""
    holder_header: ClassVar[str] = ""
    """Header with a token for the stream's user: equal for all streams of a user, and otherwise meaningless."""

    @property
    def parameters(self) -> tuple[QueryParameter, ...]:
        """Return the query parameters that :meth:`locate` reads."""
        return ()

    async def locate(self, obj: Object, query: Mapping[str, str]) -> Destination:
        """Return the server of the stream of ``obj``; ``query`` is the request's.

        Raises:
            StatusError: BadRequest or Conflict while there is nothing to connect to, ServiceUnavailable while its
                server is not found; sent to the client before the upgrade.
        """
        raise NotImplementedError

    def warnings(self, obj: Object) -> Iterable[str]:
        """Return warnings for the user of the stream, sent as ``Warning`` headers of the upgrade."""
        del obj
        return ()


class Read:
    """A read-only subresource (``guestinfo``): GET answers with an unstored object of its own kind."""

    answers: Resource
    """The kind of the answer, in the resource's group and version; its plural is not served."""
    model: type[Any]
    """The answer's pydantic model, for OpenAPI."""

    async def read(self, obj: Object) -> Object:
        """Return the answer about ``obj``: a whole object of the kind ``answers``.

        Raises:
            StatusError: BadRequest or Conflict while there is nothing to read, ServiceUnavailable or Timeout if its
                source does not answer.
        """
        raise NotImplementedError


class Strategy:
    """One resource. Subclasses set attributes and override methods; the defaults suit a plain namespaced kind."""

    resource: Resource
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    model: type[Any]
    """The pydantic model (:class:`apiserver.apis.meta.schema.Kind`), for validation and OpenAPI."""
    has_status: bool = True
    """Serve ``/status``."""
    scaling: Scaling | None = None
    """Serve ``/scale``, with paths of the stored version; other versions must have the replicas at the same path."""
    verbs: Mapping[str, Verb | CreatingVerb] = {}
    connects: Mapping[str, Connect] = {}
    reads: Mapping[str, Read] = {}
    spokes: Mapping[str, Spoke] = {}
    """Further served versions by ``apiVersion``; each adds itself."""

    @property
    def hub(self) -> Strategy:
        """The strategy of the stored version: this one, except in a :class:`Spoke`."""
        return self

    def to_hub(self, obj: Object) -> Object:
        """Convert an object of this version to the stored version, consuming ``obj``."""
        return obj

    def from_hub(self, obj: Object) -> Object:
        """Convert an object of the stored version to this version, consuming ``obj``."""
        return obj

    def read(self, obj: Object) -> Reading:
        """Validate a client's object against the schema: drop and report unknown fields, report wrong types, make quantities strings.

        Ignore ``metadata``, which the store handles. The model is strict and forbids unknown fields
        (:class:`apiserver.apis.meta.schema.Model`); a kind with another model overrides this.
        """
        unknown, errors = decoding.read(self.model, obj)
        amounts.write_as_strings(self.model, obj)
        return Reading(unknown, errors) if unknown or errors else NOTHING_WRONG

    def prune(self, obj: Object) -> None:
        """Drop, in place, the fields of wrong type that :meth:`read` found, so that the rest can be validated; ignore ``metadata``."""
        decoding.prune(self.model, obj)

    def hint(self, field: str, value: object = None) -> str:
        """Return a replacement for an unknown field or value; empty if none is known."""
        del field, value
        return ""

    def default(self, obj: Object) -> None:
        """Set defaults in place. Idempotent; also called for stored objects, so that old ones get new fields."""

    def prepare_for_create(self, obj: Object) -> None:
        """Normalize a new object in place, for example set finalizers. ``status`` was removed if ``has_status``."""

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        """Normalize an updated object in place. The old status was restored if ``has_status``."""

    def prepare_for_status_update(self, obj: Object, old: Object) -> None:
        """Normalize an object after a status update; everything else was restored."""

    def prepare_for_delete(self, obj: Object) -> None:
        """Change an object marked for deletion (it has finalizers) before it is written."""

    def validate(self, obj: Object) -> list[FieldError]:
        """Return all errors of a new object, including its name if restricted beyond DNS-1123 subdomains."""
        del obj
        return []

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return all errors of an updated object; default: :meth:`validate`."""
        del old
        return self.validate(obj)

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return all errors of an object after a status update."""
        del obj, old
        return []

    def warnings_on_update(self, obj: Object, old: Object) -> Iterable[str]:
        """Return warnings about an accepted update, except of the status, as ``Warning`` headers."""
        del obj, old
        return ()

    def warnings_on_delete(self, obj: Object, grace_seconds: int | None) -> Iterable[str]:
        """Return warnings about a deletion; ``grace_seconds`` comes from the DeleteOptions."""
        del obj, grace_seconds
        return ()

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """Return the fields for field selectors besides ``metadata.name`` and ``metadata.namespace``.

        The keys must be the same for every object, ``{}`` included.
        """
        del obj
        return {}

    def columns(self) -> tuple[Column, ...]:
        """Return the Table's columns between ``Name`` and ``Age``."""
        return ()

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return the row's values, one per column of :meth:`columns`; None is shown as ``<none>``."""
        del obj, now
        return []

    def locks(self, obj: Object) -> frozenset[str]:
        """Return the uniqueness locks of ``obj``, each held by at most one object: ``<scope>/<name>`` (``migrating/<namespace>/<vm>``).

        The transaction that writes the object takes and releases them; a second object gets :meth:`lock_taken`.
        """
        del obj
        return frozenset()

    def shared_locks(self, obj: Object) -> frozenset[tuple[str, str]]:
        """Return uniqueness locks that only objects of one group may share: pairs of lock and group.

        Neither may end with ``/`` or be another one's prefix up to a ``/``.
        """
        del obj
        return frozenset()

    def lock_taken(self, obj: Object, lock: str, holder: str, held_by: Object | None) -> str:
        """Return the Conflict's message when the object ``holder`` (``namespace/name``) holds ``lock``.

        ``held_by`` is that object; None if unreadable.
        """
        del obj, held_by
        return f"{lock} is already held by {holder}"


class Spoke(Strategy):
    """A further served version of a kind: its own schema, and a lossless conversion.

    The hub's form is stored, prepared, validated and locked. The version defines ``resource``, ``model``, ``read``,
    ``default`` and two inverse conversions, and has its own managed fields. Stored objects of a spoke's version (once the
    stored version) are converted when read, and rewritten by the next write. Source: the conversions of
    ``k8s.io/apimachinery/pkg/runtime``.
    """

    def __init__(self, hub: Strategy) -> None:
        self._hub = hub
        self.singular, self.short_names, self.categories = hub.singular, hub.short_names, hub.categories
        self.has_status, self.scaling = hub.has_status, hub.scaling
        hub.spokes = {**hub.spokes, self.resource.api_version: self}

    def upgrade(self, obj: Object) -> Object:
        """Convert ``obj``, which may be consumed, to the hub's version, except ``apiVersion`` and ``metadata``."""
        raise NotImplementedError

    def downgrade(self, obj: Object) -> Object:
        """Convert an object of the hub's version, which may be consumed, to this version."""
        raise NotImplementedError

    @property
    def hub(self) -> Strategy:
        """The strategy of the stored version."""
        return self._hub

    def to_hub(self, obj: Object) -> Object:
        """Convert ``obj`` to the stored version, consuming it."""
        return {**self.upgrade(obj), "apiVersion": self._hub.resource.api_version}

    def from_hub(self, obj: Object) -> Object:
        """Convert an object of the stored version to this version, consuming it."""
        return {**self.downgrade(obj), "apiVersion": self.resource.api_version}

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """Return the hub's fields; ``obj`` has the stored version."""
        return self._hub.selectable_fields(obj)

    def columns(self) -> tuple[Column, ...]:
        """Return the hub's columns."""
        return self._hub.columns()

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return the hub's values; ``obj`` has this version, and is not changed."""
        return self._hub.cells(self.to_hub(deepcopy(obj)), now)
