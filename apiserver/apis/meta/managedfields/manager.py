"""The rules between a request and the updater, in Go's order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import times
from apiserver.apis.meta.errors import BadRequest, Cause, Details, InternalError, Invalid, StatusError
from apiserver.apis.meta.managedfields import lastapplied, sets
from apiserver.apis.meta.managedfields.conflicts import Conflicts
from apiserver.apis.meta.managedfields.entries import APPLY, UPDATE, Entry, EntryError, Managed, Owner, Reader, capped, write
from apiserver.apis.meta.managedfields.schema import Atom, Mismatch, same
from apiserver.apis.meta.managedfields.sets import Fields
from apiserver.apis.meta.managedfields.updating import Convert, Updater
from apiserver.apis.meta.managedfields.validating import validate
from apiserver.apis.meta.objects import Object, dig, name_of, namespace_of, uid_of, without_managed_fields

BEFORE_FIRST_APPLY: Final = "before-first-apply"
UNKNOWN: Final = "unknown"

_IDENTITY: Final = frozenset({"apiVersion", "kind"})
_SERVERS: Final = frozenset(
    {"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields", "resourceVersion"}
)
_UNOWNED: Final = sets.of(
    *((f"f:{name}",) for name in sorted(_IDENTITY)), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in sorted(_SERVERS))
)  # fmt: skip
"""Fields without an owner: the server sets them, or they identify the object."""


def _as_it_is(obj: Object, api_version: str) -> Object:
    if obj.get("apiVersion") != api_version:
        raise InternalError(f"no conversion to {api_version}")
    return obj


class FieldManager:
    """Tracks ownership for one served version of a kind, or one of its subresources.

    Args of the constructor:
        schemas: the kind's type per served version.
        ignored: per version, the fields that this endpoint does not change: ``status``, or for ``/status`` all others.
        empty: an object before its creation.
        convert: makes an object of another ``apiVersion``; by default it raises InternalError.
        reader: shared by a kind's managers.
    """

    def __init__(
        self,
        api_version: str,
        kind: str,
        schemas: Mapping[str, Atom],
        *,
        subresource: str = "",
        ignored: Mapping[str, Fields] | None = None,
        empty: Object | None = None,
        convert: Convert = _as_it_is,
        reader: Reader | None = None,
    ) -> None:
        self._api_version = api_version
        self._kind = kind
        self._subresource = subresource
        self._bare: Object = {"apiVersion": api_version, "kind": kind}
        self._structs: Object = {"metadata": {}, **(empty or {})}
        self._empty: Object = {**self._bare, **(empty or {})}
        self._schemas = schemas
        self._convert = convert
        self._reader = reader or Reader(schemas)
        self._updater = Updater(schemas, self._converted, ignored or {})
        self._second = 0
        self._moment = ""

    def update(self, live: Object | None, new: Object, manager: str, now: datetime) -> None:
        """Set ``managedFields`` of ``new``, which a write made from ``live`` (None: created), in place.

        Valid entries in ``new`` replace those of ``live``, but not for a subresource. Removes all if ownership cannot be determined; a
        stored object without any gets none.
        """
        metadata = new.get("metadata")
        if not isinstance(metadata, dict):
            return
        given = metadata.pop("managedFields", None)
        try:
            managed = self._update(live, new, self._initial(live, given), manager, now)
        except (Mismatch, StatusError):
            return
        if managed:
            metadata["managedFields"] = write(managed)

    def apply(self, live: Object | None, applied: Object, manager: str, *, force: bool, now: datetime) -> Object:
        """Return ``live`` (None: to be created) merged with ``applied``, with ``managedFields``. Changes neither.

        Raises:
            BadRequest: another version or kind, or ``managedFields`` in ``applied``.
            Invalid: it does not fit the schema.
            Conflict: it changes fields of other owners without force. Manager ``kubectl`` may take those that are as in its last-applied
                annotation.
            InternalError: the stored ``managedFields`` are invalid.
        """
        try:
            managed = self._reader.read(dig(live, "metadata", "managedFields"))
        except EntryError as error:
            raise InternalError(f"failed to decode managed fields: {error}") from error
        self._check(applied)
        try:
            merged, managed = self._apply(live, applied, managed, manager, force=force, now=now)
        except Conflicts as conflicts:
            raise conflicts.to_error() from None
        metadata = {key: value for key, value in (merged.get("metadata") or {}).items() if key != "managedFields"}
        if managed:
            metadata["managedFields"] = write(managed)
        return {**merged, "metadata": metadata}

    def _initial(self, live: Object | None, given: Any) -> Managed:  # noqa: ANN401 - a client's JSON
        """Return the entries by owner before this write: ``given``, the client's, if valid, else the stored.

        A subresource cannot set them; an empty list, or one empty entry, resets them.
        """
        stored = dig(live, "metadata", "managedFields")
        if given is not None and not self._subresource and given != stored:
            if given in ([], [{}]):
                return {}
            try:
                if managed := self._reader.read(given):
                    return managed
            except EntryError:
                pass  # the client's entries are invalid: keep the stored ones
        try:
            return self._reader.read(stored)
        except EntryError:
            return {}

    def _update(self, live: Object | None, new: Object, managed: Managed, manager: str, now: datetime) -> Managed:
        if not managed and live is not None and uid_of(live):
            return managed  # the first apply starts tracking
        owner = Owner(manager or UNKNOWN, UPDATE, self._api_version, self._subresource)
        if live is None and not managed:
            taken = self._updater.first(self._structs, _ownable(new), self._api_version)
        else:
            before = self._empty if live is None else without_managed_fields(live)
            managed, taken = self._updater.update(before, new, self._api_version, managed, owner)
            taken = sets.difference(taken, _UNOWNED)
        if taken:
            previous = managed.get(owner)
            fields = taken if previous is None else sets.union(previous.fields, taken)
            managed[owner] = Entry(self._api_version, fields, self._stamp(now))
        return capped(managed)

    def _check(self, applied: Object) -> None:
        api_version, kind = applied.get("apiVersion", ""), applied.get("kind", "")
        if (api_version, kind) != (self._api_version, self._kind):
            raise BadRequest(f"invalid object type: {_gvk(api_version, kind)}")

    def _apply(
        self, live: Object | None, applied: Object, managed: Managed, manager: str, *, force: bool, now: datetime
    ) -> tuple[Object, Managed]:  # fmt: skip
        before = self._bare if live is None else live
        if not managed and live is not None:
            managed = self._update(None, live, {}, BEFORE_FIRST_APPLY, now)
        try:
            merged, managed = self._merged(before, applied, managed, manager, force=force, now=now)
        except Conflicts as conflicts:
            if manager != lastapplied.MANAGER:
                raise
            allowed = lastapplied.allowed(self._schemas[self._api_version], self._api_version, before)
            if beyond := conflicts.beyond(allowed):
                raise beyond from None
            merged, managed = self._merged(before, applied, managed, manager, force=True, now=now)
        return (lastapplied.follow(merged, applied) if manager == lastapplied.MANAGER else merged), managed

    def _merged(
        self, live: Object, applied: Object, managed: Managed, manager: str, *, force: bool, now: datetime
    ) -> tuple[Object, Managed]:  # fmt: skip
        if dig(applied, "metadata", "managedFields") is not None:
            raise BadRequest("metadata.managedFields must be nil")
        self._validate(applied)
        owner = Owner(manager or UNKNOWN, APPLY, "", self._subresource)
        last = managed.get(owner)
        merged, managed = self._updater.apply(live, applied, self._api_version, managed, owner, force=force)
        if (own := managed.get(owner)) is not None:
            fields = sets.difference(own.fields, _UNOWNED)
            if not fields:
                del managed[owner]
            else:
                changed = merged is not live and not same(merged, live)
                time = self._stamp(now) if changed else last.time if last is not None else ""
                managed[owner] = Entry(own.api_version, fields, time)
        return merged, managed

    def _validate(self, applied: Object) -> None:
        try:
            validate(self._schemas[self._api_version], applied)
        except Mismatch as problem:
            what = f"{namespace_of(applied)}/{name_of(applied)}; {_gvk(self._api_version, self._kind)}"
            group = self._api_version.rpartition("/")[0]
            causes = tuple(Cause("FieldValueInvalid", message, path.removeprefix(".")) for path, message in problem.problems)
            details = Details(name=name_of(applied), group=group, kind=self._kind, causes=causes)
            raise Invalid(f"failed to create typed patch object ({what}): {problem}", details) from None

    def _converted(self, obj: Object, api_version: str) -> Object:
        return obj if obj.get("apiVersion") == api_version else self._convert(obj, api_version)

    def _stamp(self, now: datetime) -> str:
        second = int(now.timestamp())
        if second != self._second:
            self._second, self._moment = second, times.to_rfc3339(now)
        return self._moment


def _ownable(obj: Object) -> Object:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _SERVERS}
    return {name: metadata if name == "metadata" else value for name, value in obj.items() if name not in _IDENTITY}


def _gvk(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{group}/{version}, Kind={kind}"
