"""Log to standard error: one JSON object per line, or text. ``extra`` carries a line's fields."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal

_KNOWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def add_level_flag(add: Callable[..., object]) -> None:
    """Add ``--log-level`` by a parser's ``add_argument``."""
    add(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        type=str.lower,
        default="info",
        help="least severity",
    )


def configure(level: str, form: Literal["json", "text"] = "json") -> None:
    """Send this process's logs of ``level`` (such as ``info``) and above to standard error, in place of other handlers.

    asyncio's logs begin with warnings.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


class JSONFormatter(logging.Formatter):
    """Formats an object per line: time, level, logger, message, ``extra``, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Formats time, level, message and ``key=value``, then a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and a traceback if present."""
        extra = " ".join(f"{key}={value}" for key, value in _extra(record).items())
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname:7} {record.getMessage()} {extra}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _KNOWN}
