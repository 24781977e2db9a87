"""Checks plain JSON against a model: all unknown fields and wrong types at once."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from apiserver.apis.meta.validation import FieldError, Path, invalid, not_supported, required, type_invalid

_TYPES: Final = {
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "int_or_string_type": "must be an integer or a string",
    "float_type": "must be a number",
    "bool_type": "must be a boolean",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "quantity_type": "must be a quantity such as 512Mi",
}
_OBJECTS: Final = frozenset({"dict_type", "model_type", "model_attributes_type"})
_MAX_DEPTH: Final = 64
MAX_VALUES: Final = 20_000
"""In an object's lists and maps."""
_IGNORED: Final = frozenset({"metadata", "apiVersion", "kind"})


def read(model: type[BaseModel], obj: dict[str, Any]) -> tuple[tuple[str, ...], tuple[FieldError, ...]]:
    """Drop unknown fields and null members from ``obj``, in place; return (paths of unknown fields, errors of wrong values).

    As in Go, a null member means unset; null items of lists stay. ``metadata``, ``apiVersion`` and ``kind`` are not checked. Errors are
    also missing fields, more than ``MAX_VALUES``, and too deep nesting; after the last two, unknown fields may stay.
    """
    content = {key: value for key, value in obj.items() if key not in _IGNORED}
    written = _written(content)
    if (written is None or len(written) > 2 * MAX_VALUES) and (place := _with_too_many_values(content)):
        return (), (invalid(Path(place), "…", f"an object has at most {MAX_VALUES} values in its lists and maps"),)
    nulls = written is None or b"null" in written
    if not nulls and _fits(model, content):
        return (), ()
    unknown = _unknown_nulls(model, content) if nulls else []
    if (deep := _drop_nulls(content, _MAX_DEPTH)) is not None:
        return (), (invalid(_path(deep), "…", f"nested deeper than {_MAX_DEPTH} levels"),)
    for key in obj.keys() - content.keys() - _IGNORED:
        del obj[key]
    found: list[FieldError] = []
    try:
        model.model_validate(content)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_context=True):
            if each["type"] == "extra_forbidden":
                unknown.append(str(_path(each["loc"])))
                _remove(obj, each["loc"])
            else:
                found.append(_field_error(each))
    return tuple(unknown), tuple(found)


def prune(model: type[BaseModel], obj: dict[str, Any]) -> None:
    """Remove what the model refuses from ``obj``, in place: unknown fields and wrong values. Required fields may be missing afterwards.

    An item that should be an object becomes an empty one, so others keep their positions; any other refused item removes its list.
    ``metadata``, ``apiVersion`` and ``kind`` stay.

    Raises:
        ValueError: it has more than ``MAX_VALUES``.
    """
    content = {key: value for key, value in obj.items() if key not in _IGNORED}
    if _with_too_many_values(content):
        raise ValueError("too many values")
    try:
        model.model_validate(content)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_context=False):
            _take_out(obj, each["loc"], is_object=each["type"] in _OBJECTS)


def _take_out(obj: dict[str, Any], location: tuple[int | str, ...], *, is_object: bool) -> None:
    place: Any = obj
    for depth, step in enumerate(location):
        below = location[depth + 1 :]
        if isinstance(place, dict):
            if not below or (len(below) == 1 and isinstance(below[0], int) and not is_object):
                place.pop(step, None)
                return
            place = place.get(step)
        elif isinstance(place, list) and isinstance(step, int) and step < len(place):
            if not below:
                place[step] = {}
                return
            place = place[step]
        else:
            return  # removed with its parent


def _written(content: dict[str, Any]) -> bytes | None:
    try:
        return orjson.dumps(content)
    except orjson.JSONEncodeError:  # nested too deeply, or beyond 64 bits
        return None


def _with_too_many_values(content: dict[str, Any]) -> str:
    """Return the top-level field at which the object exceeds ``MAX_VALUES``, or ""."""
    count = 0
    for field, value in content.items():
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, dict | list):
                count += len(each)
                if count > MAX_VALUES:
                    return field
                waiting.extend(each.values() if isinstance(each, dict) else each)
    return ""


def _fits(model: type[BaseModel], content: dict[str, Any]) -> bool:
    try:
        model.__pydantic_validator__.validate_python(content)  # model_validate takes 50 % longer
    except (ValidationError, RecursionError):
        return False
    return True


def _unknown_nulls(model: type[BaseModel], content: dict[str, Any]) -> list[str]:
    try:
        model.model_validate(content)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        return [str(_path(each["loc"])) for each in found if each["type"] == "extra_forbidden" and each["input"] is None]
    except RecursionError:
        pass  # too deep nesting is found next
    return []


def _field_error(error: ErrorDetails) -> FieldError:
    kind, path, value = error["type"], _path(error["loc"]), error["input"]
    if kind == "missing":
        return required(path)
    if kind == "literal_error":
        if not isinstance(value, str):
            return type_invalid(path, value, "must be a string")
        return not_supported(path, value, re.findall(r"'([^']*)'", str(error.get("ctx", {}).get("expected", ""))))
    if kind in _TYPES:
        return type_invalid(path, value, _TYPES[kind])
    return invalid(path, value, error["msg"].replace("Input should be", "must be"))


def _path(location: tuple[int | str, ...]) -> Path:
    path = Path()
    for part in location:
        path = path.index(part) if isinstance(part, int) else path.child(part)
    return path


def _remove(obj: dict[str, Any], location: tuple[int | str, ...]) -> None:
    place: Any = obj
    for part in location[:-1]:
        place = place[part]
    place.pop(location[-1], None)


def _drop_nulls(value: Any, depth: int) -> tuple[int | str, ...] | None:  # noqa: ANN401 - any JSON value
    """Remove null members of objects in place; null items of lists stay.

    Returns the path of an object or list nested deeper than ``depth``, and then some nulls may be left; else None.
    """
    if depth == 0:
        return ()
    if isinstance(value, dict):
        for key in [key for key, each in value.items() if each is None]:
            del value[key]
    elif not isinstance(value, list):
        return None
    for step, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, (dict, list)) and (deep := _drop_nulls(each, depth - 1)) is not None:
            return (step, *deep)  # built while returning: a long key is not copied for each value below
    return None
