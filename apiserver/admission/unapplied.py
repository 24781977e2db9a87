"""Explain why a webhook's or policy's JSON patch does not apply, in Go's words for common cases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from apiserver.apis.meta.errors import StatusError

_OPERATION: Final = re.compile(r"operation (\d{1,6})([,:] )")
_KNOWN: Final = ", "
"""After the number of an operation that was parsed, but did not apply."""


def why(error: StatusError, patch: Sequence[dict[str, Any] | None]) -> str:
    """Return in Go's words why the JSON patch ``patch`` failed; ``error``: of :func:`json_patch.apply`."""
    found = _OPERATION.search(error.message)
    if found is None:
        return error.message
    operation = patch[int(found[1])] or {}
    path, name = str(operation.get("path", "")), operation.get("op")
    if found[2] != _KNOWN:
        problem = error.message[found.end() :]
        return f"Unexpected kind: {name or 'unknown'}" if problem.startswith("unexpected kind") else problem
    match name:
        case "remove":
            return f"error in remove for path: '{path}': Unable to remove nonexistent key: {path.rpartition('/')[2]}: missing value"
        case "replace":
            return f"replace operation does not apply: doc is missing path: {path}: missing value"
        case "add":
            return f'add operation does not apply: doc is missing path: "{path}": missing value'
        case "test":
            return f"testing value {path} failed: test failed"
        case _:
            return error.message
