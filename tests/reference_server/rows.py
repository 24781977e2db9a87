"""Requests to both servers, by the rows of docs/apiserver-checklist.md.

``{…}`` in a step refers to an earlier answer: ``{a.uid}`` and ``{a.rv}`` of the object saved as ``a``; ``{a.continue}`` is a list's token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

GROUP: Final = "wardle.example.com"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True)
class Step:
    """A request to both servers. A ``path`` without a leading slash is below the flunders of the case's namespace."""

    method: str
    path: str = ""
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    save: str = ""
    differs: str = ""
    """Why ours has another message, or another ``code``."""
    code: int = 0
    beside: dict[str, str] = field(default_factory=dict)
    """Members that differ, each with its reason (tests.reference_server.comparing)."""


@dataclass(frozen=True)
class Case:
    name: str
    steps: tuple[Step, ...]


def flunder(name: str | None = "f1", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Flunder",
        "metadata": {key: value for key, value in metadata.items() if value is not None},
        "spec": {"reference": "r", **more.pop("spec", {})},
        **more,
    }


def get(path: str = "", **more: Any) -> Step:
    return Step("GET", path, **more)


def post(body: Any, query: str = "", **more: Any) -> Step:
    return Step("POST", query, body, **more)


def put(path: str, body: Any, **more: Any) -> Step:
    return Step("PUT", path, body, **more)


def patch(path: str, body: Any, content_type: str = MERGE, **more: Any) -> Step:
    return Step("PATCH", path, body, content_type, **more)


def delete(path: str, body: Any = None, **more: Any) -> Step:
    return Step("DELETE", path, body, **more)


STRICT: Final = "unknown fields are causes of the one Invalid that names all that is wrong (docs/decisions/api.md)"
RV_ON_CREATE: Final = "Go answers 500 for a client's mistake"
MALFORMED_RV: Final = "a malformed resourceVersion is BadRequest everywhere (Go: 500 or Invalid, by verb)"
UNKNOWN_IN_APPLY: Final = "Go answers 500 for a client's mistake"

WORDS: Final = "the same refusal in words of ours"
NAMES: Final = "the sample validates no names"
SHAPE: Final = "what has not the schema's shape is Invalid with all causes; Go stops at the first and says BadRequest"
NO_OBJECT: Final = "a body that is no object is BadRequest"
RANGES: Final = "ranges of media types and a quality of 0 mean what RFC 9110 says"
ONLY_READ: Final = "health is read and not written"
JSON_DISCOVERY: Final = "plain discovery is JSON, whatever is accepted"
PRECONDITION: Final = "a patch's uid is a precondition, as that of PUT is: 409, as for a revision"
OTHER_KIND: Final = "a patch does not turn an object into one of another kind or version: BadRequest, as for PUT"
JSON_ALONE: Final = "we serve JSON and YAML, no protobuf"

OWN_PATHS: Final = dict.fromkeys(("paths", "only the reference: paths.more"), "each server lists the paths that it has")
_KIND_HAS_COLUMNS: Final = "the columns of a kind are its own: the sample has none but its creation"
COLUMNS: Final = {"columnDefinitions": _KIND_HAS_COLUMNS, "rows.cells": _KIND_HAS_COLUMNS}
NO_ROWS: Final = {"columnDefinitions": _KIND_HAS_COLUMNS, "rows": "a list without items is [], and not null: clients count both alike"}
EVENT_COLUMNS: Final = {f"events.object.{member}": why for member, why in COLUMNS.items()}
NO_ADDRESS: Final = {
    "only the reference: groups.serverAddressByClientCIDRs": "we do not know where clients reach us, and no client uses the reference's",
    "only ours: apiVersion": "kube-apiserver says it; the reference leaves it out",
}
RESPONSE_KIND: Final = {
    f"items.versions.resources.responseKind.{member}": "they are said, and not left to the reader" for member in ("group", "version")
}
_NAMED: Final = "the object and each wrong field are named; Go names the patch"
FIELDS: Final = dict.fromkeys(
    ("only ours: details.name", "only ours: details.group", "only ours: details.kind", "details.causes.field", "details.causes.reason"),
    _NAMED,
)
OPERATION: Final = {"only ours: details.causes": "the operation that cannot be done is named; Go says that there is one"}
GIVEN: Final = {"details.causes.field": "the field that the request has is named; Go names one that it has not"}
_ONLY_METADATA: Final = "bookmarks have nothing but metadata"
BOOKMARKS: Final = {
    "only the reference: events.object.spec": _ONLY_METADATA,
    "only the reference: events.object.status": _ONLY_METADATA,
    "only ours: events.more.BOOKMARK": "a watch ends with a bookmark whenever it ends",
}
TWICE: Final = {"only the reference: details.causes.more": "the sample validates metadata a second time by itself"}

CASES: Final = (
    Case(
        "cre-get",
        (
            post(flunder(metadata={"labels": {"a": "b"}, "annotations": {"x/y": "z"}}), save="a"),
            get("f1"),
            get("nope"),
            get(),
            post(flunder()),
            post(flunder("f2", metadata={"uid": "x", "generation": 7, "creationTimestamp": "2000-01-01T00:00:00Z", "selfLink": "/x"})),
            post(flunder("f3", metadata={"resourceVersion": "5"}), differs=RV_ON_CREATE, code=400),
            post(flunder("f4", metadata={"namespace": "other"})),
            post({**flunder("f5"), "kind": "Fischer"}, differs=WORDS),
            post({}),
            post(flunder(None)),
            post(flunder("A_b"), differs=NAMES, code=422),
            post(flunder("f6", metadata={"labels": {"a b": "c d"}})),
            post(flunder("x" * 260), differs=NAMES, code=422),
            post(flunder("f7", metadata={"finalizers": ["x"]})),
            post(flunder("f8", metadata={"annotations": {"big": "x" * 300_000}})),
            post(
                flunder(
                    "f9",
                    metadata={
                        "ownerReferences": [
                            {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1", "controller": True},
                            {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "2", "controller": True},
                        ]
                    },
                )
            ),
            post(flunder("f10", metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"}] * 2})),
            post(flunder(None, metadata={"generateName": "g-"})),
        ),
    ),
    Case(
        "updates",
        (
            post(flunder(), save="a"),
            put("f1", flunder(metadata={"resourceVersion": "{a.rv}"}, spec={"reference": "s"}), save="b"),
            put("f1", flunder(metadata={"resourceVersion": "{a.rv}"}, spec={"reference": "t"})),
            put("f1", flunder()),
            put("nope", flunder("nope")),
            put("f1", flunder("f2", metadata={"resourceVersion": "{b.rv}"})),
            put("f1", flunder(metadata={"resourceVersion": "{b.rv}", "uid": "00000000-0000-0000-0000-000000000000"}), differs=WORDS),
            put(
                "f1", flunder(metadata={"resourceVersion": "{b.rv}", "creationTimestamp": "2000-01-01T00:00:00Z"}, spec={"reference": "s"})
            ),
            get("f1", save="c"),
            put("f1", {**flunder(), "status": {}, "metadata": {"name": "f1", "resourceVersion": "{c.rv}"}}),
        ),
    ),
    Case(
        "patches",
        (
            post(flunder(metadata={"labels": {"a": "b"}})),
            patch("f1", {"metadata": {"labels": {"c": "d"}}}),
            patch("f1", {"metadata": {"labels": {"a": None}}}),
            patch("f1", {}),
            patch("nope", {}),
            patch("f1", {"spec": 5}, differs=WORDS, beside=FIELDS),
            patch("f1", {"spec": {"reference": "x"}}, STRATEGIC),
            patch("f1", {"metadata": {"finalizers": ["a.b/c"]}}, STRATEGIC),
            patch("f1", {"metadata": {"finalizers": ["a.b/d"]}}, STRATEGIC),
            patch("f1", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c", "a.b/d"]}}, STRATEGIC),
            patch("f1", [{"op": "replace", "path": "/spec/reference", "value": "y"}], JSON_PATCH),
            patch("f1", [], JSON_PATCH),
            patch("f1", [{"op": "remove", "path": "/x"}], JSON_PATCH, differs=WORDS, beside=OPERATION),
            patch("f1", [{"op": "test", "path": "/spec/reference", "value": "z"}], JSON_PATCH, differs=WORDS, beside=OPERATION),
            patch("f1", {"op": "x"}, JSON_PATCH, differs=WORDS),
            patch("f1", {}, "text/plain", differs=WORDS),
            patch("f1?force=true", {}),
            patch("f1", {"metadata": {"resourceVersion": "1"}}),
            patch(f"f1?fieldManager={'x' * 129}", {}),
        ),
    ),
    Case(
        "apply",
        (
            patch("f1?fieldManager=m", flunder(), APPLY, save="a"),
            patch("f1?fieldManager=m", flunder(), APPLY),
            patch("f1?fieldManager=n", flunder(spec={"reference": "other"}), APPLY),
            patch("f1?fieldManager=n&force=true", flunder(spec={"reference": "other"}), APPLY),
            patch("f1", flunder(), APPLY),
            patch("f1?fieldManager=m", flunder(spec={"foo": 1}), APPLY, differs=UNKNOWN_IN_APPLY, code=422),
            patch("f1?fieldManager=u", {"metadata": {"labels": {"l": "1"}}}),
            patch("f1?fieldManager=m", flunder(metadata={"labels": {"l": "2"}}), APPLY),
            patch("f1?fieldManager=m", flunder(metadata={"managedFields": []}), APPLY),
            patch("f2?fieldManager=m", flunder("f2", metadata={"uid": "x"}), APPLY),
            patch("f1?fieldManager=m&dryRun=All", flunder(metadata={"labels": {"dry": "1"}}), APPLY),
            get("f1"),
            patch("f1/status?fieldManager=s", {**flunder(), "status": {}}, APPLY),
            patch("f3?fieldManager=m", flunder("f4"), APPLY),
        ),
    ),
    Case(
        "deletes",
        (
            post(flunder("d1"), save="a"),
            delete("d1", {"preconditions": {"uid": "x"}}),
            delete("d1?dryRun=All"),
            delete("d1"),
            delete("d1"),
            post(flunder("d2", metadata={"finalizers": ["a.b/c"]})),
            delete("d2"),
            delete("d2"),
            post(flunder("d2")),
            patch("d2", {"metadata": {"finalizers": ["a.b/c", "a.b/d"]}}),
            delete("d2?propagationPolicy=Foreground"),
            patch("d2", {"metadata": {"finalizers": None}}),
            get("d2"),
            post(flunder("d3"), save="c"),
            delete("d3?propagationPolicy=x"),
            delete("d3", {"propagationPolicy": "Orphan", "orphanDependents": True}),
            delete("d3", {"propagationPolicy": "Orphan"}),
            delete("d3?gracePeriodSeconds=x", differs=WORDS),
            post(flunder("d4", metadata={"finalizers": ["a.b/c"]})),
            delete("d4", {"orphanDependents": False}),
            post(flunder("d5", metadata={"labels": {"k": "1"}})),
            post(flunder("d6", metadata={"labels": {"k": "2"}})),
            delete("?labelSelector=k%3D1"),
            get("?labelSelector=k"),
        ),
    ),
    Case(
        "lists",
        (
            post(flunder("a", metadata={"labels": {"l": "1"}})),
            post(flunder("b", metadata={"labels": {"l": "2"}})),
            post(flunder("c")),
            get(),
            get("?limit=2", save="p"),
            get("?limit=2&continue={p.continue}"),
            get("?labelSelector=l%20in%20(1,2)"),
            get("?labelSelector=!l"),
            get("?labelSelector=a%20in"),
            get("?fieldSelector=metadata.name%3Db"),
            get("?fieldSelector=metadata.name!%3Db"),
            get("?fieldSelector=spec.x%3D1"),
            get("?continue=x", differs=WORDS),
            get("?limit=x", differs=WORDS),
            get("?foo=bar"),
            get("?resourceVersion=0"),
            get("?resourceVersionMatch=Exact"),
            get("?resourceVersion=0&resourceVersionMatch=Exact"),
            get("?resourceVersion=0&resourceVersionMatch=NotOlderThan"),
            get("?resourceVersion=1&resourceVersionMatch=x"),
            get("?resourceVersion=abc", differs=WORDS),
            get("?resourceVersion=99999999999"),
            get("a?resourceVersion=abc", differs=MALFORMED_RV, code=400),
            get("?continue={p.continue}&resourceVersion=5"),
            get("?sendInitialEvents=true"),
            get("?labelSelector=no%3Dno"),
            get("?fieldSelector=metadata.name%3Da&limit=1"),
            get("?limit=1&labelSelector=l"),
        ),
    ),
    Case(
        "watches",
        (
            post(flunder("a"), save="a"),
            patch("a", {"metadata": {"labels": {"x": "1"}}}, save="b"),
            delete("a"),
            get("?watch=1&timeoutSeconds=1&resourceVersion={a.rv}"),
            get("?watch=1&timeoutSeconds=1&resourceVersion={b.rv}"),
            get("?watch=1&timeoutSeconds=1&resourceVersion={a.rv}&labelSelector=x"),
            get("?watch=&timeoutSeconds=1&resourceVersion={a.rv}", accept=PARTIAL),
            get("?watch=1&timeoutSeconds=1&resourceVersion={a.rv}", accept=TABLE, beside=EVENT_COLUMNS),
            get("?watch=1&sendInitialEvents=true"),
            get("?watch=1&resourceVersionMatch=NotOlderThan"),
            get("?watch=1&continue=x", differs=WORDS, beside=GIVEN),
            get("?watch=1&resourceVersion=abc", differs=MALFORMED_RV, code=400),
            get("?watch=1&timeoutSeconds=1&resourceVersion={b.rv}", accept="application/yaml", differs=JSON_ALONE),
        ),
    ),
    Case(
        "forms",
        (
            post(flunder("a")),
            get("", accept=TABLE, beside=COLUMNS),
            get("a", accept=TABLE, beside=COLUMNS),
            get("?includeObject=Object", accept=TABLE, beside=COLUMNS),
            get("?includeObject=None", accept=TABLE, beside=COLUMNS),
            get("?includeObject=x", accept=TABLE),
            get("?labelSelector=none", accept=TABLE, beside=NO_ROWS),
            get("", accept=PARTIAL_LIST),
            get("a", accept=PARTIAL),
            get("", accept=PARTIAL, differs=WORDS),
            get("a", accept="text/html", differs=JSON_ALONE),
            get("a", accept="application/yaml"),
            get("a", accept="text/html, */*;q=0.1"),
            get("a", accept="application/cbor", differs=JSON_ALONE),
            patch("a", {"metadata": {"labels": {"p": "1"}}}, accept=PARTIAL),
            get("nope", accept=TABLE),
            post(flunder("b"), content_type="text/plain", differs=JSON_ALONE),
            post("a: [", content_type="application/yaml", differs=WORDS),
            post(flunder("b"), accept=TABLE, beside=COLUMNS),
            delete("b", accept=TABLE),
            post("{", differs=WORDS),
            post("[]", differs=WORDS),
        ),
    ),
    Case(
        "validation",
        (
            post(flunder(spec={"reference": "", "referenceType": "Flunder"})),
            post(flunder("v1", spec={"foo": 1})),
            post(flunder("v2", spec={"foo": 1}), "?fieldValidation=Ignore"),
            post(flunder("v3", spec={"foo": 1}), "?fieldValidation=Strict", differs=STRICT, code=422),
            post(flunder("v4"), "?fieldValidation=x"),
            post(flunder("v5"), "?dryRun=All"),
            get("v5"),
            post(flunder("v6"), "?dryRun=x"),
            post('{"kind":"Flunder","apiVersion":"wardle.example.com/v1alpha1","metadata":{"name":"v7","name":"v8"}}'),
            post(flunder("v9"), "?fieldManager=%00"),
            post(flunder("v10"), "?pretty=true"),
        ),
    ),
    Case(
        "more-lists",
        (
            post(flunder("a", metadata={"labels": {"l": "1", "n": "5"}}), save="a"),
            post(flunder("b", metadata={"labels": {"l": "2"}}), save="b"),
            post(flunder("c")),
            get("?shardSelector=x"),
            get("?limit=1&resourceVersion={b.rv}", save="p"),
            get("?limit=1&continue={p.continue}&resourceVersionMatch=Exact"),
            get("?limit=1&continue={p.continue}&resourceVersionMatch=NotOlderThan"),
            get("?resourceVersion={a.rv}&resourceVersionMatch=Exact"),
            get("?resourceVersion={b.rv}&resourceVersionMatch=NotOlderThan&limit=1"),
            get("?limit=-1"),
            get("?timeoutSeconds=x", differs=WORDS),
            get("?labelSelector=l,n"),
            get("?labelSelector=n%3E4"),
            get("?labelSelector=l%20notin%20(1),n!%3D5"),
            get("?labelSelector=l%3D1%3D2"),
            get("?labelSelector=%2Fx%3D1"),
            get("?labelSelector=l%20in%20()"),
            get("?fieldSelector=metadata.namespace%3Dmore-lists,metadata.name!%3Da"),
            get("?fieldSelector=metadata.namespace%3Dother"),
            get("?fieldSelector=metadata.name"),
            get("?fieldSelector=metadata.name%3Da,metadata.name%3Db"),
            get("?watch=false&limit=1"),
            get("?limit=2&dryRun=All"),
            delete("?limit=1"),
            delete("?dryRun=All"),
            delete("?labelSelector=a%20in"),
            delete("?fieldSelector=metadata.name%3Dc"),
            get(),
            get(
                "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1",
                beside=BOOKMARKS,
            ),
            get("?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"),
            get("?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"),
            get("?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact"),
            get("?watch=1&resourceVersion=0&timeoutSeconds=1"),
            get("?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Db"),
            get("?watch=1&resourceVersion={a.rv}&resourceVersionMatch=NotOlderThan"),
            get("?watch=1&labelSelector=a%20in"),
        ),
    ),
    Case(
        "more-writes",
        (
            post(flunder("w", metadata={"labels": {"a": "b"}, "finalizers": ["a.b/c"]}), save="a"),
            patch("w", {"metadata": {"name": "other"}}),
            patch("w", {"metadata": {"namespace": "other"}}),
            patch("w", {"metadata": {"uid": "x"}}, differs=PRECONDITION, code=409),
            patch("w", {"metadata": {"deletionTimestamp": "2000-01-01T00:00:00Z"}}),
            patch("w", {"metadata": {"creationTimestamp": None}}),
            patch("w", {"metadata": {"generateName": "g-"}}),
            patch("w", {"metadata": {"labels": {"x": "not valid!"}}}, beside=TWICE),
            patch("w", {"metadata": {"labels": {"x": 5}}}, differs=WORDS, beside=FIELDS),
            patch("w", {"metadata": {"annotations": {"x": "y"}, "selfLink": "/x"}}),
            patch("w", {"metadata": {"managedFields": []}}),
            patch("w", {"kind": "Fischer"}, differs=OTHER_KIND, code=400),
            patch("w?dryRun=All", {"apiVersion": "wardle.example.com/v1beta1"}, differs=OTHER_KIND, code=400),
            patch("w", "", differs=WORDS),
            patch("w", "{", differs=WORDS),
            patch("w", "null", differs=WORDS),
            patch("w", {"metadata": {"labels": {"$patch": "replace", "z": "1"}}}, STRATEGIC),
            patch("w", {"metadata": {"labels": {"$patch": "delete"}}}, STRATEGIC),
            patch("w", {"metadata": {"$retainKeys": ["name", "annotations"], "annotations": {"x": "y"}}}, STRATEGIC),
            patch("w", {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"}]}}, STRATEGIC),
            patch("w", {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "1"}]}}, STRATEGIC),
            patch("w", [{"op": "test", "path": "/metadata/labels", "value": None}], JSON_PATCH),
            patch("w", [{"op": "add", "path": "/metadata/labels", "value": {"j": "1"}}], JSON_PATCH),
            patch("w", [{"op": "move", "from": "/metadata/labels/j", "path": "/metadata/labels/k"}], JSON_PATCH),
            patch("w", [{"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"}], JSON_PATCH),
            patch("w?dryRun=All", {"metadata": {"labels": {"dry": "1"}}}),
            patch("w?force=false", {}),
            patch("w?fieldValidation=Strict", {"spec": {"foo": 1}}, differs=WORDS, beside=FIELDS),
            patch("w?fieldValidation=Warn", {"spec": {"foo": 1}}),
            patch("w?fieldValidation=Ignore", '{"spec":{"reference":"x","reference":"y"}}'),
            patch("w", '{"spec":{"reference":"x","reference":"y"}}'),
            patch("w?timeout=1s", {"metadata": {"labels": {"t": "1"}}}),
            put("w", flunder("w", metadata={"resourceVersion": "0"})),
            put("w", {**flunder(None), "metadata": {"resourceVersion": "{a.rv}"}}),
            put("w", flunder("w", metadata={"resourceVersion": "{a.rv}", "deletionTimestamp": "2000-01-01T00:00:00Z"})),
            put("w?dryRun=All", flunder("w", metadata={"resourceVersion": "1"})),
            put("w", {**flunder("w"), "kind": ""}),
            put("w", "", differs=WORDS),
            get("w"),
            post(flunder(None, metadata={"generateName": "g-"}), "?dryRun=All"),
            post(flunder(None, metadata={"generateName": "A_"}), differs=NAMES, code=422),
            post(flunder("m", metadata={"managedFields": [{}]})),
            post(flunder("n", metadata={"annotations": {"a b": "c"}})),
            post(flunder("o", metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a"}]})),
            post(flunder("p", metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "1"}]})),
            post(flunder("q", metadata={"deletionTimestamp": "2000-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5})),
            delete("w", {"kind": "Flunder", "apiVersion": "wardle.example.com/v1alpha1"}, differs=WORDS),
            delete("w", "{", differs=WORDS),
            delete("w", {"propagationPolicy": "x"}),
            delete("w", {"gracePeriodSeconds": -1}),
            delete("w", {"preconditions": {"resourceVersion": "1"}}),
            delete("w?propagationPolicy=Orphan", {"propagationPolicy": "Foreground"}),
            delete("w?propagationPolicy=Background"),
            delete("w?orphanDependents=true"),
        ),
    ),
    Case(
        "more-apply",
        (
            patch("s?fieldManager=a", "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: s}\n", APPLY),
            patch(
                "s?fieldManager=a&fieldValidation=Strict",
                "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata:\n  name: s\n  name: s\n",
                APPLY,
                differs=WORDS,
            ),
            patch(
                "s?fieldManager=a",
                flunder("s", metadata={"labels": {"x": "1"}, "finalizers": ["a.b/c", "a.b/c"]}),
                APPLY,
                differs=UNKNOWN_IN_APPLY,
                code=422,
            ),
            patch("s?fieldManager=a", flunder("s", metadata={"labels": {"x": "1"}, "finalizers": ["a.b/c"]}), APPLY),
            patch("s?fieldManager=b", flunder("s", metadata={"labels": {"x": "1"}, "finalizers": ["a.b/d"]}), APPLY),
            patch("s?fieldManager=a", flunder("s"), APPLY),
            patch("s?fieldManager=c", {"metadata": {"labels": {"x": "2"}}}),
            patch("s?fieldManager=b", flunder("s", metadata={"labels": {"x": "1"}}), APPLY),
            patch("s?fieldManager=b&force=true", flunder("s", metadata={"labels": {"x": "1"}}), APPLY),
            patch("s?fieldManager=b&force=x", flunder("s", metadata={"labels": {"x": "3"}}), APPLY),
            patch("s?fieldManager=b", {"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder"}, APPLY),
            patch("s?fieldManager=b", {"kind": "Flunder"}, APPLY),
            patch("s?fieldManager=b", "a: [", APPLY, differs=WORDS),
            patch("s?fieldManager=b", "", APPLY),
            patch("s?fieldManager=b", flunder("s", metadata={"resourceVersion": "1"}), APPLY),
            patch("s?fieldManager=b", flunder("s", metadata={"namespace": "other"}), APPLY),
            patch("s?fieldManager=b", {**flunder("s"), "kind": "Fischer"}, APPLY),
            patch("s?fieldManager=d", {"metadata": {"managedFields": [{}]}}),
            patch("s?fieldManager=e", flunder("s", metadata={"labels": {"y": "1"}}), APPLY),
            get("s"),
        ),
    ),
    Case(
        "more-forms",
        (
            post(flunder("a", metadata={"labels": {"l": "1"}}), content_type="application/json; charset=utf-8", save="a"),
            post(flunder("b"), content_type=""),
            post(flunder("b1"), content_type="application/json;"),
            post(flunder("b2"), content_type="application/merge-patch+json", differs=JSON_ALONE),
            post(
                "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\n"
                "metadata:\n  name: yaml\n  annotations: {a: 'on', when: '2001-01-01'}\n",
                content_type="application/yaml",
            ),
            post(
                "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: y}\n",
                content_type="application/yaml",
                differs=SHAPE,
                code=422,
            ),
            post("", differs=WORDS),
            post("null", differs=NO_OBJECT, code=400),
            post("5", differs=WORDS),
            post(flunder("c", metadata={"labels": "x"}), differs=SHAPE, code=422),
            post(flunder("c", metadata={"labels": {"a": None}})),
            post(flunder("d", metadata={"labels": None, "annotations": None, "finalizers": None})),
            post(flunder("e", metadata={"finalizers": [5]}), differs=SHAPE, code=422),
            post({**flunder("f"), "spec": None}),
            post({**flunder("g"), "spec": {"reference": 5}}, differs=SHAPE, code=422),
            post({**flunder("h"), "extra": {"x": 1}}),
            post({**flunder("i"), "status": {"x": 1}}),
            post(flunder("j", metadata={"extra": 1, "generation": "x"}), differs=SHAPE, code=422),
            post({**flunder("k"), "Spec": {"Reference": "x"}}),
            post(flunder("l", metadata={"name": "l", "namespace": ""})),
            get("a?includeObject=Object", accept=TABLE, beside=COLUMNS),
            get("a", accept=f"{TABLE},application/json", beside=COLUMNS),
            get("a", accept="application/json;as=Nothing;g=meta.k8s.io;v=v1", differs=WORDS),
            get("a", accept="application/json;as=Nothing;g=meta.k8s.io;v=v1,application/json"),
            get("a", accept="application/json;as=Table;v=v9;g=meta.k8s.io,application/json"),
            get("a", accept=PARTIAL_LIST, differs=WORDS),
            get("a", accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"),
            get("a", accept="application/json;q=0.1,application/yaml;q=0.9"),
            get("a", accept="application/*", differs=RANGES, code=200),
            get("a", accept="*/*;q=0", differs=RANGES, code=406),
            get("a", accept=""),
            get("a", accept="nonsense", differs=JSON_ALONE),
            get("a?pretty=true", accept="application/yaml"),
            get("a?fieldSelector=metadata.name%3Dzzz&labelSelector=x"),
            get("a?resourceVersion=99999999999"),
            get("a?resourceVersion=0"),
            get("a?watch=1", accept="application/json"),
            get("?watch=1&timeoutSeconds=1&resourceVersion={a.rv}&labelSelector=l", accept=PARTIAL),
            get("/apis/", beside=NO_ADDRESS),
            get(f"/apis/{GROUP}/"),
            get(f"/apis/{GROUP}/v1alpha1/"),
            get(f"/apis/{GROUP}/v1alpha1/namespaces/more-forms"),
            get(f"/apis/{GROUP}/v1alpha1/namespaces"),
            get(f"/apis/{GROUP}/v1alpha1/flunders/a"),
            get(f"/apis/{GROUP}/v1alpha1/namespaces/more-forms/flunders/"),
            get(f"/apis/{GROUP}/v1alpha1/namespaces/more-forms/flunders/a/"),
            get(f"/apis/{GROUP}/v1alpha1/namespaces/more-forms/flunders/a/status/x"),
            get(f"/apis/{GROUP}/v1alpha1/watch/namespaces/more-forms/flunders/a?timeoutSeconds=1"),
            get(f"/apis/{GROUP}/v1alpha1/watch/flunders?timeoutSeconds=1&fieldSelector=metadata.namespace%3Dmore-forms"),
            Step("HEAD", "/healthz"),
            Step("POST", "/healthz", {}, differs=ONLY_READ, code=405),
            Step("PUT", f"/apis/{GROUP}/v1alpha1", {}),
            Step("DELETE", "/apis"),
            get("/readyz/nosuch", beside=OWN_PATHS),
            get("/livez?exclude=ping"),
            get(f"/apis/{GROUP}/v1alpha1", accept="application/yaml", beside={"header content-type": JSON_DISCOVERY}),
            get(f"/apis/{GROUP}/v1alpha1", accept="text/html", differs=JSON_DISCOVERY, code=200),
            put("a/status", flunder("a")),
            patch("a/status", {"status": {"x": 1}}),
            patch("a/status?fieldManager=s", {**flunder("a"), "status": {}}, APPLY),
            delete("a/status"),
            post({}, "a/nosuch"),
        ),
    ),
    Case(
        "more-watches",
        (
            post(flunder("a", metadata={"labels": {"x": "1"}}), save="a"),
            patch("a", {"metadata": {"labels": {"x": None, "y": "1"}}}),
            patch("a", {"spec": {"reference": "s"}}),
            patch("a", {"metadata": {"labels": {"x": "2"}}}),
            patch("a", {"metadata": {"labels": {"x": "3"}}}, save="b"),
            post(flunder("f", metadata={"finalizers": ["a.b/c"], "labels": {"x": "1"}})),
            patch("a?dryRun=All", {"metadata": {"labels": {"x": "4"}}}),
            patch("a", {"metadata": {"labels": {"x": "3"}}}),
            delete("f"),
            delete("f"),
            patch("f", {"metadata": {"finalizers": None}}),
            delete("a"),
            get("?watch=1&timeoutSeconds=1&resourceVersion={a.rv}"),
            get("?watch=1&timeoutSeconds=1&resourceVersion={a.rv}&labelSelector=x"),
            get("?watch=1&timeoutSeconds=1&resourceVersion={a.rv}&labelSelector=x%3D2"),
            get("?watch=1&timeoutSeconds=1&resourceVersion={a.rv}&labelSelector=!x"),
            get("?watch=1&timeoutSeconds=1&resourceVersion={a.rv}&fieldSelector=metadata.name%3Df"),
            get("?watch=1&timeoutSeconds=1&resourceVersion={b.rv}&fieldSelector=metadata.name!%3Df"),
            get("?watch=1&timeoutSeconds=1&resourceVersion={b.rv}", accept=PARTIAL),
            get("?watch=1&timeoutSeconds=1&resourceVersion=99999999999"),
            get("?watch=1&timeoutSeconds=1"),
            get("?watch=true&timeoutSeconds=1&limit=1&resourceVersion={b.rv}&labelSelector=x%3D3"),
        ),
    ),
    Case(
        "status",
        (
            post(flunder("s"), save="a"),
            get("s/status"),
            put("s/status", {**flunder("s", metadata={"resourceVersion": "{a.rv}"}, spec={"reference": "zzz"}), "status": {}}),
            patch("s/status", {"metadata": {"labels": {"a": "b"}}}),
            get("s/nosuch"),
            post({}, "s/status"),
            delete("s/status"),
        ),
    ),
    Case(
        "methods",
        (
            Step("POST", "x", {}),
            Step("PUT", "", {}),
            Step("PATCH", "", {}, MERGE),
            Step("DELETE", f"/apis/{GROUP}/v1alpha1/flunders"),
            Step("HEAD", "x"),
            Step("OPTIONS", "x"),
            get(f"/apis/{GROUP}/v1alpha1/namespaces/methods/nosuch"),
            get("/nosuch", beside=OWN_PATHS),
            get(f"/apis/{GROUP}/v9"),
            get(f"/apis/{GROUP}/v1alpha1/flunders?limit=1&labelSelector=nosuch"),
            get(f"/apis/{GROUP}/v1alpha1/watch/namespaces/methods/flunders?timeoutSeconds=1"),
            get("?timeout=abc"),
        ),
    ),
    Case(
        "discovery",
        (
            get("/apis", beside=NO_ADDRESS),
            get(f"/apis/{GROUP}"),
            get(f"/apis/{GROUP}/v1alpha1"),
            get(f"/apis/{GROUP}/v1beta1"),
            get("/apis", accept=AGGREGATED, beside=RESPONSE_KIND),
            get(
                "/apis",
                accept="application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
                beside=NO_ADDRESS,
            ),
            get("/api", beside=OWN_PATHS),
            get("/healthz"),
            get("/livez"),
            get("/readyz"),
            get("/livez/ping"),
            get("/readyz?exclude=x"),
        ),
    ),
    Case(
        "versions",
        (
            Step(
                "POST",
                f"/apis/{GROUP}/v1beta1/namespaces/versions/flunders",
                {
                    "apiVersion": f"{GROUP}/v1beta1",
                    "kind": "Flunder",
                    "metadata": {"name": "a"},
                    "spec": {"flunderReference": "r", "referenceType": "Flunder"},
                },
            ),
            get("a"),
            get(f"/apis/{GROUP}/v1beta1/namespaces/versions/flunders/a"),
            patch("a?fieldManager=x", {"spec": {"reference": "s"}}),
            get(f"/apis/{GROUP}/v1beta1/namespaces/versions/flunders"),
            patch("a?fieldManager=m&force=true", flunder("a", spec={"reference": "t", "referenceType": "Flunder"}), APPLY),
            Step(
                "PATCH",
                f"/apis/{GROUP}/v1beta1/namespaces/versions/flunders/a?fieldManager=m",
                {
                    "apiVersion": f"{GROUP}/v1beta1",
                    "kind": "Flunder",
                    "metadata": {"name": "a"},
                    "spec": {"flunderReference": "t", "referenceType": "Flunder"},
                },
                APPLY,
            ),
        ),
    ),
)
