"""JSON patch, RFC 6902, as in Kubernetes: at most 10 000 operations, and copies of at most 3 MiB in total.

As in Go's library, ``test`` for null succeeds for a missing value, ``replace`` adds one, ``copy`` of one gives null, list positions may
count from the end (``/-1``), and a missing ``value`` is null.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from apiserver.apis.meta import errors

MAX_OPERATIONS: Final = 10_000
MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
_OPERATIONS: Final = frozenset({"add", "remove", "replace", "move", "copy", "test"})
_MEMBERS: Final = frozenset({"op", "path", "from", "value"})
_TEXTS: Final = ("op", "path", "from")
_REJECTED: Final = "the server rejected our request due to an error in our request"
_NEEDS_FROM: Final = frozenset({"move", "copy"})
_PLACE: Final = re.compile(r"[+-]?[0-9]{1,9}").fullmatch


class TestFailed(errors.Invalid):
    """A ``test`` operation found another value."""


class _Mismatch(ValueError):
    """The document has another value than ``test``."""


def apply(document: dict[str, Any], patch: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the patched ``document``, which may share parts with the unchanged arguments, and may be a list.

    Raises:
        BadRequest: ``patch`` is neither None nor a list of objects, or ``op``, ``path`` or ``from`` is no text.
        RequestEntityTooLarge: it has too many operations, or copies too much.
        Invalid: an operation is malformed, a ``test`` fails (TestFailed), or a path does not exist.
    """
    patching = _Patching(document)
    for position, operation in enumerate(_checked(patch)):
        try:
            patching.perform(operation)
        except _Mismatch as error:
            failed = _failed(position, operation, str(error))
            raise TestFailed(failed.message, failed.details) from None
        except ValueError as error:
            raise _failed(position, operation, str(error)) from None
    return patching.document


class _Patching:
    """A document during patching; changed parts are copied once."""

    def __init__(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        self.document = document
        self._own: dict[int, Any] = {}
        self._copied = 0

    def perform(self, operation: dict[str, Any]) -> None:
        path = operation["path"]
        match operation["op"]:
            case "add":
                self._add(path, operation.get("value"))
            case "remove":
                _remove(*self._container(path))
            case "replace":
                self._replace(path, operation.get("value"))
            case "move":
                container, key = self._container(operation["from"])
                value = _get(container, key)
                _remove(container, key)
                self._add(path, value)
            case "copy":
                value = _get(*self._container(operation["from"], change=False))
                self._container(path, change=False)
                self._copied += len(orjson.dumps(value))
                if self._copied > MAX_COPIED_BYTES:
                    raise errors.RequestEntityTooLarge(f"the copy operations of the JSON patch copy more than {MAX_COPIED_BYTES} bytes")
                self._add(path, orjson.loads(orjson.dumps(value)))
            case _:
                value, wanted = self.document if path == "" else _get(*self._container(path, change=False)), operation.get("value")
                if value != wanted or _canonical(value) != _canonical(wanted):
                    raise _Mismatch("testing value failed")

    def _add(self, path: str, value: Any) -> None:  # noqa: ANN401 - any JSON value
        container, key = self._container(path)
        if isinstance(container, dict):
            container[key] = value
        else:
            container.insert(len(container) if key == "-" else _place(key, len(container) + 1), value)

    def _replace(self, path: str, value: Any) -> None:  # noqa: ANN401 - any JSON value
        if path == "":
            if not isinstance(value, dict | list):
                raise ValueError("replace operation value must be object or array")
            self.document = value
            return
        container, key = self._container(path)
        _set(container, key, value)

    def _container(self, path: str, *, change: bool = True) -> tuple[Any, str]:
        """Return (parent of the value at ``path``, its key there); with ``change``, the parent is our own copy.

        Raises ValueError without a parent.
        """
        steps = [each.replace("~1", "/").replace("~0", "~") for each in path.split("/")[1:]]
        if not steps or not isinstance(self.document, dict | list):
            raise ValueError(f'doc is missing path: "{path}"')
        if change:
            self.document = self._owned(self.document)
        found = self.document
        for step in steps[:-1]:
            below = _get(found, step)
            if not isinstance(below, dict | list):
                raise ValueError(f'doc is missing path: "{path}"')  # noqa: TRY004 - it is the path that is wrong
            if change and below is not (owned := self._owned(below)):
                _set(found, step, owned)
                below = owned
            found = below
        return found, steps[-1]

    def _owned(self, container: Any) -> Any:  # noqa: ANN401 - a JSON object or list
        if id(container) in self._own:
            return container
        copied = container.copy()
        self._own[id(copied)] = copied  # kept, so no other object gets its id
        return copied


def _get(container: Any, key: str) -> Any:  # noqa: ANN401 - any JSON values
    return container.get(key) if isinstance(container, dict) else container[_place(key, len(container))]


def _set(container: Any, key: str, value: Any) -> None:  # noqa: ANN401 - any JSON values
    if isinstance(container, dict):
        container[key] = value
    else:
        container[_place(key, len(container))] = value


def _remove(container: Any, key: str) -> None:  # noqa: ANN401 - a JSON object or list
    if isinstance(container, dict):
        if key not in container:
            raise ValueError(f"Unable to remove nonexistent key: {key}")
        del container[key]
    else:
        del container[_place(key, len(container))]


def _place(key: str, size: int) -> int:
    if not _PLACE(key):
        raise ValueError(f"value was not a proper array index: {key[:64]!r}")
    place = int(key)
    if not -size <= place < size:
        raise ValueError(f"Unable to access invalid index: {place}")
    return place % size


def _canonical(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def unknown_members(patch: Any) -> list[str]:  # noqa: ANN401 - any JSON value
    """Return the paths (``[0].extra``) of operations' members that JSON patch does not define."""
    operations = [each if isinstance(each, dict) else {} for each in patch] if isinstance(patch, list) else []
    return [f"[{position}].{key}" for position, each in enumerate(operations) for key in each if key not in _MEMBERS]


def _checked(patch: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON value
    if patch is None:
        return []
    if not isinstance(patch, list):
        raise errors.BadRequest("error decoding patch: a JSON patch must be a list of operations")
    if len(patch) > MAX_OPERATIONS:
        text = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}"
        raise errors.RequestEntityTooLarge(text)
    for position, operation in enumerate(patch):
        if not isinstance(operation, dict | None) or not all(isinstance((operation or {}).get(key), str | None) for key in _TEXTS):
            raise errors.BadRequest(f"error decoding patch: operation {position} must be an object with strings as op, path and from")
        if (problem := _problem(operation or {})) is not None:
            raise errors.Invalid(f"{_REJECTED}: operation {position}: {problem}")
    return patch


def _problem(operation: dict[str, Any]) -> str | None:
    name = operation.get("op")
    if name not in _OPERATIONS:
        return f"unexpected kind: {name}"
    if not _is_pointer(operation.get("path")):
        return '"path" must be a JSON pointer (RFC 6901): empty, or starting with "/"'
    if name in _NEEDS_FROM and not _is_pointer(operation.get("from")):
        return f'"{name}" needs "from", a JSON pointer'
    return None


def _is_pointer(text: object) -> bool:
    return isinstance(text, str) and (not text or text.startswith("/"))


def _failed(position: int, operation: dict[str, Any], text: str) -> errors.Invalid:
    message = f'{_REJECTED}: operation {position}, "{operation["op"]}"'
    cause = errors.Cause("FieldValueInvalid", text, operation["path"])
    return errors.Invalid(f'{message} of "{operation["path"]}": {text}', errors.Details(causes=(cause,)))
