"""Reasons why a JSON patch of a webhook or a policy does not apply, in the words of Go's library for what is common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from apiserver.apis.meta.errors import StatusError

_OPERATION: Final = re.compile(r"operation (\d{1,6})([,:] )")
_KNOWN: Final = ", "
"""Text behind the number where the operation itself was read, but did not apply."""


def why(error: StatusError, patch: Sequence[dict[str, Any] | None]) -> str:
    """Return the reason of an error that applying ``patch`` raised."""
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
