"""Parses the importer's reports (``importer.reporting``) and its exit.

The importer processes untrusted data, so anything but a valid report is ignored.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import Final, get_args

from apiserver.apis.meta.lines import one_line
from launcher.protocol import messages

MAX_MESSAGE: Final = 512
MAX_BYTES: Final = 1 << 62

_PHASES: Final = frozenset(get_args(messages.ImportPhase))


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an import."""

    phase: messages.ImportPhase
    transferred_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Result:
    """End of an import."""

    failure: str
    """Empty: success."""


def read(line: bytes) -> Progress | Result | None:
    """Return the Progress or Result in a line of the importer's output; None for an unknown phase. Raises ValueError."""
    try:
        said = json.loads(line)
        if "result" in said:
            return Result("" if said["result"] == "Succeeded" else one_line(str(said.get("message") or "it failed"), MAX_MESSAGE))
        if said["phase"] in _PHASES:
            return Progress(said["phase"], _bytes(said["bytes"]), _bytes(said["total"]))
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"the importer wrote no report: {type(error).__name__}") from error
    return None


def failure(code: int, result: Result | None) -> str:
    """Return why an import failed, by its exit code and result; empty if it succeeded. Without a result, it failed."""
    if result is not None and (result.failure or code == 0):
        return result.failure
    return f"the importer exited with status {code} and no message" + (": memory?" if code == -signal.SIGKILL else "")


def _bytes(said: object) -> int:
    return min(max(said, 0), MAX_BYTES) if isinstance(said, int) else 0
