"""Options of verbs: fields of a request's body, each with its check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from apiserver.apis.meta import errors, objectmeta, objects, validation
from apiserver.apis.meta.names import subdomain_errors
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.lifecycle import freezing, keys
from apiserver.apis.virt.places import forms
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.v1alpha1.validation import MAX_GRACE_SECONDS, MAX_PRIORITY

Check = Callable[[object, Path], Iterator[FieldError]]


def require(vm: Object, body: Object, allowed: frozenset[str], needed: frozenset[str] = frozenset()) -> None:
    """Check a verb's body; null counts as missing.

    Raises Invalid for fields that are not ``allowed``, missing although ``needed``, or wrong.
    """
    unknown = sorted(body.keys() - allowed - {"kind", "apiVersion"})
    found = [validation.unknown_field(each) for each in unknown]
    found += [validation.required(Path(each), "") for each in sorted(needed) if body.get(each) is None]
    for name in sorted(allowed):
        if body.get(name) is not None:
            found += _CHECKS[name](body[name], Path(name))
    if found:
        raise _error(vm, found)


def invalid(vm: Object, name: str, given: object, why: str) -> errors.Invalid:
    """Return the error for an option's value that does not fit this machine."""
    return _error(vm, [validation.invalid(Path(name), given, why)])


def _error(vm: Object, found: list[FieldError]) -> errors.Invalid:
    return validation.to_invalid(found, group=VIRTUAL_MACHINES.group, kind=VIRTUAL_MACHINES.kind, name=objects.name_of(vm))


def _id(given: object, path: Path) -> Iterator[FieldError]:
    if isinstance(given, str):
        yield from (validation.invalid(path, given, each) for each in forms.uid_errors(given))
    else:
        yield validation.type_invalid(path, given, "must be a string")


def _name(given: object, path: Path) -> Iterator[FieldError]:
    if isinstance(given, str):
        yield from (validation.invalid(path, given, each) for each in subdomain_errors(given))
    else:
        yield validation.type_invalid(path, given, "must be a string")


def _labels(given: object, path: Path) -> Iterator[FieldError]:
    if isinstance(given, dict) and all(isinstance(each, str) for each in given.values()):
        yield from objectmeta.validate_labels(given, path)
    else:
        yield validation.type_invalid(path, given, "must be an object with strings as values")


def _number(least: int, most: int) -> Check:
    def check(given: object, path: Path) -> Iterator[FieldError]:
        if not isinstance(given, int) or isinstance(given, bool):
            yield validation.type_invalid(path, given, "must be an integer")
        elif not least <= given <= most:
            yield validation.invalid(path, given, f"must be between {least} and {most}, inclusive")

    return check


def _boolean(given: object, path: Path) -> Iterator[FieldError]:
    if not isinstance(given, bool):
        yield validation.type_invalid(path, given, "must be true or false")


def _keys(given: object, path: Path) -> Iterator[FieldError]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        yield validation.type_invalid(path, given, "must be a list of strings")
    elif not given:
        yield validation.required(path, "name at least one key")
    elif len(given) > keys.MAX_KEYS:
        yield validation.too_many(path, len(given), keys.MAX_KEYS)
    else:
        for position, key in enumerate(given):
            yield from (validation.invalid(path.index(position), key, each) for each in keys.errors(key))


_CHECKS: Final[Mapping[str, Check]] = {
    "id": _id,
    "nodeSelector": _labels,
    "priority": _number(-MAX_PRIORITY, MAX_PRIORITY),
    "keys": _keys,
    "migration": _name,
    "paused": _boolean,
    "gracePeriodSeconds": _number(0, MAX_GRACE_SECONDS),
    "discardState": _boolean,
    "holdMilliseconds": _number(1, keys.MAX_HOLD_MILLISECONDS),
    "unfreezeTimeoutSeconds": _number(1, freezing.MAX_UNFREEZE_TIMEOUT_SECONDS),
}
