"""Strategy: everything that is special about one resource, for a machinery that knows none.

The order in which :mod:`apiserver.registry.generic.store` asks (the same for a dry run, which stops before the last step):

====== ==================================================================================================================
create ``read``, ``default``, managed fields, mutating admission, metadata, ``prepare_for_create``, ``validate``, validating admission,
       ``locks``, commit
update ``read``, ``default``, managed fields, mutating admission, metadata, ``prepare_for_update`` (``prepare_for_status_update`` for
       ``/status``), ``validate_update`` (``validate_status_update``), validating admission, ``locks``, commit;
       ``metadata.generation`` grows when anything but metadata and status changed
verb   ``Verb.apply``, then as an update of the whole object; from the start again when somebody else wrote in between
delete admission, ``prepare_for_delete``, commit
====== ==================================================================================================================

Objects are plain JSON (``dict[str, Any]``), already deep copies: a hook may change ``obj`` in place, never ``old``. Hooks are pure and
quick; none of them awaits. An update whose result equals the stored object is not written, so hooks must not stamp times into objects that
did not change. A status is defaulted and validated by the same functions as the rest.
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
    """A column of the resource's Table after ``Name`` and before ``Age``, both of which the machinery adds."""

    name: str
    type: str = "string"
    """``string``, ``integer``, ``number``, ``boolean`` or ``date``."""
    description: str = ""
    priority: int = 0
    """Above 0: shown by ``-o wide`` only."""
    format: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """Faults in the shape of a body."""

    unknown: tuple[str, ...] = ()
    """Paths of fields that the schema does not have (``spec.foo``, ``spec.disks[0].bar``); they have been dropped from the object."""
    errors: tuple[FieldError, ...] = ()
    """Fields that the schema forbids: of a wrong type, missing, in no enumeration. An object with any is refused; ``default`` and
    ``validate`` are still asked what else is wrong, of what :meth:`Strategy.prune` leaves, in which required fields may be absent."""


NOTHING_WRONG: Final = Reading()


class Verb:
    """An action on one object: PUT or POST of ``…/NAME/VERB``; the answer is the object as it became."""

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        """Change ``obj`` (a copy) and return it. ``body`` is the request's JSON object, ``{}`` if there was none.

        Spec and status may both change; the write happens at the revision that ``obj`` has. Called again with the newer object
        when somebody else wrote in between.

        Raises:
            StatusError: Conflict when the object's state does not allow it, Invalid or BadRequest for a wrong body.
        """
        raise NotImplementedError


class CreatingVerb:
    """An action that creates an object of another resource (or finds its like); the answer is that object, with code 201."""

    creates: Resource

    def make(self, obj: Object, body: Object, now: datetime) -> Object:
        """Return the object to create in the namespace of ``obj``; it takes the whole way of a POST, locks included.

        Raises:
            StatusError: as :meth:`Verb.apply`.
        """
        raise NotImplementedError


class ServerTrust(Protocol):
    """Says of the server of a stream whether it may be spoken to, beyond what TLS verifies."""

    def refusal(self, certificate: Mapping[str, object]) -> str:
        """Return why not, given its verified certificate (as of ``ssl.SSLSocket.getpeercert``); empty if it may."""
        ...

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call it whenever the answer may be another, for streams that are refused then end; returns what ends that."""
        ...


@dataclass(frozen=True, slots=True)
class Destination:
    """Destination of the bytes of a stream: a websocket server over mutual TLS."""

    url: str
    """``https://10.0.0.1:8444/v1/…``."""
    server_name: str
    """The name that the server's certificate must carry."""
    tls: ssl.SSLContext
    trust: ServerTrust | None = None


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A parameter of the query that a stream knows, as OpenAPI tells of it."""

    name: str
    type: str
    """``string``, ``integer`` or ``boolean``."""
    description: str


class Connect:
    """A stream subresource (``console``): the client's websocket is joined to one that a :class:`Destination` serves."""

    subprotocols: ClassVar[tuple[str, ...]] = ()
    """Subprotocols that a client may offer; the first that it offers is chosen, and offered to the destination."""
    ping_seconds: ClassVar[float] = 20.0
    interactive: ClassVar[bool] = True
    """True if whoever is connected can do more than read: the right to ``create`` the subresource is needed beside ``get``."""
    holder_header: ClassVar[str] = ""
    """The header that tells the destination whose stream it is: a token, the same for all streams of a user, that says nothing else."""

    @property
    def parameters(self) -> tuple[QueryParameter, ...]:
        """Return the parameters that :meth:`locate` reads in the query."""
        return ()

    async def locate(self, obj: Object, query: Mapping[str, str]) -> Destination:
        """Return where the stream of ``obj`` is served now; ``query`` is the request's, of which a stream may know parameters.

        Raises:
            StatusError: BadRequest or Conflict while there is nothing to connect to, ServiceUnavailable while its server cannot be found.
                The client gets it as an answer, before any upgrade.
        """
        raise NotImplementedError

    def warnings(self, obj: Object) -> Iterable[str]:
        """Return what whoever connects to the stream of ``obj`` is to be told: each a ``Warning`` header of the upgrade."""
        del obj
        return ()


class Read:
    """A subresource that can only be read (``guestinfo``): GET answers with an object of a kind of its own that is stored nowhere."""

    answers: Resource
    """The kind of the answer, in the group and version of the resource. Its plural is nobody's."""
    model: type[Any]
    """The answer's pydantic model, for OpenAPI."""

    async def read(self, obj: Object) -> Object:
        """Return what there is to read of ``obj`` now: a whole object of the kind ``answers``.

        Raises:
            StatusError: BadRequest or Conflict while there is nothing to read, ServiceUnavailable or Timeout where whoever has it does not
                answer.
        """
        raise NotImplementedError


class Strategy:
    """One resource. Subclasses set the attributes and override what differs; the defaults suit a plain namespaced kind."""

    resource: Resource
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    model: type[Any]
    """The pydantic model (:class:`apiserver.apis.meta.schema.Kind`): what objects are held against, and the schema for OpenAPI."""
    has_status: bool = True
    """Serve ``/status``."""
    scaling: Scaling | None = None
    """Serve ``/scale``. In the stored version's words; a further version must have the replicas at the same path."""
    verbs: Mapping[str, Verb | CreatingVerb] = {}
    connects: Mapping[str, Connect] = {}
    reads: Mapping[str, Read] = {}
    spokes: Mapping[str, Spoke] = {}
    """Further served versions, by ``apiVersion``; each adds itself."""

    @property
    def hub(self) -> Strategy:
        """The strategy of the stored version: this one, but for a :class:`Spoke`."""
        return self

    def to_hub(self, obj: Object) -> Object:
        """Return an object of this version as one of the stored version; ``obj`` is used up."""
        return obj

    def from_hub(self, obj: Object) -> Object:
        """Return an object of the stored version as one of this version; ``obj`` is used up."""
        return obj

    def read(self, obj: Object) -> Reading:
        """Hold a client's object against the schema: drop unknown fields in place, report them and wrong types; quantities become strings.

        ``metadata`` is the machinery's: leave it alone. The model is strict and forbids what it does not have
        (:class:`apiserver.apis.meta.schema.Model`); a kind without such a model overrides this.
        """
        unknown, errors = decoding.read(self.model, obj)
        amounts.write_as_strings(self.model, obj)
        return Reading(unknown, errors) if unknown or errors else NOTHING_WRONG

    def prune(self, obj: Object) -> None:
        """Take out in place what :meth:`read` found of wrong type, so that the rest can be judged; ``metadata`` is the machinery's."""
        decoding.prune(self.model, obj)

    def hint(self, field: str, value: object = None) -> str:
        """Return what to write in place of a field or value that the schema does not have; empty: nothing is known of it."""
        del field, value
        return ""

    def default(self, obj: Object) -> None:
        """Fill in defaults in place. Idempotent; also called for what storage returns, so that old objects get new fields."""

    def prepare_for_create(self, obj: Object) -> None:
        """Normalize a new object in place: set finalizers, say. The machinery has removed ``status`` before, if ``has_status``."""

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        """Normalize an updated object in place. The machinery has put the old status back before, if ``has_status``."""

    def prepare_for_status_update(self, obj: Object, old: Object) -> None:
        """Normalize an object whose status alone is new: the machinery has put everything else back."""

    def prepare_for_delete(self, obj: Object) -> None:
        """Change an object that is marked for deletion (finalizers hold it), before that is written."""

    def validate(self, obj: Object) -> list[FieldError]:
        """Return all that is wrong with a new object, name included where the kind restricts it beyond DNS-1123 subdomains."""
        del obj
        return []

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return all that is wrong with an updated object: by default the same as with a new one."""
        del old
        return self.validate(obj)

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return all that is wrong with an object whose status is new."""
        del obj, old
        return []

    def warnings_on_update(self, obj: Object, old: Object) -> Iterable[str]:
        """Return what whoever updates all but the status is to be told although it is done: each a ``Warning`` header."""
        del obj, old
        return ()

    def warnings_on_delete(self, obj: Object, grace_seconds: int | None) -> Iterable[str]:
        """Return what whoever deletes it is to be told although it is done; ``grace_seconds``: those of the DeleteOptions."""
        del obj, grace_seconds
        return ()

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """Return the fields that field selectors may name, besides ``metadata.name`` and ``metadata.namespace``.

        The keys must be the same for every object, ``{}`` included.
        """
        del obj
        return {}

    def columns(self) -> tuple[Column, ...]:
        """Return the Table's columns between ``Name`` and ``Age``."""
        return ()

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return the row's values, one a column of :meth:`columns`; None is shown as ``<none>``."""
        del obj, now
        return []

    def locks(self, obj: Object) -> frozenset[str]:
        """Return keys that at most one object may hold (uniqueness locks), as ``<scope>/<name>`` (``migrating/<namespace>/<vm>``).

        They are taken and given up in the transaction that writes the object; whoever comes second gets :meth:`lock_taken`.
        """
        del obj
        return frozenset()

    def shared_locks(self, obj: Object) -> frozenset[tuple[str, str]]:
        """Return uniqueness locks that objects of one group may hold at once, and nobody beside them: pairs of lock and group.

        Neither has a ``/`` at its end or is the beginning of another up to a ``/``.
        """
        del obj
        return frozenset()

    def lock_taken(self, obj: Object, lock: str, holder: str, held_by: Object | None) -> str:
        """Return the message of the Conflict when ``lock`` is held by the object named ``holder`` (``namespace/name``).

        ``held_by`` is that object; None if it cannot be read.
        """
        del obj, held_by
        return f"{lock} is already held by {holder}"


class Spoke(Strategy):
    """A further served version of a kind: its own schema, and a conversion that loses nothing.

    Stored, prepared, validated and locked is the hub's form. What is special about the version is ``resource``, ``model``, ``read``,
    ``default`` and the two conversions, each of which has to undo the other. Managed fields are kept by version, too. What storage has of
    a spoke's version (because that was the stored one before) is converted when it is read, and rewritten by the next write.
    Source: the conversions of ``k8s.io/apimachinery/pkg/runtime``.
    """

    def __init__(self, hub: Strategy) -> None:
        self._hub = hub
        self.singular, self.short_names, self.categories = hub.singular, hub.short_names, hub.categories
        self.has_status, self.scaling = hub.has_status, hub.scaling
        hub.spokes = {**hub.spokes, self.resource.api_version: self}

    def upgrade(self, obj: Object) -> Object:
        """Return ``obj``, which may be used up, as the hub has it; ``apiVersion`` and ``metadata`` are the machinery's."""
        raise NotImplementedError

    def downgrade(self, obj: Object) -> Object:
        """Return an object of the hub's version, which may be used up, as this version has it."""
        raise NotImplementedError

    @property
    def hub(self) -> Strategy:
        """The strategy of the stored version."""
        return self._hub

    def to_hub(self, obj: Object) -> Object:
        """Return ``obj`` as the stored version has it; it is used up."""
        return {**self.upgrade(obj), "apiVersion": self._hub.resource.api_version}

    def from_hub(self, obj: Object) -> Object:
        """Return an object of the stored version as this version has it; it is used up."""
        return {**self.downgrade(obj), "apiVersion": self.resource.api_version}

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """Return the hub's fields: ``obj`` is of the stored version."""
        return self._hub.selectable_fields(obj)

    def columns(self) -> tuple[Column, ...]:
        """Return the hub's columns."""
        return self._hub.columns()

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return the hub's values; ``obj`` is of this version, and stays as it is."""
        return self._hub.cells(self.to_hub(deepcopy(obj)), now)
