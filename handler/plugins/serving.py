"""Makes one of our programs a plugin. Imports only the standard library, because it starts for each call."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from handler.plugins import protocol
from handler.plugins.protocol import Kind

Document = Mapping[str, Any]
Operation = Callable[[Document], Document]
"""Returns the result's members for virt-handler's request. Raises Error."""

_MOST: Final = 1 << 20


class Error(Exception):
    """An error that a plugin reports in its answer."""

    def __init__(self, code: int, message: str, details: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.details = details


def serve(kind: Kind, operations: Mapping[str, Operation], *, live_migration: bool) -> int:
    """Answer the plugin call in the environment and on standard input, on standard output; return the exit status.

    ``operations``: functions by command, from the request to the result.
    """
    command = os.environ.get(protocol.COMMAND_VARIABLE, "")
    try:
        told = _read(sys.stdin.buffer.read(_MOST))
        if command == "VERSION":
            result: Document = {
                "supportedVersions": [protocol.VERSION],
                "kinds": [kind],
                "liveMigration": live_migration,
                "commands": list(operations),
            }
        elif command in operations:
            result = operations[command](told)
        else:
            raise Error(protocol.UNSUPPORTED_FIELD, f"{protocol.COMMAND_VARIABLE} is {command!r}, which is not a plugin command")
    except Error as error:
        _say({"code": error.code, "msg": str(error), **({"details": error.details} if error.details else {})})
        return 1
    _say(result)
    return 0


def _read(text: bytes) -> Document:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Error(protocol.NOT_DECODED, f"standard input is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise Error(protocol.NOT_DECODED, "standard input is not a JSON object")
    if found.get("version") != protocol.VERSION:
        raise Error(protocol.INCOMPATIBLE_VERSION, f"asked in version {found.get('version')}, but supports only {protocol.VERSION}")
    return found


def _say(document: Document) -> None:
    sys.stdout.write(json.dumps({"version": protocol.VERSION, **document}))
