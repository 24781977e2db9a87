"""Rare or wrong requests to both servers, in addition to :mod:`tests.reference_server.rows`."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from tests.reference_server.rows import (
    APPLY,
    BOOKMARKS,
    FIELDS,
    GROUP,
    JSON_PATCH,
    MERGE,
    SHAPE,
    STRATEGIC,
    STRICT,
    TABLE,
    TWICE,
    WORDS,
    Case,
    delete,
    flunder,
    get,
    patch,
    post,
    put,
)

_NOBODY: Final = "00000000-0000-0000-0000-000000000000"
_API: Final = f"/apis/{GROUP}/v1alpha1"
_FISCHERS: Final = f"{_API}/fischers"
_QUERY_COUNTS: Final = "a delete whose body says nothing is read from the query, so that ?dryRun=All spares the object"
_SAFE_PATHS: Final = "Go answers 500 for a client's mistake"
_ONLY_ALL: Final = "a collection in all namespaces is only read, however its path is written"
_NO_WARNING: Final = {
    "only the reference: header warning": "a patch that is refused for its version is not held against the fields of none"
}
_NO_CELLS: Final = "bookmarks have no cells, so that the columns come with the first object"
_TABLE_BOOKMARKS: Final = {
    "events.object.columnDefinitions": _NO_CELLS,
    "only the reference: events.object.rows.cells.more": _NO_CELLS,
    "only ours: events.more.BOOKMARK": BOOKMARKS["only ours: events.more.BOOKMARK"],
}
_YAML: Final = "application/yaml"
_HEAD: Final = f"apiVersion: {GROUP}/v1alpha1\nkind: Flunder\n"


def _fischer(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Fischer", "metadata": {"name": name, **metadata}}


def _token(revision: int, start: str) -> str:
    raw = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _managed(**more: Any) -> dict[str, Any]:
    entry = {"manager": "x", "operation": "Update", "apiVersion": f"{GROUP}/v1alpha1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}
    return {"metadata": {"managedFields": [{**entry, **more}]}}


def _owned(**owner: Any) -> dict[str, Any]:
    return {"ownerReferences": [{"apiVersion": "v1", "kind": "k", "name": "n", "uid": "u", **owner}]}


CORNERS: Final = (
    Case(
        "del-preconditions",
        (
            post(flunder("a"), save="a"),
            delete(f"a?uid={_NOBODY}"),
            delete("a?resourceVersion=1"),
            delete("a", {"preconditions": {"uid": ""}}),
            delete("a", {"preconditions": {"resourceVersion": ""}}),
            delete(f"?uid={_NOBODY}"),
            delete("?resourceVersion=0"),
            get("a"),
            delete("a?propagationPolicy="),
            delete("a", {"propagationPolicy": ""}),
            delete("a?gracePeriodSeconds=", differs=WORDS),
            delete("a?dryRun=All", {}),
            get("a", differs=_QUERY_COUNTS, code=200),
            post(flunder("b"), save="b"),
            delete("b?uid=&resourceVersion="),
            post(flunder("c")),
            delete("c", "null"),
        ),
    ),
    Case(
        "del-times",
        (
            post(flunder("a", metadata={"finalizers": ["a.b/c"]})),
            delete("a"),
            patch("a", {"metadata": {"deletionTimestamp": None}}),
            patch("a", {"metadata": {"deletionGracePeriodSeconds": 5}}),
            put("a", flunder("a", metadata={"finalizers": [], "deletionTimestamp": "2001-01-01T00:00:00.000+00:00"})),
            post(flunder("b")),
            patch("b", {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}),
        ),
    ),
    Case(
        "cre-cluster",
        (
            post(_fischer("a", namespace="default"), _FISCHERS),
            post(_fischer("b", namespace=""), _FISCHERS, save="b"),
            put(f"{_FISCHERS}/b", _fischer("b", namespace="", resourceVersion="{b.rv}")),
            patch(f"{_FISCHERS}/b", {"metadata": {"namespace": "q"}}),
            patch(f"{_FISCHERS}/b?fieldManager=m", _fischer("b", namespace="q"), APPLY),
            post(_fischer("c"), f"{_API}/namespaces/cre-cluster/fischers"),
            patch(f"{_API}/namespaces/cre-cluster/fischers/c?fieldManager=m", _fischer("c"), APPLY),
            get(f"{_API}/namespaces/cre-cluster/fischers"),
            get(f"{_API}/namespaces/cre-cluster/fischers?watch=1&timeoutSeconds=1"),
            get(f"{_API}/watch/namespaces/cre-cluster/fischers?timeoutSeconds=1"),
            get(f"{_API}/namespaces/cre-cluster/fischers/b"),
            delete(f"{_API}/namespaces/cre-cluster/fischers/b"),
            delete(f"{_API}/namespaces/cre-cluster/fischers"),
            get(_FISCHERS),
            delete(_FISCHERS),
        ),
    ),
    Case(
        "pat-corners",
        (
            post(flunder("a", metadata={"labels": {"k": "v"}, "finalizers": ["a.b/c"]})),
            patch("a", {"apiVersion": None}, differs=WORDS, beside=_NO_WARNING),
            patch("a", {"metadata": {"name": None}}),
            patch("a", {"metadata": {"name": ""}}),
            patch("a", {"metadata": None}),
            patch("a", [{"op": "remove", "path": "/metadata/name"}], JSON_PATCH),
            patch("a", "null", MERGE, differs=WORDS),
            patch("a", "null", STRATEGIC),
            patch("a", "null", JSON_PATCH),
            patch("a", [{"op": "add", "path": "/metadata/labels/a"}], JSON_PATCH),
            patch("a", [{"op": "test", "path": "/nosuch"}], JSON_PATCH),
            patch("a", [{"op": "replace", "path": "/metadata/labels/a"}], JSON_PATCH),
            patch("a", [{"op": "bad", "path": "/x"}], JSON_PATCH, differs=WORDS),
            patch("a", [{"op": "add", "path": "x", "value": 1}], JSON_PATCH, differs=WORDS),
            patch("a", [{"op": "copy", "path": "/metadata/labels/z"}], JSON_PATCH, differs=WORDS),
            patch("a", [None], JSON_PATCH, differs=WORDS),
            patch("a", [1], JSON_PATCH, differs=WORDS),
            patch("a", [{"op": 5, "path": "/x"}], JSON_PATCH, differs=WORDS),
            patch("a", [{"op": "add", "path": "/metadata/labels/z", "value": "1", "extra": 1}], JSON_PATCH),
            patch(
                "a?fieldValidation=Strict",
                [{"op": "add", "path": "/metadata/labels/z", "extra": 1}],
                JSON_PATCH,
                differs=WORDS,
                beside=FIELDS,
            ),
            patch("a", '[{"op":"add","path":"/metadata/labels/z","value":"1","value":"2"}]', JSON_PATCH),
            patch("a", '{"metadata":{"labels":{"q":"1","q":"2"}}}'),
            patch("a", [{"op": "add", "path": "/metadata/finalizers/-", "value": "a.b/c"}], JSON_PATCH),
            patch("a", {"metadata": {"annotations": {"b": 5}}}, differs=WORDS, beside=FIELDS),
            put("a", flunder("a", metadata={"uid": _NOBODY}), differs=WORDS),
            get("a"),
        ),
    ),
    Case(
        "ssa-corners",
        (
            patch("a?fieldManager=m", flunder(None, metadata={"generateName": "a"}), APPLY),
            patch("a?fieldManager=m", flunder("a", metadata={"resourceVersion": "5"}), APPLY),
            patch("a?fieldManager=m", {**flunder(None, metadata={"generateName": "a"}), "spec": {}}, APPLY),
            patch("a?fieldManager=" + "%C3%A9" * 65, flunder("a"), APPLY),
            patch("a", _managed(manager="x" * 129), beside=TWICE),
            patch("a", _managed(manager="x\u0001"), beside=TWICE),
            patch("a", _managed(subresource="x" * 257), beside=TWICE),
        ),
    ),
    Case(
        "val-corners",
        (
            post(flunder("a", metadata=_owned(apiVersion="a/b/c"))),
            post(flunder("b", metadata=_owned(apiVersion="/v1", kind="Event"))),
            post(flunder("c", metadata=_owned(apiVersion="/"))),
            post(flunder("d", metadata={"finalizers": ["orphan", "orphan"]})),
            post({**flunder("e", spec={"zz": None}), "foo": None}),
            post(flunder("f", spec={"zz": None}), "?fieldValidation=Strict", differs=STRICT, code=422),
            post(flunder("g"), "?force=true"),
            put("g?force=true", flunder("g", metadata={"resourceVersion": "0"})),
            patch("g?force=true", {}),
        ),
    ),
    Case(
        "yaml-corners",
        (
            post(json.dumps(flunder("a")) + "\n---\n", content_type=_YAML),
            post(
                _HEAD + "metadata:\n  name: b\n  labels: &l\n    a: b\n    c: d\n"
                "  annotations:\n    <<: *l\n    e: f\nspec:\n  reference: r\n",
                content_type=_YAML,
            ),
            post(_HEAD + "metadata: {name: c, generation: 5.0}\n", content_type=_YAML),
            post(
                _HEAD + "metadata: {name: d, generation: 1:30}\n",
                content_type=_YAML,
                differs=SHAPE,
                code=422,
            ),
        ),
    ),
    Case(
        "lst-corners",
        (
            post(flunder("a")),
            post(flunder("b", metadata={"labels": {"l": "1"}})),
            get("?limit=1&resourceVersion=0"),
            get("?limit=1&resourceVersion=0&labelSelector=l"),
            get("?limit=1&resourceVersion=0&resourceVersionMatch=NotOlderThan"),
            get("?limit=", differs=WORDS),
            get("?timeoutSeconds=", differs=WORDS),
            get("?limit=+1", differs=WORDS),
            get("?limit=%2B1"),
            get("?limit=-1"),
            get(f"?limit=1&continue={_token(99_999_999, 'b')}"),
            get("?continue=xyz", differs=WORDS),
            get("?resourceVersion=1&resourceVersionMatch=Exact"),
            get(".."),
            get("%252e"),
            patch("..?fieldManager=m", flunder(".."), APPLY),
            get(f"{_API}/namespaces/../flunders", differs=_SAFE_PATHS, code=400),
            post(flunder("x"), f"{_API}/namespaces/../flunders", differs=_SAFE_PATHS, code=400),
            get(f"{_API}/namespaces//flunders?fieldSelector=metadata.namespace%3Dlst-corners"),
            get(f"{_API}/namespaces//flunders/?fieldSelector=metadata.name%3Dnobody"),
            get(f"{_API}/namespaces//"),
            get(f"{_API}/namespaces/lst-corners//flunders"),
            delete(f"{_API}/namespaces//flunders", differs=_ONLY_ALL, code=405),
        ),
    ),
    Case(
        "wch-corners",
        (
            get("?watch=1&allowWatchBookmarks=true&timeoutSeconds=1", beside=BOOKMARKS),
            get("?watch=1&allowWatchBookmarks=true&timeoutSeconds=1", accept=TABLE, beside=_TABLE_BOOKMARKS),
            get(f"{_API}/watch/namespaces/wch-corners/flunders/a?fieldSelector=metadata.name%3Db&timeoutSeconds=1"),
            get(f"{_API}/watch/namespaces/wch-corners/flunders/a?fieldSelector=metadata.name!%3Db&timeoutSeconds=1"),
            get(f"{_API}/watch/namespaces/wch-corners/flunders/a?fieldSelector=metadata.namespace%3Dwch-corners&timeoutSeconds=1"),
            get(f"{_API}/watch/namespaces/wch-corners/flunders/a?fieldSelector=metadata.name%3Da&timeoutSeconds=1"),
            get(f"{_API}/watch/namespaces//flunders?timeoutSeconds=1&fieldSelector=metadata.name%3Dnobody"),
        ),
    ),
)
