"""The metrics of virt-handler."""

from __future__ import annotations

import prometheus_client
from prometheus_client.core import CollectorRegistry

from controller.serving.reconcile_metrics import ReconcileMetrics
from handler.devices.acceleration import Verdict


class Metrics:
    """The metrics of this process."""

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
        self.loops = ReconcileMetrics(self.registry)

    def verdict(self, verdict: Verdict) -> None:
        """Set whether guests are accelerated, replacing the last verdict."""
        self.accelerated.clear()
        self.accelerated.labels(verdict.reason).set(1 if verdict.accelerated else 0)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry)
