"""Conflicts: fields that an applier changes and another manager owns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from apiserver.apis.meta.errors import Cause, Conflict, Details
from apiserver.apis.meta.managedfields import elements, sets
from apiserver.apis.meta.managedfields.entries import UPDATE, Owner
from apiserver.apis.meta.managedfields.sets import Fields, Steps


class Conflicts(Exception):
    """Raised for fields that a change would take from other owners; ``found`` has them by owner."""

    def __init__(self, found: Mapping[Owner, Fields]) -> None:
        super().__init__("conflicts")
        self.found = found

    def beyond(self, allowed: Fields) -> Conflicts | None:
        """Return the ``Conflicts`` over fields outside of ``allowed``, or None without any."""
        left = ((owner, sets.difference(fields, allowed)) for owner, fields in self.found.items())
        found = {owner: fields for owner, fields in left if fields}
        return Conflicts(found) if found else None

    def to_error(self) -> Conflict:
        """Return the ``Conflict`` for the client: one cause per owner and path, sorted."""
        by_owner = sorted(self.found.items(), key=lambda item: item[0].identifier())
        each = [(owner, path) for owner, fields in by_owner for path in sets.paths(fields)]
        causes = tuple(Cause("FieldManagerConflict", f"conflict with {_show(owner)}", sets.show(path)) for owner, path in each)
        return Conflict(_message(each), Details(causes=causes))


def _message(conflicts: list[tuple[Owner, Steps]]) -> str:
    if len(conflicts) == 1:
        owner, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {_show(owner)}: {sets.show(path)}"
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(_lines(conflicts))


def _lines(conflicts: list[tuple[Owner, Steps]]) -> Iterable[str]:
    before = None
    for owner, path in conflicts:
        if owner != before:
            yield f"conflicts with {_show(owner)}:"
        yield f"- {sets.show(path)}"
        before = owner


def _show(owner: Owner) -> str:
    shown = elements.go_quote(owner.manager)
    if owner.subresource:
        shown += f" with subresource {elements.go_quote(owner.subresource)}"
    return f"{shown} using {owner.api_version}" if owner.operation == UPDATE else shown
