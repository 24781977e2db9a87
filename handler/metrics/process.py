"""The metrics of virt-handler."""

from __future__ import annotations

from apiserver.metrics import process
from apiserver.metrics.instruments import Cell, Gauge, Read, Registry
from controller.serving.reconcile_metrics import ReconcileMetrics
from handler.devices.acceleration import Verdict


class Metrics:
    """The metrics of virt-handler's process, without those of guests."""

    def __init__(self) -> None:
        self._registry = Registry()
        self._registry.add(*process.families())
        self._verdict: Verdict | None = None
        about = "1 if guests on this node use KVM, by reason."
        self._registry.add(Read("kubevirt_node_acceleration", "gauge", about, ("reason",), self._acceleration))
        self.links = self._gauge("kubevirt_launcher_links", "virt-launchers that virt-handler keeps a connection to.")
        self.streams = self._gauge("kubevirt_streams", "Open consoles and displays.")
        self.certificate = self._gauge(
            "kubevirt_certificate_expiration_timestamp_seconds",
            "Expiry of this node's certificate in seconds since 1970; 0: no certificate.",
        )
        self.faults = self._gauge("kubevirt_informer_faults", "Received objects that could not be processed; the log has the errors.")
        self.loops = ReconcileMetrics(self._registry)

    def verdict(self, verdict: Verdict) -> None:
        """Set whether guests are accelerated, replacing the last verdict."""
        self._verdict = verdict

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return self._registry.page()

    def _acceleration(self) -> list[tuple[tuple[str, ...], float]]:
        return [((self._verdict.reason,), float(self._verdict.accelerated))] if self._verdict is not None else []

    def _gauge(self, name: str, about: str) -> Cell:
        gauge = Gauge(name, about)
        self._registry.add(gauge)
        return gauge.cell()
