"""Admission metrics, with the names of ``k8s.io/apiserver/pkg/admission/metrics``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from apiserver.metrics.exposition import heading, label_text, number
from apiserver.metrics.instruments import Counter, Histogram, HistogramCell, Registry

Step = Literal["admit", "validate"]
Type = Literal["admit", "validating"]
ErrorType = Literal["calling_webhook_error", "apiserver_internal_error", "no_error"]

_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
_WEBHOOK_SECONDS: Final = (*_SECONDS, 10, 25)
_CONDITION_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25)
_MAX_CODE: Final = 600


class _Summary:
    def __init__(self, name: str, documentation: str, cells: dict[tuple[str, ...], HistogramCell], labels: tuple[str, ...]) -> None:
        self.name = name
        self._documentation = documentation
        self._cells = cells
        self._labels = labels

    def lines(self) -> Iterator[str]:
        yield from heading(self.name, "summary", self._documentation)
        for values, each in list(self._cells.items()):
            labels = label_text(self._labels, values)
            yield f"{self.name}_sum{labels} {number(each.total)}"
            yield f"{self.name}_count{labels} {sum(each.counts)}"


class AdmissionMetrics:
    """Admission metrics of one server."""

    def __init__(self) -> None:
        of_step = ("type", "operation", "rejected")
        named = ("name", *of_step)
        of_condition = ("name", "kind", "type", "operation")
        self._step = Histogram("apiserver_admission_step_admission_duration_seconds", "Time of a step, all plug-ins.", _SECONDS, of_step)
        self._steps: dict[tuple[str, ...], HistogramCell] = {}
        self._summary = _Summary(
            "apiserver_admission_step_admission_duration_seconds_summary", "Time of a step, all plug-ins.", self._steps, of_step
        )
        self._plugin = Histogram("apiserver_admission_controller_admission_duration_seconds", "Time of a plug-in.", _SECONDS, named)
        self._plugins: dict[tuple[str, ...], HistogramCell] = {}
        self._webhook = Histogram("apiserver_admission_webhook_admission_duration_seconds", "Time of a webhook.", _WEBHOOK_SECONDS, named)
        self._requests = Counter(
            "apiserver_admission_webhook_request_total", "Calls of webhooks by answer.", ("name", "type", "operation", "code", "rejected")
        )
        self._rejections = Counter(
            "apiserver_admission_webhook_rejection_count",
            "Requests that a webhook, or a failure to call it, refused.",
            ("name", "type", "operation", "error_type", "rejection_code"),
        )
        self._failed_open = Counter(
            "apiserver_admission_webhook_fail_open_count", "Webhooks that could not be called and were passed over.", ("name", "type")
        )
        self._condition_errors = Counter(
            "apiserver_admission_match_condition_evaluation_errors_total", "Match conditions that failed.", of_condition
        )
        self._exclusions = Counter(
            "apiserver_admission_match_condition_exclusions_total", "Requests that match conditions left out.", of_condition
        )
        self._condition_seconds = Histogram(
            "apiserver_admission_match_condition_evaluation_seconds", "Time of match conditions.", _CONDITION_SECONDS, of_condition
        )

    def register(self, registry: Registry) -> None:
        """Register all metrics."""
        registry.add(self._step, self._summary, self._plugin, self._webhook, self._requests, self._rejections, self._failed_open)
        registry.add(self._condition_errors, self._exclusions, self._condition_seconds)

    def step(self, step: Step, operation: str, seconds: float, *, rejected: bool) -> None:
        """Record a run of all mutating, or all validating, plug-ins."""
        key = (step, operation, "true" if rejected else "false")
        cell = self._steps.get(key)
        if cell is None:
            cell = self._steps[key] = self._step.cell(*key)
        cell.observe(seconds)

    def plugin(self, name: str, step: Step, operation: str, seconds: float, *, rejected: bool) -> None:
        """Record one plug-in's run."""
        key = (name, step, operation, "true" if rejected else "false")
        cell = self._plugins.get(key)
        if cell is None:
            cell = self._plugins[key] = self._plugin.cell(*key)
        cell.observe(seconds)

    def webhook(self, name: str, type_: Type, operation: str, seconds: float, code: int, *, rejected: bool) -> None:
        """Record a webhook's call; ``code``: 200 if allowed, else the refusal's or failure's."""
        refused = "true" if rejected else "false"
        self._webhook.observe(seconds, name, type_, operation, refused)
        self._requests.increment(name, type_, operation, str(min(code, _MAX_CODE)), refused)

    def rejection(self, name: str, type_: Type, operation: str, error_type: ErrorType, code: int) -> None:
        """Count a request that a webhook, or a failure to call it, refused."""
        self._rejections.increment(name, type_, operation, error_type, str(min(code, _MAX_CODE)))

    def failed_open(self, name: str, type_: Type) -> None:
        """Count a failed webhook call that ``failurePolicy: Ignore`` passed over."""
        self._failed_open.increment(name, type_)

    def conditions(self, name: str, kind: str, type_: str, operation: str, seconds: float) -> None:
        """Record the evaluation time of a webhook's or policy's match conditions."""
        self._condition_seconds.observe(seconds, name, kind, type_, operation)

    def condition_error(self, name: str, kind: str, type_: str, operation: str) -> None:
        """Count a failed match condition."""
        self._condition_errors.increment(name, kind, type_, operation)

    def excluded(self, name: str, kind: str, type_: str, operation: str) -> None:
        """Count a request excluded by match conditions."""
        self._exclusions.increment(name, kind, type_, operation)
