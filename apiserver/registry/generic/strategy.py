"""Strategy: one resource's rules, called by the generic store.

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

Objects are plain JSON and deep copies: a hook may change ``obj`` in place, but never ``old``. Hooks are pure, fast and
synchronous. An update without a difference is not written, so hooks must not set times in unchanged objects.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol
from urllib.parse import urlsplit

from apiserver.apis.meta import amounts, decoding
from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.validation import FieldError
from apiserver.registry.generic.scaling import Scaling


@dataclass(frozen=True, slots=True)
class Column:
    """A Table column between ``Name`` and ``Age``."""

    name: str
    type: str = "string"
    description: str = ""
    priority: int = 0
    """Above 0: only shown by ``-o wide``."""
    format: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """Violations of the schema in a body."""

    unknown: tuple[str, ...] = ()
    """Dropped already (``spec.disks[0].bar``)."""
    errors: tuple[FieldError, ...] = ()
    """Fields of wrong type, missing, or outside an enumeration: refused.

    ``default`` and ``validate`` look for further errors in the result of :meth:`Strategy.prune`, which may lack
    required fields.
    """


NOTHING_WRONG: Final = Reading()


class Verb:
    """An action on one object: PUT or POST of ``…/NAME/VERB``, answered with the changed object."""

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        """Change ``obj`` (a copy), spec and status, and return it. ``body`` is the request's JSON object, ``{}`` if absent.

        Called again after a conflicting write. Raises Conflict by the state, Invalid or BadRequest by the body.
        """
        raise NotImplementedError


class CreatingVerb:
    """A verb that creates an object of another resource, or finds an earlier call's; answers with it."""

    creates: Resource
    """In the group and version of the resource."""

    def name_for_id(self, obj: Object, body: Object) -> str:
        """Return the object's name by the ``id`` in ``body``, so a repeated call finds it; empty without an id."""
        del obj, body
        return ""

    def is_of(self, obj: Object, made: Object) -> bool:
        """Return whether ``made``, an object named as by :meth:`name_for_id`, was created for ``obj``."""
        del obj, made
        return True

    def make(self, obj: Object, body: Object, now: datetime) -> Object:
        """Return the object to create in the namespace of ``obj``, in the stored version. Raises Conflict, Invalid, BadRequest."""
        raise NotImplementedError


class UpdatingVerb:
    """A verb that changes an object of another resource, named by :meth:`target`, in the same namespace; answers with it.

    Admission sees the update of that object with the verb as subresource.
    """

    updates: Resource
    """In the group and version of the resource."""

    def target(self, obj: Object, body: Object) -> str:
        """Return the name of the object to change for ``obj``. Raises Conflict, BadRequest."""
        raise NotImplementedError

    def change(self, obj: Object, found: Object, body: Object, now: datetime) -> Object:
        """Change ``found`` (a copy), spec and status, and return it; called again after a conflicting write. Raises Conflict, Invalid."""
        raise NotImplementedError


class DeletingVerb:
    """A verb that deletes an object of another resource, chosen by :meth:`choose`, in the same namespace; answers with it."""

    deletes: Resource
    """In the group and version of the resource."""

    def candidates(self, obj: Object) -> str:
        """Return the field selector of the objects that the verb may delete."""
        raise NotImplementedError

    def choose(self, obj: Object, body: Object, found: Sequence[Object]) -> Object:
        """Return which of ``found``, the candidates, to delete for ``obj``. Raises Conflict without one, Invalid by the body."""
        raise NotImplementedError


class RelayedVerb:
    """A verb that another process carries out. Nothing is stored; the answer is the unchanged object.

    Admission does not see it: the body may be secret.
    """

    def check(self, obj: Object, body: Object) -> None:
        """Check the request. Raises Conflict, Invalid, BadRequest."""
        raise NotImplementedError

    async def act(self, obj: Object, body: Object) -> None:
        """Have the checked request carried out; raises a StatusError if that failed or is unknown."""
        raise NotImplementedError


AnyVerb = Verb | CreatingVerb | UpdatingVerb | DeletingVerb | RelayedVerb


def answer_of(verb: AnyVerb, own: Resource) -> Resource:
    """Return the resource of a verb's answer; most verbs answer with ``own``."""
    match verb:
        case CreatingVerb():
            return verb.creates
        case UpdatingVerb():
            return verb.updates
        case DeletingVerb():
            return verb.deletes
        case _:
            return own


class ServerTrust(Protocol):
    """Trust in a stream's server, beyond TLS verification."""

    def refusal(self, certificate: Mapping[str, object]) -> str:
        """Return why a verified certificate (as of ``ssl.SSLSocket.getpeercert``) is not trusted, or empty."""
        ...

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` when the answer may change, to end streams; return the unsubscribe function."""
        ...


@dataclass(frozen=True, slots=True)
class Destination:
    """Server of a stream (a websocket) or of a read, over mutual TLS."""

    url: str
    server_name: str
    """In the certificate."""
    tls: ssl.SSLContext
    trust: ServerTrust | None = None
    called: str = ""
    """What messages call the server, such as ``virt-handler of node node1``."""

    def __str__(self) -> str:
        return self.called or f"the server at {urlsplit(self.url).netloc}"


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A stream's parameter, in the query or the path, for OpenAPI."""

    name: str
    type: str
    """``string``, ``integer`` or ``boolean``."""
    description: str


class Connect:
    """A stream subresource (``console``): joins the client's websocket to a :class:`Destination`."""

    subprotocols: ClassVar[tuple[str, ...]] = ()
    """Both sides use the client's first supported one."""
    ping_seconds: ClassVar[float] = 20.0
    interactive: bool = True
    """Clients can do more than read: requires ``create``."""
    holder_header: ClassVar[str] = ""
    """For an opaque token, the same for all streams of a user."""

    @property
    def parameters(self) -> tuple[QueryParameter, ...]:
        """Return the query parameters that :meth:`locate` reads."""
        return ()

    @property
    def segments(self) -> tuple[QueryParameter, ...]:
        """Return the path parameters behind the subresource, for ``locate``; the first is required."""
        return ()

    @property
    def share(self) -> int:
        """Return the factor for the limit of streams per user and object."""
        return 1

    async def locate(self, obj: Object, query: Mapping[str, str]) -> Destination:
        """Return a stream's ``Destination``; ``query`` has its parameters and segments. Raises a StatusError, before the upgrade."""
        raise NotImplementedError

    def warnings(self, obj: Object) -> Iterable[str]:
        """Return warnings for the stream's user, in headers of the upgrade."""
        del obj
        return ()

    def over(self, obj: Object) -> str:
        """Return why a stream that its server ended cannot continue, not even at another server; empty if it can."""
        del obj
        return ""


class Read:
    """A read-only subresource (``guestinfo``), answered with an unstored object."""

    answers: Resource
    """In the resource's group and version; its plural is not served."""
    model: type[Any]
    """For OpenAPI."""

    async def read(self, obj: Object) -> Object:
        """Return an object of the kind ``answers`` about ``obj``.

        Raises BadRequest or Conflict by the state, ServiceUnavailable or Timeout by its source.
        """
        raise NotImplementedError


class Strategy:
    """One resource's rules. Subclasses set attributes and override methods; defaults suit a plain namespaced kind."""

    resource: Resource
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    model: type[Any]
    """A :class:`apiserver.apis.meta.schema.Kind`, for validation and OpenAPI."""
    has_status: bool = True
    scaling: Scaling | None = None
    """For ``/scale``."""
    verbs: Mapping[str, AnyVerb] = {}
    connects: Mapping[str, Connect] = {}
    reads: Mapping[str, Read] = {}
    spokes: Mapping[str, Spoke] = {}
    """By ``apiVersion``; each adds itself."""

    @property
    def hub(self) -> Strategy:
        """The stored version's strategy: this one, except in a :class:`Spoke`."""
        return self

    def to_hub(self, obj: Object) -> HubObject:
        """Return ``obj`` in the stored version, consuming it."""
        return HubObject(obj)

    def from_hub(self, obj: HubObject) -> Object:
        """Return ``obj``, of the stored version, in this version, consuming it."""
        return obj

    def read(self, obj: Object) -> Reading:
        """Drop unknown fields and null members of a client's object, in place, and make its quantities strings; report what is wrong.

        The store handles ``metadata``. Kinds with another model than :class:`apiserver.apis.meta.schema.Model` override this.
        """
        unknown, errors = decoding.read(self.model, obj)
        amounts.write_as_strings(self.model, obj)
        return Reading(unknown, errors) if unknown or errors else NOTHING_WRONG

    def prune(self, obj: Object) -> None:
        """Remove, in place, what the schema refuses, except in ``metadata``, to validate the rest. Raises ValueError if too large."""
        decoding.prune(self.model, obj)

    def hint(self, field: str, value: object = None) -> str:
        """Return a hint at the replacement of an unknown field or value, or empty."""
        del field, value
        return ""

    def default(self, obj: Object) -> None:
        """Set defaults in place. Idempotent; also for stored objects."""

    def prepare_for_create(self, obj: Object) -> None:
        """Normalize a new object in place; it comes without ``status`` if ``has_status``."""

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        """Normalize an updated object in place; it comes with the old status if ``has_status``."""

    def prepare_for_status_update(self, obj: Object, old: Object) -> None:
        """Normalize an object in place that comes with a new status, and otherwise as it was."""

    def prepare_for_delete(self, obj: Object) -> None:
        """Change, in place, an object with finalizers that is marked for deletion."""

    def validate(self, obj: Object) -> list[FieldError]:
        """Return all errors in a new object, also of names restricted beyond DNS-1123 subdomains."""
        del obj
        return []

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return all errors of an updated object; default: :meth:`validate`."""
        del old
        return self.validate(obj)

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return all errors of ``obj`` after a status update of ``old``."""
        del obj, old
        return []

    def warnings_on_update(self, obj: Object, old: Object) -> Iterable[str]:
        """Return ``Warning`` headers about an accepted update, except of the status."""
        del obj, old
        return ()

    def warnings_on_delete(self, obj: Object, grace_seconds: int | None) -> Iterable[str]:
        """Return warnings about a deletion with ``grace_seconds``."""
        del obj, grace_seconds
        return ()

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """Return further fields for field selectors than ``metadata.name`` and ``metadata.namespace``.

        The keys must be constant, also for ``{}``.
        """
        del obj
        return {}

    def columns(self) -> tuple[Column, ...]:
        """Return the Table's columns between ``Name`` and ``Age``."""
        return ()

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return one value per column of :meth:`columns`; None is shown as ``<none>``."""
        del obj, now
        return []

    def locks(self, obj: Object) -> frozenset[str]:
        """Return the exclusive uniqueness locks of ``obj``: ``<scope>/<name>`` (``migrating/<namespace>/<vm>``).

        The object's transaction takes and releases them; a second object gets :meth:`lock_taken`.
        """
        del obj
        return frozenset()

    def shared_locks(self, obj: Object) -> frozenset[tuple[str, str]]:
        """Return pairs of lock and group. Objects of the same group share a lock, which excludes all other groups.

        No lock or group may end with ``/``, or be what another one has before a ``/``.
        """
        del obj
        return frozenset()

    def tentative_locks(self, obj: Object) -> frozenset[str]:
        """Return the locks, exclusive or shared, that the object has only until another object needs them.

        Its write takes them if they are free, else stores :meth:`without_lock`. The write of an object that needs one applies that to the
        holder.
        """
        del obj
        return frozenset()

    def without_lock(self, obj: Object, lock: str) -> Object:
        """Return a copy of ``obj`` without a tentative lock. Subclasses with :meth:`tentative_locks` must override it."""
        raise NotImplementedError

    def lock_taken(self, obj: Object, lock: str, holder: str, held_by: Object | None) -> str:
        """Return the message of the Conflict when ``holder`` (``namespace/name``) holds ``lock``.

        ``held_by`` is that object; None if unreadable.
        """
        del obj, held_by
        return f"{lock} is already held by {holder}"


class Spoke(Strategy):
    """A further served version of a kind (``docs/decisions/api.md``).

    The hub's form is stored, prepared, validated, admitted and locked. The version has its own ``resource``, ``model``,
    ``read``, ``default``, managed fields and two inverse, lossless conversions (as
    ``k8s.io/apimachinery/pkg/runtime``).

    Verbs, streams, reads, ``/status``, ``/scale`` and selectable fields are the hub's; answers are of this version.
    """

    def __init__(self, hub: Strategy) -> None:
        """Add this version to ``hub``, which must already have its verbs, streams and reads."""
        self._hub = hub
        version = self.resource.version
        self.singular, self.short_names, self.categories = hub.singular, hub.short_names, hub.categories
        self.has_status, self.scaling, self.connects = hub.has_status, hub.scaling, hub.connects
        self.verbs = {name: _CreatesIn(verb, version) if isinstance(verb, CreatingVerb) else verb for name, verb in hub.verbs.items()}
        self.reads = {name: _ReadIn(read, version) for name, read in hub.reads.items()}
        hub.spokes = {**hub.spokes, self.resource.api_version: self}

    def upgrade(self, obj: Object) -> Object:
        """Return ``obj`` in the hub's version, with the same ``metadata``; callers set ``apiVersion``. May consume ``obj``."""
        raise NotImplementedError

    def downgrade(self, obj: Object) -> Object:
        """Return ``obj``, of the hub's version, in this spoke's, by the rules of :meth:`upgrade`."""
        raise NotImplementedError

    @property
    def hub(self) -> Strategy:
        """The stored version's strategy."""
        return self._hub

    def to_hub(self, obj: Object) -> HubObject:
        """Return ``obj`` in the stored version, consuming it."""
        return HubObject({**self.upgrade(obj), "apiVersion": self._hub.resource.api_version})

    def from_hub(self, obj: HubObject) -> Object:
        """Return ``obj``, of the stored version, in this version, consuming it."""
        return {**self.downgrade(obj), "apiVersion": self.resource.api_version}

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """Return the hub's fields; ``obj`` has the stored version."""
        return self._hub.selectable_fields(obj)

    def columns(self) -> tuple[Column, ...]:
        """Return the hub's columns."""
        return self._hub.columns()

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return the hub's cells; ``obj`` stays."""
        return self._hub.cells(self.to_hub(deepcopy(obj)), now)


class _CreatesIn(CreatingVerb):
    def __init__(self, verb: CreatingVerb, version: str) -> None:
        self._verb = verb
        self.creates = replace(verb.creates, version=version)

    def name_for_id(self, obj: Object, body: Object) -> str:
        return self._verb.name_for_id(obj, body)

    def is_of(self, obj: Object, made: Object) -> bool:
        return self._verb.is_of(obj, made)

    def make(self, obj: Object, body: Object, now: datetime) -> Object:
        return self._verb.make(obj, body, now)


class _ReadIn(Read):
    def __init__(self, read: Read, version: str) -> None:
        self._read = read
        self.answers, self.model = replace(read.answers, version=version), read.model

    async def read(self, obj: Object) -> Object:
        return {**await self._read.read(obj), "apiVersion": self.answers.api_version}
