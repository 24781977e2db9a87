"""Plan writes: pure functions from a client's object and the stored one to the new one.

Errors have all causes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from apiserver.apis.meta import objectmeta
from apiserver.apis.meta.errors import Invalid
from apiserver.apis.meta.objects import HubObject, Object, name_of
from apiserver.apis.meta.validation import MAX_CAUSES, FieldError, to_invalid, unknown_field
from apiserver.registry.cacher.items import DECODING_ERRORS
from apiserver.registry.generic import deletion, metadata
from apiserver.registry.generic.codec import copy
from apiserver.registry.generic.options import DeleteOptions, WriteOptions
from apiserver.registry.generic.strategy import NOTHING_WRONG, Reading, Strategy

Part = Literal["", "status", "scale"]
"""All but status, status, or replicas."""
_STATUS: Final = frozenset({"status"})


@dataclass(slots=True)
class Plan:
    """The next state of an object, or its last one if it is to be removed."""

    obj: HubObject
    remove: bool = False
    """``obj`` is the last state."""


class Planner:
    """Plans one resource's writes."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._hub = strategy.hub
        self._resource = strategy.resource

    def read(self, obj: Object, options: WriteOptions, old: Object | None = None, *, part: Part = "") -> list[FieldError]:
        """Validate a client's object against the schema, in place; return errors for unknown fields with ``Strict``, else [].

        ``old``: the object to replace. Drops an invalid status unless ``part`` is ``status``. Raises Invalid, with further errors.
        """
        obj.setdefault("metadata", {})
        unknown, wrong = objectmeta.read(obj["metadata"], stored=old["metadata"] if old else {})
        if not wrong and (repeated := metadata.drop_repeated_owners(obj["metadata"])):
            options.caller.warn(metadata.REPEATED_OWNERS + ", ".join(repeated))
        if not wrong:
            metadata.drop_empty(obj["metadata"])
        reading = self._strategy.read(obj)
        if part != "status" and self._hub.has_status and any(_is_within(each.path, _STATUS) for each in reading.errors):
            del obj["status"]
            rest = self._strategy.read(obj)  # an excessively nested status hides errors
            reading = Reading((*reading.unknown, *rest.unknown), rest.errors)
        if reading is NOTHING_WRONG and not unknown and not wrong and not options.superfluous:
            return []
        superfluous = [*options.superfluous, *map(self._with_hint, map(unknown_field, [*unknown, *reading.unknown]))]
        if options.field_validation in {"", "Warn"}:
            for each in superfluous:
                options.caller.warn(each.detail)
        refused = superfluous if options.field_validation == "Strict" else []
        misshapen = [*wrong, *map(self._with_hint, reading.errors)]
        if misshapen:
            self._raise([*refused, *misshapen, *self._also(obj, old, misshapen)], obj)
        return refused

    def _with_hint(self, fault: FieldError) -> FieldError:
        found = self._strategy.hint(fault.path, fault.value)
        return replace(fault, detail=f"{fault.detail}: {found}") if found else fault

    def with_hints(self, refused: Invalid) -> Invalid:
        """Return ``refused``, an apply's error, with hints about its fields, if any."""
        causes = refused.details.causes
        hints = {each.field: found for each in causes if (found := self._strategy.hint(each.field))}
        if not hints:
            return refused
        explained = tuple(replace(each, message=f"{each.message}: {hints[each.field]}") if each.field in hints else each for each in causes)
        message = "; ".join([refused.message, *(f"{field}: {found}" for field, found in hints.items())])
        return Invalid(message, replace(refused.details, causes=explained))

    def _also(self, obj: Object, old: Object | None, misshapen: list[FieldError]) -> list[FieldError]:
        if len(misshapen) >= MAX_CAUSES:
            return []
        with suppress(*DECODING_ERRORS):
            rest, paths = copy(obj), frozenset(each.path for each in misshapen)
            if any(each.path.startswith("metadata") for each in misshapen):
                rest["metadata"] = {}
            self._strategy.prune(rest)
            self._strategy.default(rest)
            found = self._strategy.validate(rest) if old is None else self._strategy.validate_update(rest, old)
            return [each for each in [*objectmeta.validate_given(rest["metadata"]), *found] if not _is_within(each.path, paths)]
        return []

    def create(self, obj: HubObject, refused: Iterable[FieldError], now: datetime) -> HubObject:
        """Complete the new object, perhaps in place, and return it. Raises Invalid, also for ``refused``: errors found before."""
        hub = self._hub
        metadata.prepare_for_create(obj, now)
        if hub.has_status:
            obj.pop("status", None)
        hub.default(obj)
        hub.prepare_for_create(obj)
        found = [*refused, *objectmeta.validate(obj["metadata"], namespaced=self._resource.namespaced), *hub.validate(obj)]
        self._raise(found, obj)
        return metadata.tidy(obj)

    def receive(self, wanted: Object, old: Object, options: WriteOptions, part: Part) -> list[FieldError]:
        """Check ``wanted``, which replaces ``old``, against the schema and set defaults, in place; return errors for :meth:`update`.

        These are for unknown fields with ``Strict``. Raises BadRequest for another apiVersion, kind, namespace or name; Invalid.
        """
        before = old["metadata"]
        metadata.match_request(wanted, self._resource, before.get("namespace", ""), before["name"])
        refused = self.read(wanted, options, old, part=part)
        self._strategy.default(wanted)
        return refused

    def update(self, wanted: HubObject, old: HubObject, part: Part = "", refused: Iterable[FieldError] = ()) -> Plan:
        """Return the ``Plan`` to update ``old`` to the received ``wanted``, which may change in place.

        ``part`` ``status``: only the status changes, else all but the status. Raises Conflict if ``wanted`` is based on another revision;
        Invalid, also for ``refused``: errors found before.
        """
        before, hub = old["metadata"], self._hub
        found = list(refused)
        metadata.prepare_for_update(wanted, old, self._resource)
        if part == "status":
            status = {key: wanted[key] for key in ("status",) if key in wanted}
            wanted = HubObject({**copy(old), **status, "metadata": _locked(wanted, old)})
            hub.prepare_for_status_update(wanted, old)
            found += hub.validate_status_update(wanted, old)
        else:
            if hub.has_status:
                wanted.pop("status", None)
                if "status" in old:
                    wanted["status"] = copy(old["status"])
            hub.prepare_for_update(wanted, old)
            metadata.grow_generation(wanted, old)
            found += hub.validate_update(wanted, old)
        found += objectmeta.validate_update(wanted["metadata"], before)
        self._raise(found, wanted)
        return Plan(metadata.tidy(wanted), remove=deletion.released(wanted, old))

    def act(self, wanted: HubObject, old: HubObject) -> Plan:
        """Return the ``Plan`` to change ``old``, its spec and status, to a verb's ``wanted``, which may be changed. Raises Invalid."""
        hub = self._hub
        hub.default(wanted)
        hub.prepare_for_update(wanted, old)  # mutating admission may have changed it
        metadata.grow_generation(wanted, old)
        self._raise(hub.validate_update(wanted, old), wanted)
        return Plan(metadata.tidy(wanted))

    def delete(self, old: HubObject, options: DeleteOptions, now: datetime) -> Plan:
        """Return the ``Plan`` to remove ``old``, or mark it if it has finalizers; raises Conflict if a precondition fails."""
        before = old["metadata"]
        for what, wanted, actual in (
            ("UID", options.uid, before["uid"]),
            ("ResourceVersion", options.resource_version, before["resourceVersion"]),
        ):
            if wanted is not None and wanted != actual:
                raise metadata.deletion_refused(self._resource, before["name"], what, wanted, actual)
        obj = copy(old)
        if deletion.mark(obj, options, now):
            return Plan(obj, remove=True)
        if not old["metadata"].get("deletionTimestamp"):
            self._hub.prepare_for_delete(obj)
        return Plan(metadata.tidy(obj))

    def _raise(self, found: Sequence[FieldError], obj: Object) -> None:
        if not found:
            return
        given = obj.get("metadata")
        name = name_of(obj) or (given.get("generateName") if isinstance(given, dict) else "")
        raise to_invalid(found, group=self._resource.group, kind=self._resource.kind, name=name if isinstance(name, str) else "")


def _is_within(path: str, places: frozenset[str]) -> bool:
    return path in places or any(sign in ".[" and path[:position] in places for position, sign in enumerate(path))


def _locked(wanted: Object, old: Object) -> Object:
    kept: Object = copy(old["metadata"])
    kept["resourceVersion"] = wanted["metadata"].get("resourceVersion")
    kept.pop("managedFields", None)
    if managed := wanted["metadata"].get("managedFields"):
        kept["managedFields"] = managed
    return kept
