"""Metrics of reconcile loops, with controller-runtime's names and labels."""

from __future__ import annotations

from apiserver.metrics.instruments import Counter, Histogram, Registry
from controller.runtime.reconciling import Outcome


class ReconcileMetrics:
    """Counts passes of loops: an ``Observer``."""

    def __init__(self, registry: Registry) -> None:
        self._total = Counter("controller_runtime_reconcile_total", "Reconciliations by loop and result.", ("controller", "result"))
        bounds = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60)
        self._seconds = Histogram(
            "controller_runtime_reconcile_time_seconds", "Duration of a reconciliation in seconds.", bounds, ("controller",)
        )
        registry.add(self._total, self._seconds)

    def reconciled(self, name: str, outcome: Outcome, seconds: float) -> None:
        """Count one pass of the loop ``name``."""
        self._total.increment(name, outcome)
        self._seconds.observe(seconds, name)
