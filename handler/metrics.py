"""The metrics of virt-handler."""

from __future__ import annotations

from typing import Final

import prometheus_client
from prometheus_client.core import CollectorRegistry

from controller.runtime.reconciling import Outcome
from handler.devices.acceleration import Verdict

_SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """The figures of this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self.accelerated = prometheus_client.Gauge(
            "kubevirt_node_acceleration", "1 if guests on this node are accelerated (KVM), by reason.", ["reason"], registry=self.registry
        )
        self.links = prometheus_client.Gauge("kubevirt_launcher_links", "Launchers that are looked after.", registry=self.registry)
        self.streams = prometheus_client.Gauge("kubevirt_streams", "Open consoles and displays.", registry=self.registry)
        self.certificate = prometheus_client.Gauge(
            "kubevirt_certificate_expiration_timestamp_seconds",
            "When this node's certificate ends; 0: there is none.",
            registry=self.registry,
        )
        self.faults = prometheus_client.Gauge(
            "kubevirt_informer_faults", "Objects that could not be taken in or told of: see the log.", registry=self.registry
        )
        self._reconciles = prometheus_client.Histogram(
            "kubevirt_reconcile_seconds", "Passes of the reconcile loops.", ["loop", "outcome"], buckets=_SECONDS, registry=self.registry
        )

    def verdict(self, verdict: Verdict) -> None:
        """Tell whether guests are accelerated, and nothing of what was told before."""
        self.accelerated.clear()
        self.accelerated.labels(verdict.reason).set(1 if verdict.accelerated else 0)

    def reconciled(self, name: str, outcome: Outcome, seconds: float) -> None:
        """Count a pass of a loop."""
        self._reconciles.labels(name, outcome).observe(seconds)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry)
