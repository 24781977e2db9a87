from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.managedfields.manager import FieldManager
from apiserver.apis.meta.managedfields.schema import Atom
from apiserver.apis.meta.managedfields.validating import validate
from tests.reference_library import kinds
from tests.reference_library.program import Answer, Reference

Json = dict[str, Any]
_STATUS_IGNORES: Json = {"f:spec": {}, "f:metadata": {"f:labels": {}}}
_MAIN_IGNORES: Json = {"f:status": {}}


class Difference(AssertionError):
    """The two sides disagree."""


class Side:
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


class Both:
    """Compares our library and Go's in one write to ``live`` (None: new) in one version."""

    def __init__(self, reference: Reference, side: Side, version: str, live: Json | None, where: str, *, force: bool) -> None:
        self._reference = reference
        self._side = side
        self._version = version
        self._atom = side.atoms[side.kind.api_version(version)]
        self._live = live
        self._where = where
        self._force = force

    def update(self, body: Json, by: str, *, live: Any = ..., subresource: str = "") -> Json | None:
        """Compare an update by the manager ``by`` in our library and Go's; return the new object. Raises Difference.

        ``live`` is the object before, None for a create; default: the constructor's. If :func:`is_valid` rejects ``body``, which then
        is not tried, or the result, return the constructor's.
        """
        before = self._live if live is ... else live
        if not is_valid(self._atom, body):
            return self._live
        answer = self._asked("update", before, body, by, subresource)
        mine = copy.deepcopy(body)
        self._side.manager(self._version, subresource).update(before, mine, by, _moment(answer))
        if self._diverges(answer):
            return {**mine, "metadata": {**mine["metadata"], "uid": "u"}}
        return self._agreed(answer, mine, body)

    def apply(self, body: Json, by: str, *, subresource: str = "") -> Json | None:
        if self._live is None and subresource:
            return None
        answer = self._asked("apply", self._live, body, by, subresource)
        manager = self._side.manager(self._version, subresource)
        frozen = json.dumps([self._live, body])
        try:
            mine = manager.apply(self._live, body, by, force=self._force, now=_moment(answer))
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
        """Return whether Go fails for a reason that we deliberately avoid.

        Sets and keyed lists may have duplicates, and pruning may leave an item without keys. When Go must convert them for another
        version's entry, an update loses all managedFields, and an apply fails with 500.
        """
        lists = ("duplicate entries for key", "may not have a null element", "omits all key fields")
        converted = len(self._side.kind.versions) > 1 and "typed patch object" not in answer.error
        return converted and any(each in answer.error for each in lists)

    def _asked(self, op: str, live: Any, body: Json, by: str, subresource: str) -> Answer:
        """Return Go's answer; ask again until no second of the clock began meanwhile, so both sides write equal times."""
        while True:
            answer = self._reference.ask(
                op=op,
                schema=self._side.kind.name,
                version=self._version,
                subresource=subresource,
                ignored=self._side.ignored(subresource),
                live=live,
                new=body,
                by=by,
                force=self._force,
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
        if not is_valid(self._atom, bare):
            return self._live
        return {**mine, "metadata": {**mine["metadata"], "uid": "u"}}

    def _differ(self, what: str, ours: Any, theirs: Any, body: Json) -> None:
        raise Difference(
            f"{self._where}: {what}\nours {json.dumps(ours)}\nGo's {json.dumps(theirs)}\n"
            f"live {json.dumps(self._live)}\nbody {json.dumps(body)}"
        )


def _moment(answer: Answer) -> datetime:
    return datetime.fromtimestamp(answer.before, UTC)


def is_valid(atom: Atom, obj: Json) -> bool:
    try:
        validate(atom, obj, duplicates=True)
    except ValueError:
        return False
    return True


def _floats(theirs: Any, ours: Any) -> Any:
    """Return Go's value with our equal numbers in place of its own, because JSON does not distinguish 1 and 1.0."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {key: _floats(each, ours.get(key)) for key, each in theirs.items()}
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [_floats(each, other) for each, other in zip(theirs, ours, strict=True)]
    return (
        ours
        if isinstance(theirs, int | float) and isinstance(ours, int | float) and theirs == ours and not isinstance(ours, bool)
        else theirs
    )
