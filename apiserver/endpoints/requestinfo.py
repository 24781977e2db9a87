"""Attributes of a request, parsed from method, path and query.

The grammar is that of ``k8s.io/apiserver/pkg/endpoints/request/requestinfo.go``::

    /apis/GROUP/VERSION[/watch][/namespaces/NAMESPACE]/RESOURCE[/NAME[/SUBRESOURCE[/…]]]
    anything else: a non-resource path
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from apiserver.apis.meta import fields
from apiserver.endpoints.http.messages import Request, path_of, query_of
from apiserver.endpoints.queries import truth

_VERBS: Final = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACES: Final = frozenset({"status", "finalize"})
_MUTATING: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
REMEMBERED_LENGTH: Final = 256
"""Clients may send a megabyte."""
_NAME_FIELD: Final = "metadata.name"


@dataclass(slots=True, unsafe_hash=True)  # freezing adds 2 µs
class RequestInfo:
    """Immutable attributes of one request.

    Non-resource paths only set ``path``, ``method`` and ``verb`` (the method in lower case).
    """

    method: str
    path: str
    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    rest: tuple[str, ...] = ()
    """Behind the subresource."""
    selected_name: bool = False
    """``name`` comes from a field selector."""
    label_selector: str = ""
    field_selector: str = ""
    misnamed: str = ""
    """Why name or namespace is invalid."""

    @property
    def mutating(self) -> bool:
        """True for writes, which have a separate limit."""
        return self.verb in _MUTATING if self.is_resource else self.method not in {"GET", "HEAD", "OPTIONS"}

    @property
    def scope(self) -> str:
        """The metrics' label: ``resource``, ``namespace``, ``cluster`` or empty."""
        if self.name and not self.selected_name:
            return "resource"
        return "namespace" if self.namespace else "cluster" if self.is_resource else ""


def of(request: Request) -> RequestInfo:
    """Return a request's attributes, cached by method and target."""
    target = request.target
    return _remembered(request.method, target) if len(target) <= REMEMBERED_LENGTH else _of(request.method, target)


@lru_cache(maxsize=2048)
def _remembered(method: str, target: str) -> RequestInfo:
    return _of(method, target)


def _of(method: str, target: str) -> RequestInfo:
    return parse(method, path_of(target), query_of(target))


def parse(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    """Return a request's attributes. ``path`` is percent-decoded; slashes at its start and end do not matter."""
    parts = path.strip("/").split("/")
    if len(parts) < 4 or parts[0] != "apis" or "" in _without_namespace(parts):
        return _nonresource(method, path)
    group, version, *parts = parts[1:]
    verb = _VERBS.get(method, "")
    if parts[0] == "watch":
        verb, parts = "watch", parts[1:]
        if not parts:
            return _nonresource(method, path)
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _OF_NAMESPACES:
            parts = parts[2:]
    resource, name, subresource, *rest = [*parts, "", ""][: max(3, len(parts))]
    label_selector, field_selector = "", ""
    selected = False
    if not name:
        if verb == "get":
            verb = "watch" if truth(query.get("watch")) else "list"
        elif verb == "delete":
            verb = "deletecollection"
        if verb in {"list", "watch", "deletecollection"}:
            label_selector, field_selector = query.get("labelSelector", ""), query.get("fieldSelector", "")
            name = _selected_name(field_selector)
            selected = bool(name)
    return RequestInfo(
        method=method,
        path=path,
        verb=verb,
        is_resource=True,
        group=group,
        version=version,
        namespace=namespace,
        resource=resource,
        subresource=subresource,
        name=name,
        rest=tuple(rest),
        selected_name=selected,
        label_selector=label_selector,
        field_selector=field_selector,
        misnamed=_misnamed("Namespace", namespace) or ("" if selected else _misnamed("Name", name)),
    )


def _nonresource(method: str, path: str) -> RequestInfo:
    return RequestInfo(method=method, path=path, verb=method.lower())


def _misnamed(what: str, text: str) -> str:
    if text in {".", ".."}:
        return f"{what} parameter invalid: \"{text}\": may not be '{text}'"
    return f"{what} parameter invalid: \"{text[:REMEMBERED_LENGTH]}\": may not contain '%'" if "%" in text else ""


def _without_namespace(parts: list[str]) -> list[str]:
    """Drop the namespace's name, which may be empty: ``/namespaces//virtualmachines`` lists all."""
    place = 4 if parts[3] == "watch" else 3
    return parts[: place + 1] + parts[place + 2 :] if parts[place : place + 1] == ["namespaces"] and len(parts) > place + 2 else parts


def _selected_name(selector: str) -> str:
    r"""Return the name that a field selector requires, or empty, for RBAC's resourceNames.

    By the selector's own parser: ``spec.a!=x\,metadata.name=b`` requires no name.
    """
    try:
        return fields.parse(selector).exact(_NAME_FIELD) or ""
    except ValueError:
        return ""  # the handler refuses it later
