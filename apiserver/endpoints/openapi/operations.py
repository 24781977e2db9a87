"""Paths and operations as data, the common source of both OpenAPI versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.resources import Resource
from apiserver.endpoints.openapi.descriptions import Described
from apiserver.registry.generic.scaling import SCALE
from apiserver.registry.generic.strategy import QueryParameter


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query or, with ``place="path"``, of the path."""

    name: str
    type: str
    description: str
    place: str = "query"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path; ``returns`` and ``body`` name components."""

    path: str
    method: str
    id: str
    description: str
    action: str
    """``x-kubernetes-action``; empty without resource."""
    kind: Resource | None
    parameters: tuple[Parameter, ...]
    returns: str | None
    """A success's component; None: a stream, or bytes."""
    body: str | None = None
    body_types: tuple[str, ...] = ()
    """Media types; empty: all supported."""
    body_required: bool = True
    codes: tuple[int, ...] = (200,)


_PRETTY: Final = Parameter("pretty", "string", "Indent the answer.")
_NAME: Final = Parameter("name", "string", "The object's name.", "path")
_NAMESPACE: Final = Parameter("namespace", "string", "The object's namespace.", "path")
_DRY_RUN: Final = Parameter("dryRun", "string", "All: process the request without writing.")
_MANAGER: Final = Parameter("fieldManager", "string", "Manager of the changed fields. Default: the beginning of User-Agent.")
_VALIDATION: Final = Parameter("fieldValidation", "string", "Treatment of unknown and duplicate fields: Ignore, Warn (default) or Strict.")
_FORCE: Final = Parameter("force", "boolean", "Take over fields of other managers; only for apply patches.")
_WRITE: Final = (_PRETTY, _DRY_RUN, _MANAGER, _VALIDATION)
_DELETE: Final = (
    _PRETTY,
    _DRY_RUN,
    Parameter("gracePeriodSeconds", "integer", "Accepted; the object's own grace period counts."),
    Parameter(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Delete an object that cannot be decoded, ignoring finalizers and preconditions; dependents may break.",
    ),
    Parameter("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    Parameter("propagationPolicy", "string", "Deletion of dependents: Orphan, Background or Foreground."),
)
_SELECT: Final = (
    Parameter("labelSelector", "string", "Only objects with matching labels."),
    Parameter("fieldSelector", "string", "Only objects with matching fields."),
    Parameter("limit", "integer", "Maximum number of items; the list then has a token to continue."),
    Parameter("continue", "string", "The token for the next page."),
    Parameter("resourceVersion", "string", "Oldest acceptable version of the data, or the start of a watch."),
    Parameter("resourceVersionMatch", "string", "Meaning of resourceVersion: NotOlderThan or Exact."),
    Parameter("timeoutSeconds", "integer", "Time limit of the request or watch."),
)
_WATCH: Final = (
    Parameter("watch", "boolean", "Stream changes instead of a list."),
    Parameter("allowWatchBookmarks", "boolean", "Also send bookmarks, which show the progress of the watch."),
    Parameter("sendInitialEvents", "boolean", "Start with the existing objects, followed by a bookmark."),
)
STATUS: Final = "Status"
DELETE_OPTIONS: Final = "DeleteOptions"
PATCH: Final = "Patch"
RESOURCES: Final = "APIResourceList"
SCALE_TYPE: Final = "Scale"
META: Final = frozenset({STATUS, DELETE_OPTIONS, PATCH, RESOURCES, SCALE_TYPE})
"""For ``returns`` and ``body``."""


def all_operations(described: Sequence[Described], patch_types: tuple[str, ...]) -> Iterator[Operation]:
    """Yield every operation of one group version's resources."""
    first = described[0].resource
    base = f"/apis/{first.group}/{first.version}"
    yield Operation(
        f"{base}/", "get", f"get{_camel(first)}APIResources", "Get the available resources.", "", None, (), RESOURCES
    )  # fmt: skip
    for each in described:
        yield from _of(each, base, patch_types)


def tag(resource: Resource) -> str:
    """Return the tag of a group version's operations: ``kubevirtIo_v1alpha1``."""
    group = _pascal(resource.group)
    return f"{group[0].lower()}{group[1:]}_{resource.version}"


def _of(described: Described, base: str, patch_types: tuple[str, ...]) -> Iterator[Operation]:
    resource, component = described.resource, described.component
    kind, plural, name = resource.kind, resource.plural, _camel(resource)
    if resource.namespaced:
        yield Operation(
            f"{base}/{plural}", "get", f"list{name}{kind}ForAllNamespaces", f"List or watch objects of kind {kind} in all namespaces.",
            "list", resource, (_PRETTY, *_SELECT, *_WATCH), f"{component}List",
        )  # fmt: skip
    scope = (_NAMESPACE,) if resource.namespaced else ()
    within = "Namespaced" if resource.namespaced else ""
    scoped = f"{name}{within}{kind}"
    collection = f"{base}/namespaces/{{namespace}}/{plural}" if resource.namespaced else f"{base}/{plural}"
    one = f"{collection}/{{name}}"
    here = (*scope, _NAME)
    yield Operation(
        collection, "get", f"list{scoped}", f"List or watch objects of kind {kind}.",
        "list", resource, (*scope, _PRETTY, *_SELECT, *_WATCH), f"{component}List",
    )  # fmt: skip
    yield Operation(
        collection, "post", f"create{scoped}", f"Create a {kind}.",
        "post", resource, (*scope, *_WRITE), component, component, codes=(200, 201, 202),
    )  # fmt: skip
    yield Operation(
        collection, "delete", f"delete{name}Collection{within}{kind}", f"Delete the selected objects of kind {kind}.",
        "deletecollection", resource, (*scope, *_DELETE, *_SELECT), STATUS, DELETE_OPTIONS, body_required=False,
    )  # fmt: skip
    yield from _read_and_write(one, scoped, "", f"the {kind}", resource, component, here, patch_types)
    yield Operation(
        one, "delete", f"delete{scoped}", f"Delete the {kind}.",
        "delete", resource, (*here, *_DELETE), STATUS, DELETE_OPTIONS, body_required=False, codes=(200, 202),
    )  # fmt: skip
    if described.has_status:
        yield from _read_and_write(f"{one}/status", scoped, "Status", f"the status of the {kind}", resource, component, here, patch_types)
    if described.has_scale:
        yield from _read_and_write(f"{one}/scale", scoped, "Scale", f"the replicas of the {kind}", SCALE, SCALE_TYPE, here, patch_types)
    for verb, answer in described.verbs.items():
        for method, word in (("put", "replace"), ("post", "create")):
            yield Operation(
                f"{one}/{verb}", method, f"{word}{scoped}{verb.capitalize()}", f"Call {verb} of the {kind}.",
                method, answer, (*here, *_WRITE), f"{described.prefix}.{answer.kind}", PATCH, body_required=False, codes=(200, 201),
            )  # fmt: skip
    for part, (answer, _) in described.reads.items():
        yield Operation(
            f"{one}/{part}", "get", f"read{scoped}{part.capitalize()}", f"Read {part} of the {kind}.",
            "get", answer, (*here, _PRETTY), f"{described.prefix}.{answer.kind}",
        )  # fmt: skip
    for stream, query in described.connects.items():
        parameters = (*here, *(Parameter(each.name, each.type, each.description) for each in query))
        for segments in _paths(described.segments.get(stream, ())):
            path = "".join(f"/{{{each.name}}}" for each in segments)
            yield Operation(
                f"{one}/{stream}{path}", "get",
                f"connect{name}Get{within}{kind}{stream.capitalize()}{''.join(f'With{each.name.capitalize()}' for each in segments)}",
                f"Connect to {stream} of the {kind}, by WebSocket.", "connect", resource, (*parameters, *segments), None,
            )  # fmt: skip


def _paths(segments: Sequence[QueryParameter]) -> Iterator[tuple[Parameter, ...]]:
    found = tuple(Parameter(each.name, each.type, each.description, "path") for each in segments)
    yield from (found[:count] for count in range(min(len(found), 1), len(found) + 1))


def _read_and_write(
    path: str, scoped: str, suffix: str, what: str, resource: Resource, component: str, here: tuple[Parameter, ...], types: tuple[str, ...]
) -> Iterator[Operation]:
    yield Operation(path, "get", f"read{scoped}{suffix}", f"Read {what}.", "get", resource, (*here, _PRETTY), component)
    yield Operation(
        path,
        "put",
        f"replace{scoped}{suffix}",
        f"Replace {what}.",
        "put",
        resource,
        (*here, *_WRITE),
        component,
        component,
        codes=(200, 201),
    )
    yield Operation(
        path, "patch", f"patch{scoped}{suffix}", f"Change {what} in part.",
        "patch", resource, (*here, *_WRITE, _FORCE), component, PATCH, types, codes=(200, 201),
    )  # fmt: skip


def _camel(resource: Resource) -> str:
    return f"{_pascal(resource.group)}{resource.version.capitalize()}"


def _pascal(group: str) -> str:
    return "".join(part.capitalize() for part in group.replace("-", ".").split("."))
