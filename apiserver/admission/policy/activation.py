"""Variables of admission's expressions: ``object``, ``oldObject``, ``request``, ``namespaceObject``, ``params``, ``authorizer``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.admission.webhook.review import VersionedAttributes
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.cel.environment import Environment
from apiserver.cel.library.authz import Answer, Authorizer, Question, ResourceCheck
from apiserver.cel.library.kubernetes import LIBRARY, PATCH_LIBRARY

_ALWAYS: Final = frozenset({"object", "oldObject", "namespaceObject", "request"})
_REQUEST: Final = frozenset(
    "kind resource subResource requestKind requestResource requestSubResource name namespace operation userInfo dryRun options".split()  # noqa: SIM905 - a line
)
_NAMESPACE: Final = frozenset({"metadata", "spec", "status"})
_SHOWN_OF_NAMESPACE: Final = frozenset(
    "name generateName namespace uid resourceVersion generation creationTimestamp deletionTimestamp "  # noqa: SIM905 - lines
    "deletionGracePeriodSeconds labels annotations finalizers".split()
)


def environment(
    *, params: bool = False, authorizer: bool = False, patches: bool = False, variables: tuple[str, ...] | None = None
) -> Environment:
    """Return the names and functions of expressions, with ``patches`` those that build patches.

    ``variables`` are the policy's earlier ones, None outside policies.
    """
    names = set(_ALWAYS)
    if params:
        names.add("params")
    if authorizer:
        names |= {"authorizer", "authorizer.requestResource"}
    fields = {"request": _REQUEST, "namespaceObject": _NAMESPACE}
    if variables is not None:
        names.add("variables")
        fields["variables"] = frozenset(variables)
    return Environment(PATCH_LIBRARY if patches else LIBRARY, frozenset(names), fields, patches)


@dataclass(slots=True, eq=False)
class Input:
    """One request, as the input of expressions."""

    versioned: VersionedAttributes
    namespace: Object | None = None
    answers: dict[Question, Answer] = field(default_factory=dict)
    _request: Object | None = None

    @property
    def request(self) -> Object:
        """The variable ``request``, with None for the objects."""
        if self._request is None:
            self._request = request_of(self.versioned)
        return self._request

    @property
    def namespace_object(self) -> Object | None:
        """The variable ``namespaceObject``; None without a namespace."""
        return namespace_object(self.namespace) if self.namespace is not None else None

    @property
    def authorizer(self) -> Authorizer:
        """The variable ``authorizer``."""
        return Authorizer(self.versioned.attributes.user, self.answers)

    @property
    def resource_check(self) -> ResourceCheck:
        """The variable ``authorizer.requestResource``."""
        attributes = self.versioned.attributes
        resource = attributes.resource
        where = (attributes.subresource, attributes.namespace, attributes.name)
        return ResourceCheck(self.authorizer, resource.group, resource.plural, *where)

    def variables(self, params: Object | None, *, authorizer: bool) -> dict[str, Any]:
        """Return a mapping from names (``object``, ``params``) to values; most exist only after a first ``[name]``.

        ``authorizer``: expressions may use ``authorizer``.
        """
        names = _Names({"object": self.versioned.obj, "oldObject": self.versioned.old, "params": params})
        names.given = self
        names.authorizer = authorizer
        return names


class _Names(dict[str, Any]):
    given: Input
    authorizer: bool

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - a value of the language
        made: Any
        if name == "request":
            made = self.given.request
        elif name == "namespaceObject":
            made = self.given.namespace_object
        elif name == "authorizer" and self.authorizer:
            made = self.given.authorizer
        elif name == "authorizer.requestResource" and self.authorizer:
            made = self.given.resource_check
        else:
            raise KeyError(name)
        self[name] = made
        return made


def request_of(versioned: VersionedAttributes) -> Object:
    """Return the variable ``request``: the ``AdmissionRequest`` with None for the objects, and without most empty fields."""
    attributes = versioned.attributes
    user = attributes.user
    info: Object = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return {
        "uid": "",
        "kind": _kind(versioned.kind),
        "resource": _resource(versioned.resource),
        "requestKind": _kind(versioned.request_kind),
        "requestResource": _resource(attributes.resource),
        **({"subResource": attributes.subresource, "requestSubResource": attributes.subresource} if attributes.subresource else {}),
        **({"name": attributes.name} if attributes.name else {}),
        **({"namespace": attributes.namespace} if attributes.namespace else {}),
        "operation": attributes.operation,
        "userInfo": {key: value for key, value in info.items() if value},
        "object": None,
        "oldObject": None,
        "dryRun": attributes.dry_run,
        "options": attributes.options or None,
    }


def _kind(kind: tuple[str, str, str]) -> Object:
    return {"group": kind[0], "version": kind[1], "kind": kind[2]}


def _resource(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def namespace_object(namespace: Object) -> Object:
    """Return the fields of a namespace that expressions see as ``namespaceObject``."""
    metadata = {key: value for key, value in namespace["metadata"].items() if key in _SHOWN_OF_NAMESPACE}
    return {"metadata": metadata, "spec": namespace.get("spec") or {}, "status": namespace.get("status") or {}}
