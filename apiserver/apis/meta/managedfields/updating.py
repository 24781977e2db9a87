"""Ownership rules: who gains and loses fields in a change, and what apply removes.

An entry's losses are found in objects of its version; entries of unserved versions are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from apiserver.apis.meta.errors import InternalError
from apiserver.apis.meta.managedfields import sets
from apiserver.apis.meta.managedfields.comparing import appeared, compare
from apiserver.apis.meta.managedfields.conflicts import Conflicts
from apiserver.apis.meta.managedfields.entries import Entry, Managed, Owner
from apiserver.apis.meta.managedfields.merging import merge
from apiserver.apis.meta.managedfields.removing import fields_of, remove, with_parents
from apiserver.apis.meta.managedfields.schema import Atom
from apiserver.apis.meta.managedfields.sets import EMPTY, Fields
from apiserver.apis.meta.managedfields.values import ABSENT
from apiserver.apis.meta.objects import Object

Convert = Callable[[Object, str], Object]
"""Returns an object in another ``apiVersion``, without changing its argument."""

_OWN_BOOKS: Final = sets.of(("f:metadata", "f:managedFields"))


class Updater:
    """Computes ownership; ``schemas`` and ``ignored`` (fields that a write never changes) are by ``apiVersion``."""

    def __init__(self, schemas: Mapping[str, Atom], convert: Convert, ignored: Mapping[str, Fields]) -> None:
        self._schemas = schemas
        self._convert = convert
        self._ignored = ignored

    def update(self, live: Object, new: Object, version: str, managed: Managed, writer: Owner) -> tuple[Managed, Fields]:
        """Return (entries by owner, without removed fields and those taken from others; fields that the write changed).

        The caller adds the changed fields to the writer's entry.
        """
        return self._take(live, new, version, managed, applier=None, writer=writer, force=True)

    def first(self, structs: Object, new: Object, version: str) -> Fields:
        """Return the fields that the creator of ``new`` owns: those added to empty ``structs``."""
        return sets.without(appeared(self._schemas[version], structs, new), self._ignored.get(version, EMPTY))

    def apply(
        self, live: Object, applied: Object, version: str, managed: Managed, applier: Owner, *, force: bool
    ) -> tuple[Object, Managed]:  # fmt: skip
        """Return (merged object, entries by owner); the applier's new entry lacks a time.

        Raises:
            Conflicts: it changes fields of other owners without force.
        """
        managed = {owner: entry for owner, entry in managed.items() if entry.api_version in self._schemas}
        atom = self._schemas[version]
        merged = merge(atom, live, applied)
        last = managed.get(applier)
        fields = sets.without(fields_of(atom, applied), self._ignored.get(version, EMPTY))
        managed[applier] = Entry(version, fields)
        if last is not None and last.fields:
            merged = self._prune(merged, version, managed, last, fields)
        managed, _ = self._take(live, merged, version, managed, applier=applier, force=force)
        return merged, managed

    def _take(
        self, live: Object, new: Object, version: str, managed: Managed, *, applier: Owner | None, writer: Owner | None = None, force: bool
    ) -> tuple[Managed, Fields]:  # fmt: skip
        changes = {version: self._changes(live, new, version)}
        result: Managed = {}
        conflicts: dict[Owner, Fields] = {}
        for owner, entry in managed.items():
            if owner == applier:
                if entry.fields:
                    result[owner] = entry
                continue
            at = entry.api_version
            if at not in changes:
                if at not in self._schemas:
                    continue
                changes[at] = self._changes(self._convert(live, at), self._convert(new, at), at)
            touched, removed = changes[at]
            if not force and (conflict := sets.intersection(entry.fields, touched)):
                conflicts[owner] = conflict
            left = sets.difference(entry.fields if owner == writer else sets.difference(entry.fields, touched), removed)
            if left is entry.fields:
                if left:
                    result[owner] = entry
            elif left:
                result[owner] = Entry(at, left, entry.time)
        if conflicts:
            raise Conflicts(conflicts)
        return result, changes[version][0]

    def _changes(self, live: Object, new: Object, version: str) -> tuple[Fields, Fields]:
        touched, removed = compare(self._schemas[version], live, new)
        if removed:
            removed = sets.without(removed, _OWN_BOOKS)
        if ignored := self._ignored.get(version):
            return sets.without(touched, ignored), sets.without(removed, ignored)
        return touched, removed

    def _prune(self, merged: Object, version: str, managed: Managed, last: Entry, fields: Fields) -> Object:
        """Return ``merged``, itself unchanged, without fields that only the applier owned and now omits.

        ``last``: the applier's former entry; ``fields``: those that it applies now.
        """
        if {entry.api_version for entry in (last, *managed.values())} == {version}:
            return self._prune_parts(merged, version, managed, last, fields)
        return self._prune_whole(merged, version, managed, last)

    def _prune_parts(self, merged: Object, version: str, managed: Managed, last: Entry, fields: Fields) -> Object:
        """Do as :meth:`_prune` on the top-level parts that lost fields of the applier; others cannot change."""
        given_up = {step: tree for step, tree in last.fields.items() if not sets.contains(fields, {step: tree})}
        names = [step[2:] for step in given_up]
        part = {name: merged[name] for name in ("apiVersion", "kind", *names) if name in merged}
        if len(part) <= 2:
            return merged
        left = self._prune_whole(part, version, managed, Entry(version, given_up))
        return {name: left.get(name, value) for name, value in merged.items() if name in left or name not in part}

    def _prune_whole(self, merged: Object, version: str, managed: Managed, last: Entry) -> Object:
        at = last.api_version
        atom = self._schemas[at]
        before = self._convert(merged, at)
        everything = with_parents(fields_of(atom, before), atom)
        of_last = with_parents(last.fields, atom)
        pruned = self._with_owned(before, everything, remove(atom, before, of_last), at, managed)
        gone = sets.difference(everything, with_parents(fields_of(atom, _object(pruned)), atom))
        pruned = remove(atom, before, sets.intersection(gone, of_last))
        return self._convert(_object(pruned), version)

    def _with_owned(
        self,
        merged: Object,
        everything: Fields,
        pruned: Any,  # noqa: ANN401 - null if nothing is left
        at: str,
        managed: Managed,
    ) -> Any:  # noqa: ANN401 - as above
        """Return ``pruned`` at version ``at`` with owned fields of ``merged`` put back, first those at that version.

        ``everything``: all fields of ``merged``; ``managed``: the owners' entries.
        """
        owned: dict[str, Fields] = {}
        for entry in managed.values():
            owned[entry.api_version] = sets.union(owned.get(entry.api_version, EMPTY), entry.fields)
        for version in sorted(owned, key=lambda each: (each != at, each)):
            atom = self._schemas[version]
            if version != at:
                merged = self._convert(merged, version)
                everything = with_parents(fields_of(atom, merged), atom)
            pruned = self._convert(_object(pruned), version)
            kept = sets.union(with_parents(fields_of(atom, pruned), atom), with_parents(owned[version], atom))
            pruned = remove(atom, merged, sets.difference(everything, kept))
        return self._convert(_object(pruned), at)


def _object(value: Any) -> Object:  # noqa: ANN401 - null if nothing is left
    if not isinstance(value, dict) or value is ABSENT:
        raise InternalError("failed to prune fields: failed to convert value to unstructured for type <nil>")
    return value
