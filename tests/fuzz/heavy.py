"""Bodies within the limit of 3 MiB with superlinear cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tests.fuzz.requests import API, Sent

_PATH: Final = f"{API}/namespaces/default/virtualmachines"
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_APPLY: Final = "application/apply-patch+yaml"
_LONG: Final = "k" * 1_000_000


def _machine(name: str = "heavy", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more.pop("metadata", {})}
    spec = {"runStrategy": "Halted", "domain": {"memory": {"guest": "64Mi"}}, **more.pop("spec", {})}
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": metadata, "spec": spec, **more}


def _owners(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": f"u{number}", **more} for number in range(count)]


def _numbered(count: int, value: Any = 1, start: str = "f", end: str = "") -> dict[str, Any]:
    return {f"{start}{number}{end}": value for number in range(count)}


def _objects() -> Iterator[tuple[str, Any]]:
    yield "owners", _machine(metadata={"ownerReferences": _owners(20_000)})
    yield "owners without anything", _machine(metadata={"ownerReferences": [{"uid": str(number)} for number in range(60_000)]})
    yield "controllers", _machine(metadata={"ownerReferences": _owners(20_000, controller=True)})
    yield "finalizers", _machine(metadata={"finalizers": list(_numbered(100_000, start="a.b/c"))})
    yield "wrong finalizers", _machine(metadata={"finalizers": list(_numbered(100_000, end=" "))})
    yield "labels", _machine(metadata={"labels": _numbered(100_000, "x")})
    yield "wrong labels", _machine(metadata={"labels": _numbered(100_000, " x", end=" ")})
    yield "annotations", _machine(metadata={"annotations": _numbered(100_000, "x", end=" ")})
    yield "unknown fields", _machine(**_numbered(100_000))
    yield "unknown fields of metadata", _machine(metadata=_numbered(100_000))
    yield "wrong disks", _machine(spec={"domain": {"devices": {"disks": [{"name": 5, "nope": 1}] * 50_000}}})
    yield "a long key over values and a null", _machine(spec={_LONG: {**_numbered(100_000, [1]), "none": None}})


def _patches() -> Iterator[tuple[str, str, Any]]:
    for kind in (_MERGE, _STRATEGIC):
        yield "owners", kind, {"metadata": {"ownerReferences": _owners(20_000)}}
        yield "finalizers", kind, {"metadata": {"finalizers": list(_numbered(80_000, start="a.b/c"))}}
    order = [{"uid": f"u{number}"} for number in reversed(range(20_000))]
    yield "an order", _STRATEGIC, {"metadata": {"$setElementOrder/ownerReferences": order, "ownerReferences": _owners(20_000)}}
    gone = list(_numbered(40_000, start="a.b/c"))
    yield "deleted values", _STRATEGIC, {"metadata": {"$deleteFromPrimitiveList/finalizers": gone, "finalizers": gone}}
    yield "tests", _JSON_PATCH, [{"op": "test", "path": "/spec/domain/memory", "value": {"guest": "64Mi"}}] * 10_000
    first = {"op": "add", "path": "/metadata/finalizers", "value": []}
    adds = [{"op": "add", "path": "/metadata/finalizers/0", "value": f"a.b/{number}"} for number in range(9_999)]
    yield "additions", _JSON_PATCH, [first, *adds]
    yield "unknown members", _JSON_PATCH, [{"op": "test", "path": "/kind", "value": "VirtualMachine", **_numbered(100_000)}]


def requests() -> Iterator[tuple[str, Sent]]:
    for what, obj in _objects():
        for name, query in (("created", ""), ("created strictly", "?fieldValidation=Strict")):
            made = {**obj, "metadata": {**obj["metadata"], "name": "other"}}
            yield f"{what}, {name}", _sent("POST", query, made, "application/json")
        yield f"{what}, applied", _sent("PATCH", "/heavy?fieldManager=fuzz&force=true", obj, _APPLY)
    for what, kind, patch in _patches():
        yield f"{what}, {kind}", _sent("PATCH", "/heavy", patch, kind)
    twice = ",".join(f'"f{number}":1,"f{number}":2' for number in range(60_000))
    yield "keys given twice", _sent("POST", "", f'{{"kind":"VirtualMachine",{twice}}}', "application/json")
    under = ",".join(f'"f{number}":1' for number in range(100_000))
    yield "a long key over a key given twice", _sent("POST", "", f'{{"{_LONG}":{{{under},"f0":2}}}}', "application/json")
    merged = "a: {" + under.replace(":", ": ") + "}\nb:\n" + "".join(f"  {number}: {{}}\n" for number in range(20_000))
    yield "many maps of YAML", _sent("POST", "", merged, "application/yaml")
    deep = '{"a":' * 30_000 + "1" + "}" * 30_000
    yield "a deep object", _sent("PATCH", "/heavy", deep, _MERGE)
    yield "a long precondition", _sent("DELETE", "/heavy", {"preconditions": {"uid": _LONG}}, "application/json")


def _sent(method: str, below: str, body: Any, content_type: str) -> Sent:
    raw = (body if isinstance(body, str) else json.dumps(body, separators=(",", ":"))).encode()
    return Sent(method, _PATH + below, {"Content-Type": content_type}, raw)


HEAVY: Final = _machine()
CREATE: Final = _sent("POST", "", HEAVY, "application/json")
