from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

API = "/apis/kubevirt.io/v1alpha1"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "QUERY")
SEGMENTS = (
    "apis",
    "api",
    "kubevirt.io",
    "v1alpha1",
    "v9",
    "namespaces",
    "default",
    "virtualmachines",
    "migrations",
    "vm1",
    "nope",
    "status",
    "scale",
    "start",
    "stop",
    "migrate",
    "console",
    "vnc",
    "watch",
    "openapi",
    "v2",
    "v3",
    "healthz",
    "livez",
    "readyz",
    "metrics",
    "version",
    "debug",
    "..",
    ".",
    "",
    "%2e%2e",
    "%00",
    "a" * 300,
)
PATHS = (
    f"{API}/virtualmachines",
    f"{API}/migrations",
    f"{API}/namespaces/default/virtualmachines",
    f"{API}/namespaces/default/migrations",
    f"{API}/namespaces/default/virtualmachines/vm1",
    f"{API}/namespaces/default/virtualmachines/vm1/status",
    f"{API}/namespaces/default/virtualmachines/vm1/start",
    f"{API}/namespaces/default/virtualmachines/vm1/console",
    f"{API}/namespaces/default/migrations/m1",
    f"{API}/watch/virtualmachines",
    "/apis",
    "/openapi/v3",
    "/openapi/v2",
    "/metrics",
    "/readyz",
)
PARAMETERS = (
    "watch",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "labelSelector",
    "fieldSelector",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "timeout",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "propagationPolicy",
    "orphanDependents",
    "gracePeriodSeconds",
    "includeObject",
    "pretty",
    "verbose",
    "exclude",
    "hash",
    "as",
    "shardSelector",
    "uid",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
)
VALUES = (
    "",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2",
    "99999999999999999999",
    "1e9",
    "abc",
    "All",
    "Strict",
    "Exact",
    "NotOlderThan",
    "Foreground",
    "a=b",
    "a in (b,c)",
    "!a",
    "a>1",
    "metadata.name=vm1",
    "status.phase=Running",
    "spec.x=1",
    "\\",
    ",",
    "=",
    "Object",
    "None",
    "5s",
    "1h",
    "é",
    "\x01",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0",
)
HEADERS = {
    "Accept": (
        "*/*",
        "application/json",
        "application/yaml",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "text/html",
        "application/cbor",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "application/vnd.kubernetes.protobuf",
        ";;;q=x",
        "a/b;q=9",
        "é",
    ),
    "Content-Type": (
        "application/json",
        "application/yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "text/plain",
        "",
        ";",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ),
    "Content-Encoding": ("gzip", "br"),
    "Accept-Encoding": ("gzip", "*", "identity;q=0"),
    "Impersonate-User": ("u", "", "system:admin"),
    "Impersonate-Group": ("g", "system:masters"),
    "X-Remote-User": ("admin",),
    "Authorization": ("Bearer x", "Basic eDp4", "Bearer", ""),
    "If-None-Match": ('"x"', "*", "x"),
    "Audit-Id": ("a" * 500, "x", "é"),
    "Expect": ("100-continue", "x"),
    "Upgrade": ("websocket", "SPDY/3.1", "h2c"),
    "Connection": ("Upgrade", "close", "keep-alive, Upgrade", "x"),
    "Sec-WebSocket-Key": ("x3JJHMbDL1EzLkh9GBhXDw==", "x"),
    "Sec-WebSocket-Version": ("13", "99", "x"),
    "Range": ("bytes=0-1",),
    "traceparent": ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x"),
}
VM = {
    "apiVersion": "kubevirt.io/v1alpha1",
    "kind": "VirtualMachine",
    "metadata": {
        "name": "vm1",
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
        "resourceVersion": "1",
        "finalizers": ["kubevirt.io/x"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True, "blockOwnerDeletion": True}],
        "managedFields": [
            {
                "manager": "m",
                "operation": "Apply",
                "apiVersion": "kubevirt.io/v1alpha1",
                "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:runStrategy": {}}},
            }
        ],
    },
    "spec": {"runStrategy": "Halted", "domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "d", "type": "Image"}]}}},
}
MIGRATION = {
    "apiVersion": "kubevirt.io/v1alpha1",
    "kind": "Migration",
    "metadata": {"generateName": "m-"},
    "spec": {"selector": {"name": "vm1"}},
}
DELETE_OPTIONS = {
    "apiVersion": "v1",
    "kind": "DeleteOptions",
    "preconditions": {"uid": "u", "resourceVersion": "1"},
    "propagationPolicy": "Orphan",
    "gracePeriodSeconds": 0,
    "dryRun": ["All"],
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@dataclass(frozen=True)
class Sent:
    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@st.composite
def altered(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        rest = {name: each for name, each in value.items() if name != key}
        match draw(st.integers(0, 5)):
            case 0:
                return rest
            case 1:
                return {**value, draw(st.text(max_size=12)): draw(JSON)}
            case _:
                return {**rest, key: draw(altered(value[key]))}
    if isinstance(value, list) and value and draw(st.booleans()):
        return [draw(altered(value[0])), *value]
    return draw(JSON | st.just(value))


PATCHES = st.one_of(
    altered({"metadata": {"labels": {"x": "y"}}, "spec": {"domain": {"memory": {"guest": "128Mi"}}}}),
    st.lists(
        st.fixed_dictionaries(
            {
                "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]),
                "path": st.sampled_from(["/spec", "/metadata/labels/a", "/x/-", "", "/spec/domain/devices/disks/0", "/~", "a"])
                | st.text(max_size=8),
            },
            optional={"value": JSON, "from": st.sampled_from(["/spec", "/metadata", "", "/x"])},
        ),
        max_size=4,
    ),
)
BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=60),
    st.sampled_from([VM, MIGRATION, DELETE_OPTIONS]).flatmap(altered).map(lambda value: json.dumps(value).encode()),
    PATCHES.map(lambda value: json.dumps(value).encode()),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.sampled_from(
        [
            b"{" * 5000,
            b"[" * 100_000,
            b'{"a":1,"a":2}',
            b"\xff\xfe{}",
            b"a: &a [*a]",
            b"- !!python/object:os.system x",
            b'"' + b"x" * 70_000 + b'"',
            b'{"kind":"DeleteOptions","preconditions":{"uid":1}}',
            b"1e400",
            b'{"metadata":{"name":"\\ud800"}}',
        ]
    ),
)


@st.composite
def requests(draw: st.DrawFn) -> Sent:
    path = draw(
        st.sampled_from(PATHS) | st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=8).map(lambda parts: "/" + "/".join(parts))
    )
    names = draw(st.lists(st.sampled_from(PARAMETERS), max_size=4))
    query = [f"{name}={quote(draw(st.sampled_from(VALUES)))}" for name in names]
    if any(name in {"watch", "sendInitialEvents"} for name in names) or "/watch/" in path:
        query.append("timeoutSeconds=1")
    headers = {}
    for name in draw(st.lists(st.sampled_from(sorted(HEADERS)), max_size=4, unique=True)):
        headers[name] = draw(st.sampled_from(HEADERS[name]))
    return Sent(draw(st.sampled_from(METHODS)), path + ("?" + "&".join(query) if query else ""), headers, draw(BODIES))
