from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from apiserver.apis.meta import json_patch, merge_patch, strategic_patch, times
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.managedfields import sets
from apiserver.apis.meta.managedfields.elements import to_json
from apiserver.apis.meta.managedfields.lastapplied import ANNOTATION
from apiserver.apis.meta.managedfields.removing import fields_of
from apiserver.apis.meta.managedfields.schema import Atom
from tests.reference_library import kinds
from tests.reference_library.compare import Both, Difference, Json, Side, is_valid
from tests.reference_library.histories import History, Step
from tests.reference_library.program import Reference
from tests.reference_library.values import Values


class Comparison:
    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._sides = {each.name: Side(each) for each in (kinds.virtual_machines(), kinds.torture())}
        for side in self._sides.values():
            answer = reference.ask(**side.kind.registration())
            assert not answer.error, answer.error

    def versions(self) -> dict[str, list[str]]:
        return {name: side.kind.versions for name, side in self._sides.items()}

    def run(self, history: History) -> None:
        live: Json | None = None
        for number, step in enumerate(history.steps):
            live = Writing(self._reference, self._sides[history.kind], step, live, f"step {number}, {step}").result()


class Writing:
    def __init__(self, reference: Reference, side: Side, step: Step, live: Json | None, where: str) -> None:
        self._reference = reference
        self._side = side
        self._step = step
        self._where = where
        self._version = step.version or side.kind.hub
        self._api_version = side.kind.api_version(self._version)
        self._atom = side.atoms[self._api_version]
        self._random = random.Random(step.seed)
        self._values = Values(self._random)
        self._live = _aged(side.kind.convert(live, self._api_version), step.older) if live is not None else None

        self._both = Both(reference, side, self._version, self._live, where, force=step.force)

    @property
    def _object(self) -> Json:
        assert self._live is not None
        return self._live

    def _child(self, name: str) -> Atom:
        assert self._atom.map is not None
        return self._atom.map.child(name)

    def result(self) -> Json | None:
        what = self._step.what.replace("-", "_")
        act: Callable[[], Json | None] = getattr(self, "_" + what)
        if self._live is None and what not in {"create", "apply", "forget"}:
            act = self._create
        return act()

    def _fresh(self) -> Json:
        body = self._values.of(self._atom, 6)
        assert isinstance(body, dict)
        body.update(apiVersion=self._api_version, kind=self._side.kind.kind)
        body["metadata"] = {"name": "n", **self._metadata()}
        return body

    def _metadata(self) -> Json:
        assert self._atom.map is not None
        child = self._atom.map.child("metadata").map
        assert child is not None
        found = self._values.fields(child, 3)
        return {key: value for key, value in found.items() if key in {"labels", "annotations", "finalizers", "ownerReferences"}}

    def _changed(self) -> Json:
        assert self._live is not None
        body = self._values.changed(self._atom, self._live)
        assert isinstance(body, dict)
        assert self._atom.map is not None
        if self._random.random() < 0.3:
            meta = self._values.changed(self._atom.map.child("metadata"), body["metadata"])
            body["metadata"] = {**meta, **{key: value for key, value in body["metadata"].items() if key in {"name", "uid"}}}
        return body

    def _create(self) -> Json | None:
        return self._both.update(self._fresh(), self._step.by, live=None)

    def _remake(self) -> Json | None:
        return self._create()

    def _forget(self) -> Json | None:
        body = self._fresh()
        body["metadata"]["uid"] = "u"
        return body

    def _update(self) -> Json | None:
        body = self._changed()
        if self._random.random() < 0.5:
            body["metadata"].pop("managedFields", None)
        return self._both.update(body, self._step.by)

    def _again(self) -> Json | None:
        return self._both.update(copy.deepcopy(self._object), self._step.by)

    def _reset(self) -> Json | None:
        body = self._changed()
        body["metadata"]["managedFields"] = self._random.choice(([], [{}]))
        return self._both.update(body, self._step.by)

    def _forge(self) -> Json | None:
        body = self._changed() if self._random.random() < 0.5 else copy.deepcopy(self._object)
        entries = [each for each in body["metadata"].get("managedFields") or [] if self._random.random() < 0.7]
        entries.append(self._forged())
        self._random.shuffle(entries)
        body["metadata"]["managedFields"] = entries
        return self._both.update(body, self._step.by)

    def _forged(self) -> Json:
        choice = self._random.choice
        api_version = choice((*self._side.atoms, "none/v0"))
        atom = self._side.atoms.get(api_version, self._atom)
        fields: Any = copy.deepcopy(fields_of(atom, self._values.of(atom, 6)))
        if self._random.random() < 0.5:
            fields = sets.union(fields, _below_atomic(self._random))
        if self._random.random() < 0.15:
            fields = {**fields, choice(("f:spec", "k:{}", "x:later", "bad", "v:[", 'k:{"b":1,"a":2}', "i:3", "v:1.0")): {}}
        entry: Json = {
            "manager": choice(("forger", "a", "kubectl")),
            "operation": choice(("Apply", "Update", "Update", "Other") if self._random.random() < 0.2 else ("Apply", "Update")),
            "apiVersion": api_version,
            "fieldsType": "FieldsV1" if self._random.random() < 0.95 else choice(("", "FieldsV2")),
            "fieldsV1": fields,
        }
        if self._random.random() < 0.8:
            entry["time"] = choice(("2020-01-01T00:00:00Z", "2020-01-01T02:00:00+02:00", "2021-06-01T00:00:00Z"))
        if self._random.random() < 0.2:
            entry["subresource"] = "status"
        return {key: value for key, value in entry.items() if value != ""}

    def _annotate(self) -> Json | None:
        body = self._changed()
        body["metadata"].pop("managedFields", None)
        if not is_valid(self._atom, body):
            return self._live
        applied = self._values.part(self._atom, {key: value for key, value in body.items() if key != "status"})
        applied.update(apiVersion=self._api_version, kind=self._side.kind.kind, metadata={"name": "n"})
        annotations = body["metadata"].get("annotations") or {}
        body["metadata"]["annotations"] = {**annotations, ANNOTATION: to_json(applied) + "\n"}
        return self._both.update(body, "kubectl-client-side-apply")

    def _merge_patch(self) -> Json | None:
        return self._patched("merge-patch", self._partial(), merge_patch.apply)

    def _strategic_patch(self) -> Json | None:
        kind = self._side.kind
        shape = strategic_patch.Shape(kind.schemas[kind.components[self._version]], kind.schemas)
        patch = self._partial()
        return self._patched("strategic-patch", patch, lambda live, patch: strategic_patch.apply(live, patch, shape), strict_order=False)

    def _strategic_diff(self) -> Json | None:
        kind = self._side.kind
        component = kind.components[self._version]
        changed = self._changed()
        answer = self._reference.ask(op="strategic-diff", schema=kind.name, by=component, live=self._object, new=changed)
        if answer.error or not answer.object:
            return self._live
        shape = strategic_patch.Shape(kind.schemas[component], kind.schemas)
        return self._patched(
            "strategic-patch", answer.object, lambda live, patch: strategic_patch.apply(live, patch, shape), strict_order=False
        )

    def _json_patch(self) -> Json | None:
        target = {key: value for key, value in self._changed().items() if key in {"spec", "status"}}
        operations = [{"op": "add", "path": f"/{key}", "value": value} for key, value in target.items()]
        if isinstance(spec := self._object.get("spec"), dict):
            operations += [{"op": "remove", "path": f"/spec/{key}"} for key in list(spec)[:1] if "spec" not in target]
        return self._patched("json-patch", operations, json_patch.apply)

    def _partial(self) -> Json:
        changed = self._changed()
        if not is_valid(self._atom, changed):
            changed = self._object
        patch: Json = {key: self._values.part(self._child(key), changed[key]) for key in ("spec", "status") if key in changed}
        for part in patch.values():
            if isinstance(part, dict) and part and self._random.random() < 0.4:
                part[self._random.choice(list(part))] = None
        return patch

    def _patched(self, op: str, patch: Any, ours: Callable[[Json, Any], Any], *, strict_order: bool = True) -> Json | None:
        live = copy.deepcopy(self._object)
        kind = self._side.kind
        answer = self._reference.ask(op=op, schema=kind.name, by=kind.components[self._version], live=live, patch=patch)
        try:
            result = ours(live, copy.deepcopy(patch))
        except StatusError as error:
            if not answer.error:
                raise Difference(f"{self._where}: {op} {patch}: we refuse it: {error}") from error
            return self._live
        if answer.error.startswith("unable to find api field") or "does not contain declared merge key" in answer.error:
            # Unlike ours, Go does not merge maps with fields outside the schema, nor lists with an existing element without a key.
            return self._live
        if answer.error:
            raise Difference(f"{self._where}: {op} {json.dumps(patch)} of {json.dumps(live)}: Go refuses it: {answer.error}")
        if result != answer.object and (strict_order or _unordered(result) != _unordered(answer.object)):
            both = f"ours {json.dumps(result)}\nGo's {json.dumps(answer.object)}"
            raise Difference(f"{self._where}: {op} {json.dumps(patch)} of\n{json.dumps(live)}\n{both}")
        if not is_valid(self._atom, result):
            return self._live
        return self._both.update(copy.deepcopy(result), self._step.by)

    def _status_update(self) -> Json | None:
        return self._both.update(self._changed(), self._step.by, subresource="status")

    def _status_apply(self) -> Json | None:
        body = self._fresh()
        if self._random.random() < 0.6:
            body.pop("spec", None)
        return self._both.apply(body, self._step.by, subresource="status")

    def _apply(self) -> Json | None:
        return self._both.apply(self._fresh(), self._step.by)

    def _apply_part(self) -> Json | None:
        source: Json = self._changed() if self._random.random() < 0.5 else copy.deepcopy(self._object)
        if not is_valid(self._atom, source):
            return self._live
        body: Json = {key: self._values.part(self._child(key), source[key]) for key in ("spec", "status") if key in source}
        body = {"apiVersion": self._api_version, "kind": self._side.kind.kind, "metadata": {"name": "n", **self._metadata()}, **body}
        return self._both.apply(_without_duplicates(self._atom, body), self._step.by)

    def _invalid(self) -> Json | None:
        """Apply an object with one error; return the object afterwards."""
        body = self._fresh()
        spec = body.setdefault("spec", {})
        choice = self._random.randrange(7)
        named = self._atom.map.child("spec").map if self._atom.map else None
        assert named is not None
        scalars = [name for name, atom in named.fields.items() if atom.single and atom.scalar in {"numeric", "boolean", "string"}]
        if choice == 0:
            spec.clear()
            spec["nonsense"] = 1
        elif choice == 1 and scalars:
            spec[self._random.choice(scalars)] = self._random.choice(({"a": 1}, ["x"], {"b": [1, None]}))
        elif choice == 2 and scalars:
            spec[self._random.choice(scalars)] = None
        elif choice == 3:
            body["kind"] = "Else"
        elif choice == 4:
            body["metadata"]["managedFields"] = self._random.choice(([], None, [{"manager": "a"}]))
        elif choice == 5:
            body["metadata"]["finalizers"] = ["a", "a"]
        else:
            body["spec"] = self._random.choice(("text", 5, ["x"], None))
        return self._both.apply(body, self._step.by)


def _aged(obj: Json, seconds: int) -> Json:
    result = copy.deepcopy(obj)
    for entry in result["metadata"].get("managedFields") or ():
        if "time" in entry and seconds:
            entry["time"] = times.to_rfc3339(times.parse(entry["time"]) - timedelta(seconds=seconds))
    return result


def _below_atomic(source: random.Random) -> Json:
    """Return random ``fieldsV1`` of an older schema: fields below one that is atomic or absent today."""
    return source.choice(
        (
            {"f:spec": {"f:atomic": {"f:a": {}}}},
            {"f:spec": {"f:order": {'v:"a"': {}}}},
            {"f:spec": {"f:whole": {".": {}, "f:pair": {"f:x": {}}}}},
            {"f:spec": {"f:unsaid": {}, "f:removed": {"f:x": {}}}},
            {"f:metadata": {"f:ownerReferences": {".": {}, 'k:{"uid":"a"}': {".": {}, "f:name": {}}}}},
            {"f:spec": {"f:any": {"f:a": {"f:b": {}}}, "f:raw": {"f:c": {"f:d": {}}}}},
        )
    )


def _without_duplicates(atom: Atom, value: Any) -> Any:
    if isinstance(value, dict) and atom.map is not None:
        return {name: _without_duplicates(atom.map.child(name), each) for name, each in value.items()}
    if isinstance(value, list) and atom.list is not None and atom.list.associative:
        unique = {atom.list.step_to(each): each for each in value}
        return [_without_duplicates(atom.list.element, each) for each in unique.values()]
    return value


def _unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unordered(each) for key, each in value.items() if each is not None}
    return (
        sorted((_unordered(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
        if isinstance(value, list)
        else value
    )
