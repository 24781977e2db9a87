"""JSON merge patch, RFC 7396: maps merge, null removes, everything else replaces."""

from __future__ import annotations

from typing import Any


def apply(document: Any, patch: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return ``document`` with a JSON merge patch applied; it may share parts with the unchanged arguments.

    As in Go's library, objects in a new list lose their null members, unless the list replaces an object.
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict | list):
            current = result.get(key)
            result[key] = apply(current, value) if isinstance(current, dict) else _without_nulls(value)
        else:
            result[key] = value
    return result


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
