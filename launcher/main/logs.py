"""The log of virt-launcher."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping


class _Formatter(logging.Formatter):
    """A line for people, with what ``extra`` brought as ``key=value``."""

    _standard = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        extra: Mapping[str, object] = {key: value for key, value in vars(record).items() if key not in self._standard}
        return " ".join((super().format(record), *(f"{key}={value!r}" for key, value in extra.items())))


def configure() -> None:
    """Log to stderr, where the kubelet collects it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
