"""Policy metrics, with Go's names (``plugin/policy/validating/metrics``, ``plugin/policy/mutating/metrics``)."""

from __future__ import annotations

from typing import Final, Literal

from apiserver.admission.policy.evaluating import OUT_OF_BUDGET
from apiserver.metrics.instruments import Counter, Histogram, Registry

ErrorType = Literal["compile_error", "invalid_error", "out_of_budget", "no_error"]
Action = Literal["allow", "deny", "audit", "warn"]

_SECONDS: Final = (0.0000005, 0.001, 0.01, 0.1, 1.0)
_LABELS: Final = ("policy", "policy_binding", "error_type")


def error_type(problem: str) -> ErrorType:
    """Return the kind of failure that a message describes; ``no_error`` if empty."""
    if not problem:
        return "no_error"
    if problem.startswith("compilation"):
        return "compile_error"
    return "out_of_budget" if problem.startswith(OUT_OF_BUDGET[:40]) else "invalid_error"


class ValidatingMetrics:
    """Metrics of ValidatingAdmissionPolicies: all results except plain admission."""

    def __init__(self) -> None:
        name, labels = "apiserver_validating_admission_policy_check", (*_LABELS, "enforcement_action")
        self._checks = Counter(f"{name}_total", "Validations that failed, by what came of it.", labels)
        self._seconds = Histogram(f"{name}_duration_seconds", "Time of validations that failed.", _SECONDS, labels)

    def register(self, registry: Registry) -> None:
        """Register all metrics."""
        registry.add(self._checks, self._seconds)

    def observe(self, policy: str, binding: str, error: ErrorType, action: Action, seconds: float) -> None:
        """Record a failed validation and its consequence."""
        self._checks.increment(policy, binding, error, action)
        self._seconds.observe(seconds, policy, binding, error, action)


class MutatingMetrics:
    """Metrics of MutatingAdmissionPolicies."""

    def __init__(self) -> None:
        name = "apiserver_mutating_admission_policy_check"
        self._checks = Counter(f"{name}_total", "Mutations that were evaluated.", _LABELS)
        self._seconds = Histogram(f"{name}_duration_seconds", "Time of mutations.", _SECONDS, _LABELS)

    def register(self, registry: Registry) -> None:
        """Register all metrics."""
        registry.add(self._checks, self._seconds)

    def observe(self, policy: str, binding: str, error: ErrorType, seconds: float) -> None:
        """Record a mutation's evaluation."""
        self._checks.increment(policy, binding, error)
        self._seconds.observe(seconds, policy, binding, error)
