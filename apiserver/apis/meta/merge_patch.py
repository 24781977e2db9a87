"""JSON merge patch, RFC 7396: maps merge, null removes, everything else replaces."""

from __future__ import annotations

from typing import Any


def apply(document: Any, patch: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return ``document`` as ``patch`` wants it. Neither is changed; the result may share parts with both."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply(result.get(key), value)
    return result
