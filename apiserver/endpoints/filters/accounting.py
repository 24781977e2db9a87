"""Metrics and log lines of finished requests."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.filters import metering
from apiserver.endpoints.filters.metering import Requests

logger = logging.getLogger(__name__)

SLOW_SECONDS: Final = 0.5
"""Slower requests get a log line, as in Go."""
CLIENT_CLOSED: Final = 499
"""The client abandoned the request."""
_APPLY: Final = "application/apply-patch+"
_OK: Final = 200
_SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class Accounting:
    """Reports finished requests to the metrics and the log."""

    requests: Requests

    def ended(self, context: RequestContext, code: int, seconds: float, size: int, *, long_running: bool) -> None:
        """Count and log a request, answered or left by its client (:data:`CLIENT_CLOSED`); ``size``: bytes of the response's body."""
        counted = _OK if long_running and code == CLIENT_CLOSED else code  # the client decides when these end
        self._count(context, counted, seconds, size, long_running=long_running)
        _log(context, code, seconds, long_running=long_running)

    def _count(self, context: RequestContext, code: int, seconds: float, size: int, *, long_running: bool) -> None:
        info = context.info
        connect = long_running and info.verb != "watch"
        if info.mutating:
            dry_run = metering.dry_run(context.request.query) if "?" in context.request.target else ""
            apply = info.verb == "patch" and context.request.headers.get("Content-Type", "").startswith(_APPLY)
            series = self.requests.series(info, dry_run=dry_run, apply=apply)
            series.ended(code, seconds, context.waited, size)
            if series.bodies is not None and (length := context.request.content_length):
                series.bodies.observe(length)
        else:
            self.requests.series(info, connect=connect).ended(code, seconds, context.waited, size)
        if code == CLIENT_CLOSED:
            self.requests.aborts.increment(*self.requests.labels(info)[:-1])


def _log(context: RequestContext, code: int, seconds: float, *, long_running: bool) -> None:
    slow = seconds > SLOW_SECONDS and not long_running
    level = logging.WARNING if code >= _SERVER_ERROR else logging.INFO if slow or context.annotations else logging.DEBUG
    if logger.isEnabledFor(level):
        about: dict[str, object] = {
            "audit_id": context.audit_id,
            "verb": context.info.verb,
            "path": context.info.path,
            "user": context.user.name,
            "code": code,
            "milliseconds": round(seconds * 1000, 1),
        }
        if context.waits:
            about["waited_milliseconds"] = {whom: round(held * 1000, 1) for whom, held in context.waits.items()}
        if context.annotations:
            about["annotations"] = dict(context.annotations)
        logger.log(level, "answered slowly" if slow else "answered", extra=about)
