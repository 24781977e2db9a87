"""Runs a history on both sides."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from apiserver.apis.meta import json_patch, merge_patch, strategic_patch, times
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.managedfields import sets
from apiserver.apis.meta.managedfields.elements import to_json
from apiserver.apis.meta.managedfields.lastapplied import ANNOTATION
from apiserver.apis.meta.managedfields.manager import FieldManager
from apiserver.apis.meta.managedfields.removing import fields_of
from apiserver.apis.meta.managedfields.schema import Atom
from tests.oracle import kinds
from tests.oracle.histories import History, Step
from tests.oracle.program import Answer, Oracle
from tests.oracle.values import Values

Json = dict[str, Any]
_STATUS_IGNORES: Json = {"f:spec": {}, "f:metadata": {"f:labels": {}}}
_MAIN_IGNORES: Json = {"f:status": {}}


class Difference(AssertionError):
    """The two sides disagree."""


class _Side:
    """One kind, on our side."""

    def __init__(self, kind: kinds.Kind) -> None:
        self.kind = kind
        self.atoms: dict[str, Atom] = kind.atoms()
        self._managers: dict[tuple[str, str], FieldManager] = {}

    def manager(self, version: str, subresource: str) -> FieldManager:
        key = version, subresource
        if key not in self._managers:
            ignored = self.ignored(subresource)
            self._managers[key] = FieldManager(
                self.kind.api_version(version),
                self.kind.kind,
                self.atoms,
                subresource=subresource,
                ignored=ignored,
                convert=self.kind.convert,
            )
        return self._managers[key]

    def ignored(self, subresource: str) -> dict[str, Json]:
        return dict.fromkeys(self.atoms, _STATUS_IGNORES if subresource else _MAIN_IGNORES)


class Comparison:
    """Both sides."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._sides = {each.name: _Side(each) for each in (kinds.virtual_machines(), kinds.torture())}
        for side in self._sides.values():
            answer = oracle.ask(**side.kind.registration())
            assert not answer.error, answer.error

    def versions(self) -> dict[str, list[str]]:
        """Return the versions of each kind."""
        return {name: side.kind.versions for name, side in self._sides.items()}

    def run(self, history: History) -> None:
        """Replay a history.

        Raises:
            Difference: after some step.
        """
        live: Json | None = None
        for number, step in enumerate(history.steps):
            live = _Writing(self._oracle, self._sides[history.kind], step, live, f"step {number}, {step}").result()


class _Writing:
    """One step."""

    def __init__(self, oracle: Oracle, side: _Side, step: Step, live: Json | None, where: str) -> None:
        self._oracle = oracle
        self._side = side
        self._step = step
        self._where = where
        self._version = step.version or side.kind.hub
        self._api_version = side.kind.api_version(self._version)
        self._atom = side.atoms[self._api_version]
        self._random = random.Random(step.seed)
        self._values = Values(self._random)
        self._live = _aged(side.kind.convert(live, self._api_version), step.older) if live is not None else None

    def result(self) -> Json | None:
        what = self._step.what.replace("-", "_")
        act: Callable[[], Json | None] = getattr(self, "_" + what)
        if self._live is None and what not in {"create", "apply", "forget"}:
            act = self._create
        return act()

    # Bodies

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
        found = self._values.map(child, 3)
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

    # Steps

    def _create(self) -> Json | None:
        return self._update_to(self._fresh(), live=None)

    def _remake(self) -> Json | None:
        return self._create()

    def _forget(self) -> Json | None:
        """Nobody knows who made the object."""
        body = self._fresh()
        body["metadata"]["uid"] = "u"
        return body

    def _update(self) -> Json | None:
        body = self._changed()
        if self._random.random() < 0.5:
            body["metadata"].pop("managedFields", None)
        return self._update_to(body)

    def _again(self) -> Json | None:
        return self._update_to(copy.deepcopy(self._live) or {})

    def _reset(self) -> Json | None:
        body = self._changed()
        body["metadata"]["managedFields"] = self._random.choice(([], [{}]))
        return self._update_to(body)

    def _forge(self) -> Json | None:
        """A client rewrites managedFields itself."""
        body = self._changed() if self._random.random() < 0.5 else copy.deepcopy(self._live) or {}
        entries = [each for each in body["metadata"].get("managedFields") or [] if self._random.random() < 0.7]
        entries.append(self._forged())
        self._random.shuffle(entries)
        body["metadata"]["managedFields"] = entries
        return self._update_to(body)

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
        """Client-side apply."""
        body = self._changed()
        body["metadata"].pop("managedFields", None)
        applied = self._values.part(self._atom, {key: value for key, value in body.items() if key != "status"})
        applied.update(apiVersion=self._api_version, kind=self._side.kind.kind, metadata={"name": "n"})
        annotations = body["metadata"].setdefault("annotations", {})
        annotations[ANNOTATION] = to_json(applied) + "\n"
        return self._update_to(body, by="kubectl-client-side-apply")

    def _merge_patch(self) -> Json | None:
        return self._patched("merge-patch", self._partial(), lambda live, patch: merge_patch.apply(live, patch))

    def _strategic_patch(self) -> Json | None:
        kind = self._side.kind
        shape = strategic_patch.Shape(kind.schemas[kind.components[self._version]], kind.schemas)
        patch = self._partial()
        return self._patched("strategic-patch", patch, lambda live, patch: strategic_patch.apply(live, patch, shape), strict_order=False)

    def _json_patch(self) -> Json | None:
        target = {key: value for key, value in self._changed().items() if key in {"spec", "status"}}
        operations = [{"op": "add", "path": f"/{key}", "value": value} for key, value in target.items()]
        if isinstance(spec := (self._live or {}).get("spec"), dict):
            operations += [{"op": "remove", "path": f"/spec/{key}"} for key in list(spec)[:1] if "spec" not in target]
        return self._patched("json-patch", operations, lambda live, patch: json_patch.apply(live, patch))

    def _partial(self) -> Json:
        """Return a patch: a part of a changed object, with some nulls."""
        changed = self._changed()
        patch = {key: self._values.part(self._atom.map.child(key), changed[key]) for key in ("spec", "status") if key in changed}  # type: ignore[union-attr]
        for part in patch.values():
            if isinstance(part, dict) and part and self._random.random() < 0.4:
                part[self._random.choice(list(part))] = None
        return patch

    def _patched(self, op: str, patch: Any, ours: Callable[[Json, Any], Any], *, strict_order: bool = True) -> Json | None:
        live = copy.deepcopy(self._live) or {}
        kind = self._side.kind
        answer = self._oracle.ask(op=op, schema=kind.name, by=kind.components[self._version], live=live, patch=patch)
        try:
            result = ours(live, copy.deepcopy(patch))
        except StatusError as error:
            if not answer.error:
                raise Difference(f"{self._where}: {op} {patch}: we refuse it: {error}") from error
            return self._live
        if answer.error.startswith("unable to find api field"):
            return self._live  # Go merges no maps whose fields the schema does not name; for us they merge as maps
        if answer.error:
            raise Difference(f"{self._where}: {op} {json.dumps(patch)} of {json.dumps(live)}: Go refuses it: {answer.error}")
        if result != answer.object and (strict_order or _unordered(result) != _unordered(answer.object)):
            raise Difference(
                f"{self._where}: {op} {json.dumps(patch)} of\n{json.dumps(live)}\nours {json.dumps(result)}\nGo's {json.dumps(answer.object)}"
            )
        if not _is_valid(self._atom, result):
            return self._live
        return self._update_to(copy.deepcopy(result))

    def _status_update(self) -> Json | None:
        return self._update_to(self._changed(), subresource="status")

    def _status_apply(self) -> Json | None:
        body = self._fresh()
        if self._random.random() < 0.6:
            body.pop("spec", None)
        return self._apply_body(body, subresource="status")

    def _apply(self) -> Json | None:
        return self._apply_body(self._fresh())

    def _apply_part(self) -> Json | None:
        """Apply about what is there."""
        source: Json = self._changed() if self._random.random() < 0.5 else copy.deepcopy(self._live) or {}
        if not _is_valid(self._atom, source):
            return self._live
        body: Json = {key: self._values.part(self._child(key), source[key]) for key in ("spec", "status") if key in source}
        body = {"apiVersion": self._api_version, "kind": self._side.kind.kind, "metadata": {"name": "n", **self._metadata()}, **body}
        return self._apply_body(_without_duplicates(self._atom, body))

    def _invalid(self) -> Json | None:
        """Apply what is wrong in one place."""
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
        return self._apply_body(body)

    # Both sides

    def _update_to(self, body: Json, *, live: Any = ..., by: str | None = None, subresource: str = "") -> Json | None:
        before = self._live if live is ... else live
        if not _is_valid(self._atom, body):
            return self._live  # no server would store it
        manager = self._step.by if by is None else by
        answer = self._asked("update", before, body, manager, subresource)
        mine = copy.deepcopy(body)
        self._side.manager(self._version, subresource).update(before, mine, manager, _moment(answer))
        if self._diverges(answer):
            return {**mine, "metadata": {**mine["metadata"], "uid": "u"}}
        return self._agreed(answer, mine, body)

    def _apply_body(self, body: Json, *, subresource: str = "") -> Json | None:
        if self._live is None and subresource:
            return None
        answer = self._asked("apply", self._live, body, self._step.by, subresource)
        manager = self._side.manager(self._version, subresource)
        frozen = json.dumps([self._live, body])
        try:
            mine = manager.apply(self._live, body, self._step.by, force=self._step.force, now=_moment(answer))
        except StatusError as error:
            if not self._diverges(answer):
                self._refused(answer, error)
            return self._live
        if self._diverges(answer):
            return {**mine, "metadata": {**mine["metadata"], "uid": "u"}}
        if json.dumps([self._live, body]) != frozen:
            raise Difference(f"{self._where}: apply changed what it was given")
        return self._agreed(answer, mine, body)

    def _diverges(self, answer: Answer) -> bool:
        """Whether Go gives up for a reason that we deliberately do not share.

        Objects may have duplicates in their sets and keyed lists, except once another version's entry makes Go convert them: then an
        update loses all managedFields, and an apply fails with 500.
        """
        return (
            "duplicate entries for key" in answer.error and len(self._side.kind.versions) > 1 and "typed patch object" not in answer.error
        )

    def _asked(self, op: str, live: Any, body: Json, by: str, subresource: str) -> Answer:
        """Ask until the answer was made within one second."""
        while True:
            answer = self._oracle.ask(
                op=op,
                schema=self._side.kind.name,
                version=self._version,
                subresource=subresource,
                ignored=self._side.ignored(subresource),
                live=live,
                new=body,
                by=by,
                force=self._step.force,
            )
            if answer.before == answer.after:
                return answer

    def _refused(self, answer: Answer, error: StatusError) -> None:
        if not answer.error:
            raise Difference(f"{self._where}: we refuse: {error}") from error
        if answer.error != error.message:
            raise Difference(f"{self._where}: refused\nours {error.message!r}\nGo's {answer.error!r}") from error
        if answer.status.get("reason") == "Conflict":
            ours = sorted(json.dumps(each.to_json(), sort_keys=True) for each in error.details.causes)
            theirs = sorted(json.dumps(each, sort_keys=True) for each in answer.status["details"]["causes"])
            if ours != theirs:
                raise Difference(f"{self._where}: causes\nours {ours}\nGo's {theirs}") from error

    def _agreed(self, answer: Answer, mine: Json, body: Json) -> Json | None:
        if answer.error:
            raise Difference(f"{self._where}: Go refuses: {answer.error}\nlive {json.dumps(self._live)}\nbody {json.dumps(body)}")
        metadata = {key: value for key, value in mine.get("metadata", {}).items() if key != "managedFields"}
        bare = {**mine, "metadata": metadata} if "metadata" in mine else mine
        entries = mine.get("metadata", {}).get("managedFields") or []
        if json.dumps(bare, sort_keys=True) != json.dumps(_floats(answer.object, bare), sort_keys=True):
            self._differ("object", bare, answer.object, body)
        if json.dumps(entries) != json.dumps(answer.managed_fields):
            self._differ("managedFields", entries, answer.managed_fields, body)
        if not _is_valid(self._atom, bare):
            return self._live
        return {**mine, "metadata": {**mine["metadata"], "uid": "u"}}

    def _differ(self, what: str, ours: Any, theirs: Any, body: Json) -> None:
        raise Difference(
            f"{self._where}: {what}\nours {json.dumps(ours)}\nGo's {json.dumps(theirs)}\nlive {json.dumps(self._live)}\nbody {json.dumps(body)}"
        )


def _moment(answer: Answer) -> datetime:
    return datetime.fromtimestamp(answer.before, UTC)


def _aged(obj: Json, seconds: int) -> Json:
    """Return the object with entries that are older."""
    result = copy.deepcopy(obj)
    for entry in result["metadata"].get("managedFields") or ():
        if "time" in entry and seconds:
            entry["time"] = times.to_rfc3339(times.parse(entry["time"]) - timedelta(seconds=seconds))
    return result


def _below_atomic(source: random.Random) -> Json:
    """Return fields that older schemas had, where today's is atomic, or has none."""
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


def _is_valid(atom: Atom, obj: Json) -> bool:
    from apiserver.apis.meta.managedfields.validating import validate  # noqa: PLC0415

    try:
        validate(atom, obj, duplicates=True)
    except ValueError:
        return False
    return True


def _without_duplicates(atom: Atom, value: Any) -> Any:
    if isinstance(value, dict) and atom.map is not None:
        return {name: _without_duplicates(atom.map.child(name), each) for name, each in value.items()}
    if isinstance(value, list) and atom.list is not None and atom.list.associative:
        unique = {atom.list.step_to(each): each for each in value}
        return [_without_duplicates(atom.list.element, each) for each in unique.values()]
    return value


def _unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unordered(each) for key, each in value.items()}
    return (
        sorted((_unordered(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
        if isinstance(value, list)
        else value
    )


def _floats(theirs: Any, ours: Any) -> Any:
    """Return Go's value with 1 as 1.0 where ours is: JSON does not tell them apart."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {key: _floats(each, ours.get(key)) for key, each in theirs.items()}
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [_floats(each, other) for each, other in zip(theirs, ours, strict=True)]
    return (
        ours
        if isinstance(theirs, int | float) and isinstance(ours, int | float) and theirs == ours and not isinstance(ours, bool)
        else theirs
    )
