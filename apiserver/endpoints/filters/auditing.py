"""The audit filter: makes an event per stage, as the policy says, for the backends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from apiserver.apis.meta.errors import InternalError
from apiserver.apis.meta.users import User
from apiserver.endpoints.audit import sources
from apiserver.endpoints.audit.events import Pieces, Record
from apiserver.endpoints.audit.policy import Level, Policy, Stage, Verdict
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http.messages import Request
from apiserver.metrics.instruments import Counter, Registry

_NOBODY: Final = User("")


class Backend(Protocol):
    """Sink of events. ``add`` never blocks; await :meth:`room` before a request."""

    name: str

    @property
    def full(self) -> bool:
        """True if requests must await :meth:`room` first."""
        ...

    def add(self, event: str) -> None:
        """Take an event; without room, drop and count it."""
        ...

    async def room(self) -> None:
        """Wait for room or, in strict mode, until all events are stored.

        Raises:
            OSError: in strict mode, storing failed.
        """
        ...


class AuditMetrics:
    """Metrics of ``k8s.io/apiserver/pkg/audit/metrics.go``."""

    def __init__(self) -> None:
        self.events = Counter("apiserver_audit_event_total", "Audit events made and handed to the backends.")
        self.errors = Counter("apiserver_audit_error_total", "Audit events that were lost, by backend.", ("plugin",))
        self.levels = Counter("apiserver_audit_level_total", "Requests by audit level.", ("level",))
        self.rejected = Counter("apiserver_audit_requests_rejected_total", "Requests refused because they could not be recorded.")
        self.event = self.events.cell()
        self.level = [self.levels.cell(level.text) for level in Level]

    def register(self, registry: Registry) -> None:
        """Register all metrics."""
        registry.add(self.events, self.errors, self.levels, self.rejected)


class Auditor:
    """Records requests according to a policy."""

    def __init__(
        self,
        policy: Policy,
        backends: Sequence[Backend],
        metrics: AuditMetrics,
        *,
        now: Callable[[], int] = time.time_ns,
        limit: int = 0,
    ) -> None:
        """Take the policy and the backends; ``limit`` is :attr:`Record.limit`."""
        self._policy = policy
        self._backends = backends
        self._metrics = metrics
        self._now = now
        self._limit = limit
        self._adds = [each.add for each in backends]
        self._pieces = Pieces()

    def received(self, context: RequestContext) -> Record | None:
        """Make the first event of an authenticated request; None if not recorded."""
        verdict = self._policy.verdict(context.user, context.info)
        self._metrics.level[verdict.level].value += 1
        if verdict.level is Level.NONE:
            return None
        record = self._record(verdict, context, context.user)
        record.limit = self._limit
        if Stage.REQUEST_RECEIVED not in verdict.omit_stages:
            self._send(record.first())
        return record

    @property
    def full(self) -> bool:
        """True if a request must await :meth:`room`."""
        for each in self._backends:  # noqa: SIM110 - a generator for any() costs more than all that is asked here
            if each.full:
                return True
        return False

    async def room(self) -> None:
        """Wait until the backends have room.

        Raises:
            InternalError: a strict backend cannot store.
        """
        for each in self._backends:
            if each.full:
                try:
                    await each.room()
                except OSError:
                    self._metrics.rejected.increment()
                    raise InternalError("failed to store audit event") from None

    def started(self, record: Record, code: int) -> None:
        """Record that the answer of a long-running request began."""
        if not record.started:
            record.started = True
            self._emit(record, Stage.RESPONSE_STARTED, code)

    def ended(self, record: Record, code: int, annotations: Mapping[str, str]) -> None:
        """Record the end of a request."""
        self._emit(record, Stage.RESPONSE_COMPLETE, code, annotations)

    def panicked(self, record: Record, error: BaseException, annotations: Mapping[str, str]) -> None:
        """Record an unexpected exception, only by type because its text may contain client data."""
        record.status = {"status": "Failure", "reason": "InternalError", "message": f"APIServer panic'd: {type(error).__name__}"}
        self._emit(record, Stage.PANIC, 500, annotations)

    def unauthenticated(self, context: RequestContext, code: int) -> None:
        """Record a failed authentication: one event without a user."""
        verdict = self._policy.verdict(_NOBODY, context.info)
        self._metrics.level[verdict.level].value += 1
        if verdict.level is Level.NONE:
            return
        record = self._record(verdict, context, None)
        record.status = {"message": _attempted(context.request)}
        self._emit(record, Stage.RESPONSE_STARTED, code)

    def _record(self, verdict: Verdict, context: RequestContext, user: User | None) -> Record:
        request = context.request
        return Record(verdict, self._pieces, context.audit_id, context.info, self._now(), request.target, user, sources.of(request))

    def _emit(self, record: Record, stage: str, code: int, annotations: Mapping[str, str] | None = None) -> None:
        if stage not in record.verdict.omit_stages:
            self._send(record.event(stage, self._now(), code, annotations))

    def _send(self, event: str) -> None:
        self._metrics.event.value += 1
        for add in self._adds:
            add(event)


def _attempted(request: Request) -> str:
    """Describe the presented credentials in Go's words."""
    kind, _, rest = request.headers.get("Authorization", "").strip().partition(" ")
    shown = [
        *(["basic"] if kind.lower() == "basic" else []),
        *(["bearer"] if kind.lower() == "bearer" and rest else []),
        *(["x509"] if request.certificate else []),
    ]
    return f"Authentication failed, attempted: {', '.join(shown)}" if shown else "Authentication failed, no credentials provided"
