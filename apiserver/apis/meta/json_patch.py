"""JSON patch, RFC 6902, with the limits of Kubernetes: 10 000 operations, and copies that add up to at most 3 MiB."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

import jsonpatch
import jsonpointer

from apiserver.apis.meta import errors

MAX_OPERATIONS: Final = 10_000
MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
_OPERATIONS: Final = frozenset({"add", "remove", "replace", "move", "copy", "test"})
_NEEDS_VALUE: Final = frozenset({"add", "replace", "test"})
_NEEDS_FROM: Final = frozenset({"move", "copy"})


class TestFailed(errors.Invalid):
    """A ``test`` operation found another value."""


def apply(document: dict[str, Any], patch: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a patched copy of ``document``.

    Raises:
        BadRequest: ``patch`` is no JSON patch.
        RequestEntityTooLarge: it has too many operations, or copies too much.
        Invalid: a ``test`` fails, or a path leads nowhere.
    """
    operations = _checked(patch)
    result: Any = copy.deepcopy(document)
    copied = 0
    for position, operation in enumerate(operations):
        try:
            if operation["op"] == "copy":
                copied += len(json.dumps(jsonpointer.resolve_pointer(result, operation["from"])))
                if copied > MAX_COPIED_BYTES:
                    raise errors.RequestEntityTooLarge(f"the copy operations of the JSON patch copy more than {MAX_COPIED_BYTES} bytes")
            if operation["op"] == "replace" and _is_absent_member(result, operation["path"]):
                operation = {**operation, "op": "add"}  # noqa: PLW2901 - Go's library replaces what is absent
            result = jsonpatch.JsonPatch([operation]).apply(result, in_place=True)
        except jsonpatch.JsonPatchTestFailed as error:
            failed = _failed(position, operation, "testing value failed")
            raise TestFailed(failed.message, failed.details) from error
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, KeyError, TypeError, ValueError) as error:
            raise _failed(position, operation, str(error)) from error
    return result


def _is_absent_member(document: Any, path: str) -> bool:  # noqa: ANN401 - any JSON value
    """Return whether ``path`` names a member that an object does not have; everything on the way to it has to exist."""
    if not path:
        return False
    container, key = jsonpointer.JsonPointer(path).to_last(document)
    return isinstance(container, dict) and key not in container


def _checked(patch: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON value
    if not isinstance(patch, list):
        raise errors.BadRequest("error decoding patch: a JSON patch is a list of operations")
    if len(patch) > MAX_OPERATIONS:
        text = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}"
        raise errors.RequestEntityTooLarge(text)
    for position, operation in enumerate(patch):
        if (problem := _problem(operation)) is not None:
            raise errors.BadRequest(f"error decoding patch: operation {position}: {problem}")
    return patch


def _problem(operation: Any) -> str | None:  # noqa: ANN401 - any JSON value
    if not isinstance(operation, dict):
        return "must be an object"
    name = operation.get("op")
    if not isinstance(name, str) or name not in _OPERATIONS:
        return f"unexpected kind: {name}"
    if not _is_pointer(operation.get("path")):
        return '"path" must be a JSON pointer (RFC 6901): empty, or starting with "/"'
    if name in _NEEDS_VALUE and "value" not in operation:
        return f'"{name}" needs "value"'
    if name in _NEEDS_FROM and not _is_pointer(operation.get("from")):
        return f'"{name}" needs "from", a JSON pointer'
    return None


def _is_pointer(text: object) -> bool:
    return isinstance(text, str) and (not text or text.startswith("/"))


def _failed(position: int, operation: dict[str, Any], text: str) -> errors.Invalid:
    message = f'the server rejected our request due to an error in our request: operation {position}, "{operation["op"]}"'
    cause = errors.Cause("FieldValueInvalid", text, operation["path"])
    return errors.Invalid(f'{message} of "{operation["path"]}": {text}', errors.Details(causes=(cause,)))
