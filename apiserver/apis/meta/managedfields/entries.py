"""Reads and writes the entries of ``metadata.managedFields``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from apiserver.apis.meta import times
from apiserver.apis.meta.managedfields import elements, sets
from apiserver.apis.meta.managedfields.removing import reconciled
from apiserver.apis.meta.managedfields.schema import Atom
from apiserver.apis.meta.managedfields.sets import Fields

APPLY: Final = "Apply"
UPDATE: Final = "Update"
MAX_UPDATERS: Final = 10
"""The oldest are merged into one."""
ANCIENT: Final = "ancient-changes"
_FIELDS_TYPE: Final = "FieldsV1"
_CACHED: Final = 512
_LARGEST_CACHED: Final = 16 * 1024


class EntryError(ValueError):
    """An invalid entry; the message is Go's."""


class Owner(NamedTuple):
    """Key of an entry of ``managedFields``. An applier has one entry for all versions, so an empty ``api_version``."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""

    def identifier(self) -> str:
        """Return Go's JSON identifier; owners are sorted by it."""
        named = (
            ("manager", self.manager),
            ("operation", self.operation),
            ("apiVersion", self.api_version),
            ("subresource", self.subresource),
        )
        return "{" + ",".join(f"{elements.quote(name)}:{elements.quote(value)}" for name, value in named if value) + "}"


class Entry(NamedTuple):
    """One owner's fields, with the version and time of an entry of ``managedFields``."""

    api_version: str
    fields: Fields
    time: str = ""
    """RFC 3339; empty if unknown."""


Managed = dict[Owner, Entry]


class Reader:
    """Reads ``managedFields`` of one kind's objects; ``schemas`` are its types by ``apiVersion``."""

    def __init__(self, schemas: Mapping[str, Atom]) -> None:
        self._schemas = schemas
        self._known: dict[tuple[str, bytes], Fields] = {}

    def read(self, given: Sequence[Mapping[str, Any]] | None) -> Managed:
        """Return one ``Entry`` per owner in ``managedFields``, adapted to the present schemas of their versions.

        Raises:
            EntryError: one is invalid.
        """
        managed: Managed = {}
        if given is None:
            return managed
        for position, entry in enumerate(given):
            operation, version = entry.get("operation", ""), entry.get("apiVersion", "")
            if operation not in {APPLY, UPDATE}:
                raise EntryError("operation must be `Apply` or `Update`")
            if not version:
                raise EntryError("apiVersion must not be empty")
            kind = entry.get("fieldsType", "")
            if kind != _FIELDS_TYPE:
                problem = f'invalid fieldsType "{kind}"' if kind else "missing fieldsType"
                raise EntryError(f"{problem} in managed fields entry {position}")
            owner = Owner(entry.get("manager", ""), operation, "" if operation == APPLY else version, entry.get("subresource", ""))
            managed[owner] = Entry(version, self._fields(version, entry.get("fieldsV1")), _time(entry.get("time")))
        return managed

    def _fields(self, version: str, raw: Any) -> Fields:  # noqa: ANN401 - a client's JSON
        key = version, orjson.dumps(raw)
        known = self._known.get(key)
        if known is None:
            try:
                known = reconciled(sets.parse(raw), self._schemas.get(version))
            except elements.ElementError as error:
                raise EntryError(f"error decoding set: {error}") from error
            if len(key[1]) <= _LARGEST_CACHED:
                if len(self._known) >= _CACHED:
                    self._known.pop(next(iter(self._known)))
                self._known[key] = known
        return known


def _time(text: str | None) -> str:
    if not text:
        return ""
    return text if len(text) == 20 and text[-1] == "Z" else times.to_rfc3339(times.parse(text))


def write(managed: Managed) -> list[dict[str, Any]]:
    """Return these entries as the list ``managedFields``: appliers first, then by time."""
    ordered = sorted(managed.items(), key=_place) if len(managed) > 1 else managed.items()
    written = []
    for owner, entry in ordered:
        each: dict[str, Any] = {"manager": owner.manager} if owner.manager else {}
        each["operation"] = owner.operation
        each["apiVersion"] = entry.api_version
        if entry.time:
            each["time"] = entry.time
        each["fieldsType"] = _FIELDS_TYPE
        each["fieldsV1"] = entry.fields
        if owner.subresource:
            each["subresource"] = owner.subresource
        written.append(each)
    return written


def _place(item: tuple[Owner, Entry]) -> tuple[str, str, str, str, str]:
    owner, entry = item
    return owner.operation, entry.time, owner.manager, entry.api_version, owner.subresource


def capped(managed: Managed) -> Managed:
    """Return the entries; with more than ``MAX_UPDATERS`` updaters, the oldest are merged into one per version."""
    if len(managed) <= MAX_UPDATERS:
        return managed
    updaters = [owner for owner in managed if owner.operation == UPDATE]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return managed
    result = dict(managed)
    first_of: dict[str, Owner] = {}
    for owner in sorted(updaters, key=lambda each: (managed[each].time, each.identifier())):
        if excess <= 0:
            break
        entry = managed[owner]
        bucket = Owner(ANCIENT, UPDATE, entry.api_version)
        first = first_of.get(entry.api_version)
        if first is None:
            first_of[entry.api_version] = owner
            continue
        if bucket not in result:
            result[bucket] = result.pop(first)
        result[bucket] = Entry(entry.api_version, sets.union(entry.fields, result[bucket].fields), entry.time)
        result.pop(owner, None)
        excess -= 1
    return result
