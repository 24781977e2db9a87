"""``metadata``: its structure and valid values, with rules and texts of apimachinery's ``api/validation``.

:func:`read` precedes :func:`validate` and :func:`validate_update`. ``managedFields`` are read here and validated where they are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from apiserver.apis.meta import names, times
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required, too_long, too_many, type_invalid

MAX_ANNOTATIONS_BYTES: Final = 256 * 1024
MAX_MANAGER_BYTES: Final = 128
_MAX_SUBRESOURCE_BYTES: Final = 256
_MAX_CHARACTER_BYTES: Final = 4
ORPHAN_FINALIZER: Final = "orphan"
FOREGROUND_FINALIZER: Final = "foregroundDeletion"

Place: TypeAlias = "Path | tuple[Place, str | int]"
"""A value's parent, and field or index. Only errors need a :class:`Path`."""
Check = Callable[[Any, Place, list[str]], list[FieldError]]
"""Returns what is wrong with a value, and adds the paths of its unknown fields to the list."""
NameRule = Callable[[str], list[str]]
"""Returns what is wrong with a name."""

_NOTHING: Final[Mapping[str, Any]] = {}
MAX_ITEMS: Final = 10_000
"""In a list."""
_LISTS: Final = ("ownerReferences", "finalizers", "managedFields")
ROOT: Final = Path("metadata")
_COMMON: Final = ("labels", "annotations", "ownerReferences")
_LABELS: Final = ROOT.child("labels")
_ANNOTATIONS: Final = ROOT.child("annotations")
_OWNERS: Final = ROOT.child("ownerReferences")
_IMMUTABLE: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def read(
    metadata: Any,  # noqa: ANN401 - a client's JSON
    path: Path = ROOT,
    *,
    stored: Mapping[str, Any] = _NOTHING,
) -> tuple[list[str], list[FieldError]]:
    """Drop unknown fields and null members from ``metadata``, in place; return (paths of unknown fields, errors of wrong types and sizes).

    Null labels and annotations become "". With too long lists, it returns only their errors, and drops nothing. ``stored``: the metadata
    to be replaced; managed fields equal to its own are not checked.
    """
    if not isinstance(metadata, dict):
        return [], [type_invalid(path, metadata, "must be an object")]
    lists = {field: value for field in _LISTS if isinstance(value := metadata.get(field), list)}
    if long := [too_many(path.child(field), len(value), MAX_ITEMS) for field, value in lists.items() if len(value) > MAX_ITEMS]:
        return [], long
    unknown: list[str] = []
    # managedFields contain only texts and objects, so equal ones have the right types.
    managed = metadata.get("managedFields", _NOTHING)
    repeated = managed == stored.get("managedFields")
    if not repeated and isinstance(managed, list):
        # some are the stored object's
        metadata["managedFields"] = [{**each} if isinstance(each, dict) else each for each in managed]
    found = _read_fields(metadata, path, _META_REPEATED if repeated else _META, unknown)
    return unknown, found


def validate(metadata: Mapping[str, Any], *, namespaced: bool, name_rule: NameRule = names.subdomain_errors) -> list[FieldError]:
    """Return errors in a new object's metadata that :func:`read` accepted, after its name was generated."""
    found = _validate_names(metadata, name_rule)
    if not metadata.get("name"):
        found.append(required(ROOT.child("name"), "name or generateName is required"))
    namespace = metadata.get("namespace") or ""
    if namespaced and not namespace:
        found.append(required(ROOT.child("namespace")))
    elif namespaced:
        found += [invalid(ROOT.child("namespace"), namespace, each) for each in names.label_errors(namespace)]
    elif namespace:
        found.append(forbidden(ROOT.child("namespace"), "not allowed on this type"))
    return found + _validate_common(metadata) + validate_finalizers(metadata.get("finalizers") or [])


def validate_given(metadata: Mapping[str, Any]) -> list[FieldError]:
    """Return errors in a client's metadata that :func:`read` accepted; it need not be complete."""
    found = _validate_names(metadata, names.subdomain_errors) + _validate_common(metadata)
    return found + validate_finalizers(metadata.get("finalizers") or [])


def _validate_names(metadata: Mapping[str, Any], name_rule: NameRule) -> list[FieldError]:
    found = []
    if generate_name := metadata.get("generateName"):
        found += [invalid(ROOT.child("generateName"), generate_name, each) for each in name_rule(_as_name(generate_name))]
    if name := metadata.get("name"):
        found += [invalid(ROOT.child("name"), name, each) for each in name_rule(name)]
    return found


def validate_update(metadata: Mapping[str, Any], old: Mapping[str, Any]) -> list[FieldError]:
    """Return errors in an update's metadata; what equals ``old`` is not checked again.

    A missing ``resourceVersion`` and a changed ``name``, ``uid``, ``creationTimestamp`` … are errors: the caller first restores what
    clients may omit.
    """
    found = []
    finalizers, old_finalizers = metadata.get("finalizers") or [], old.get("finalizers") or []
    if old.get("deletionTimestamp"):
        extra = sorted(set(finalizers) - set(old_finalizers))
        if extra:
            listed = ", ".join(f'"{each}"' for each in extra)
            text = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
            found.append(forbidden(ROOT.child("finalizers"), text))
    if not metadata.get("resourceVersion"):
        found.append(invalid(ROOT.child("resourceVersion"), metadata.get("resourceVersion", 0), "must be specified for an update"))
    changed = [field for field in _IMMUTABLE if metadata.get(field) != old.get(field)]
    found += [invalid(ROOT.child(field), metadata.get(field), "field is immutable") for field in changed]
    # Unchanged fields were valid before.
    fresh = {key: metadata[key] for key in _COMMON if key in metadata and metadata[key] != old.get(key)}
    if fresh:
        found += _validate_common(fresh, stored=old.get("annotations") or {})
    return found + validate_finalizers(finalizers) if finalizers != old_finalizers else found


def validate_labels(labels: Mapping[str, str], path: Path) -> list[FieldError]:
    """Return errors in labels, or a ``nodeSelector``."""
    if not labels or (names.are_qualified_names(labels) and names.are_label_values(labels.values())):
        return []
    found = []
    for key, value in sorted(labels.items()):
        found += [invalid(path, key, each) for each in names.qualified_name_errors(key)]
        found += [invalid(path, value, each) for each in names.label_value_errors(value)]
    return found


def validate_finalizers(finalizers: Sequence[str]) -> list[FieldError]:
    """Return errors in finalizers."""
    if not finalizers:
        return []
    path = ROOT.child("finalizers")
    found = [invalid(path, each, text) for each in finalizers for text in names.qualified_name_errors(each)]
    if ORPHAN_FINALIZER in finalizers and FOREGROUND_FINALIZER in finalizers:
        found.append(
            invalid(path, list(finalizers), f"finalizer {ORPHAN_FINALIZER} and {FOREGROUND_FINALIZER} cannot be both set"),
        )
    return found


def _validate_common(metadata: Mapping[str, Any], *, stored: Mapping[str, str] | None = None) -> list[FieldError]:
    """Return errors in labels, annotations and owners; the keys of ``stored`` annotations may stay."""
    return [
        *validate_labels(metadata.get("labels") or {}, _LABELS),
        *_validate_annotations(metadata.get("annotations") or {}, stored or {}),
        *_validate_owners(metadata.get("ownerReferences") or []),
    ]


def _validate_annotations(annotations: Mapping[str, str], stored: Mapping[str, str]) -> list[FieldError]:
    found = []
    new = annotations.keys() - stored.keys() if stored else annotations
    if new and not names.are_qualified_names(new, in_lower_case=True):
        found = [invalid(_ANNOTATIONS, key, each) for key in sorted(new) for each in names.qualified_name_errors(key.lower())]
    characters = sum(map(len, annotations)) + sum(map(len, annotations.values()))
    if characters * _MAX_CHARACTER_BYTES > MAX_ANNOTATIONS_BYTES and _bytes_of(annotations) > MAX_ANNOTATIONS_BYTES:
        found.append(too_long(_ANNOTATIONS, MAX_ANNOTATIONS_BYTES))
    return found


def _bytes_of(annotations: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def _validate_owners(owners: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    path = _OWNERS
    found: list[FieldError] = []
    controllers: list[str] = []
    for owner in owners:
        api_version = owner.get("apiVersion") or ""
        group, _, version = api_version.rpartition("/")
        if "/" in group:  # invalid in any case
            group = version = ""
        if not version:
            found.append(invalid(path.child("apiVersion"), api_version, "version must not be empty"))
        found += [invalid(path.child(field), "", "must not be empty") for field in ("kind", "name", "uid") if not owner.get(field)]
        if (group, version, owner.get("kind")) == ("", "v1", "Event"):
            found.append(invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind', '')}/{owner.get('name', '')}")
    if len(controllers) > 1:  # Go reports each further one
        first, second, *_ = controllers
        text = f'Only one reference can have Controller set to true. Found "true" in references for {first} and {second}'
        found.append(invalid(path, list(owners), text))
    return found


def _as_name(generate_name: str) -> str:
    """Return the name to check for a generateName: cut to the limit, with ``a`` for a final dash."""
    base = generate_name[: names.MAX_GENERATED_BASE]
    return base[:-1] + "a" if base.endswith("-") else base


def _read_fields(obj: dict[str, Any], place: Place, fields: Mapping[str, Check], unknown: list[str]) -> list[FieldError]:
    found: list[FieldError] = []
    for key, value in list(obj.items()):
        check = fields.get(key)
        if check is None:
            unknown.append(str(_path((place, key))))
            del obj[key]
        elif value is None:
            del obj[key]
        elif type(value) is not str or check is not _string:
            found += check(value, (place, key), unknown)
    return found


def _path(place: Place) -> Path:
    if isinstance(place, Path):
        return place
    holder, step = place
    return _path(holder).index(step) if isinstance(step, int) else _path(holder).child(step)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_time(value: object) -> bool:
    return isinstance(value, str) and (_is_known_time(value) if len(value) <= _USUAL_TIME else _reads_as_time(value))


def _reads_as_time(value: str) -> bool:
    return times.parsed(value) is not None


_is_known_time: Final = lru_cache(maxsize=1024)(_reads_as_time)
_USUAL_TIME: Final = 40
"""Clients may make longer ones of any length, so these are not cached."""


def _scalar(holds: Callable[[object], bool], rule: str) -> Check:
    def read_scalar(value: Any, place: Place, _: list[str]) -> list[FieldError]:  # noqa: ANN401 - a client's JSON
        return [] if holds(value) else [type_invalid(_path(place), value, rule)]

    return read_scalar


_string: Final = _scalar(lambda value: isinstance(value, str), "must be a string")


def _text_of(most: int) -> Check:
    def read_text(value: Any, place: Place, unknown: list[str]) -> list[FieldError]:  # noqa: ANN401 - a client's JSON
        if found := _string(value, place, unknown):
            return found
        if len(value.encode(errors="surrogatepass")) > most:
            return [too_long(_path(place), most)]
        wrong = next(((at, each) for at, each in enumerate(value) if not each.isprintable()), None)
        return [invalid(_path(place), value, f"invalid character U+{ord(wrong[1]):04X} (at position {wrong[0]})")] if wrong else []

    return read_text


_boolean: Final = _scalar(lambda value: isinstance(value, bool), "must be a boolean")
_object: Final = _scalar(lambda value: isinstance(value, dict), "must be an object")
_integer: Final = _scalar(_is_integer, "must be a 64-bit integer")
_time: Final = _scalar(_is_time, "must be an RFC 3339 time such as 2006-01-02T15:04:05Z")


_STRING_ALONE: Final = frozenset({str})


def _strings(value: Any, place: Place, unknown: list[str]) -> list[FieldError]:  # noqa: ANN401 - a client's JSON
    if not isinstance(value, dict):
        return [type_invalid(_path(place), value, "must be an object")]
    if set(map(type, value.values())) <= _STRING_ALONE:
        return []
    for key in [key for key, each in value.items() if each is None]:
        value[key] = ""  # Go decodes a null string as the empty string
    return [error for key, each in value.items() for error in _string(each, _path(place).key(key), unknown)]


def _list_of(check: Check) -> Check:
    def read_list(value: Any, place: Place, unknown: list[str]) -> list[FieldError]:  # noqa: ANN401 - a client's JSON
        if not isinstance(value, list):
            return [type_invalid(_path(place), value, "must be a list")]
        return [error for position, each in enumerate(value) for error in check(each, (place, position), unknown)]

    return read_list


def _record(fields: Mapping[str, Check]) -> Check:
    def read_record(value: Any, place: Place, unknown: list[str]) -> list[FieldError]:  # noqa: ANN401 - a client's JSON
        if not isinstance(value, dict):
            return [type_invalid(_path(place), value, "must be an object")]
        return _read_fields(value, place, fields, unknown)

    return read_record


_OWNER: Final[Mapping[str, Check]] = {
    "apiVersion": _string,
    "kind": _string,
    "name": _string,
    "uid": _string,
    "controller": _boolean,
    "blockOwnerDeletion": _boolean,
}
_MANAGED: Final[Mapping[str, Check]] = {
    "manager": _text_of(MAX_MANAGER_BYTES),
    "operation": _string,
    "apiVersion": _string,
    "time": _time,
    "fieldsType": _string,
    "fieldsV1": _object,
    "subresource": _text_of(_MAX_SUBRESOURCE_BYTES),
}
_META: Final[Mapping[str, Check]] = {
    "name": _string,
    "generateName": _string,
    "namespace": _string,
    "selfLink": _string,
    "uid": _string,
    "resourceVersion": _string,
    "generation": _integer,
    "creationTimestamp": _time,
    "deletionTimestamp": _time,
    "deletionGracePeriodSeconds": _integer,
    "labels": _strings,
    "annotations": _strings,
    "ownerReferences": _list_of(_record(_OWNER)),
    "finalizers": _list_of(_string),
    "managedFields": _list_of(_record(_MANAGED)),
}
_META_REPEATED: Final = {**_META, "managedFields": lambda *_: []}
"""For an object that repeats the stored managed fields."""
