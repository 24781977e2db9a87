"""The metrics of virt-controller."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from apiserver.apis.virt.lifecycle import phases
from apiserver.client.informer import Informer
from controller.runtime.reconciling import Controller
from controller.serving.reconcile_metrics import ReconcileMetrics


class Metrics:
    """The figures of this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.loops = ReconcileMetrics(self.registry)
        self._depth = Gauge("kubevirt_workqueue_depth", "Objects that wait to be looked at.", ["controller"], registry=self.registry)
        self._faults = Gauge(
            "kubevirt_informer_faults", "Objects that could not be taken in or told of: see the log.", registry=self.registry
        )
        self._outdated = Gauge(
            "kubevirt_outdated_launchers",
            "Machines whose virt-launcher is of another release; 0 where nobody leads.",
            registry=self.registry,
        )
        self.leader = Gauge("kubevirt_leader", "1 while this process leads.", registry=self.registry)

    def watch_queue(self, controller: Controller) -> None:
        """Show how many requests wait in the loop's queue."""
        self._depth.labels(controller.name).set_function(lambda: len(controller.queue))

    def watch_informers(self, informers: Sequence[Informer]) -> None:
        """Show how much of what came could not be taken in."""
        self._faults.set_function(lambda: sum(each.faults for each in informers))

    def watch_outdated(self, count: Callable[[], int]) -> None:
        """Show how many guests run in pods of another release."""
        self._outdated.set_function(count)

    def watch_migrations(self, migrations: Informer) -> None:
        """Show how many Migrations are unfinished, by phase."""
        self.registry.register(_Migrations(migrations))

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


class _Migrations(Collector):
    """Counts unfinished Migrations when it is asked, in one pass. A copy that every replica has, so each of them says the same."""

    def __init__(self, migrations: Informer) -> None:
        self._migrations = migrations

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield the gauge; each phase has a value, of which 0 is one."""
        found = Counts(phases.phase_of(each) or phases.PENDING for each in self._migrations.list())
        gauge = GaugeMetricFamily(
            "kubevirt_migrations", "Unfinished Migrations by phase: those that are Pending wait for their turn.", labels=["phase"]
        )
        for phase in phases.MIGRATION_PHASES:
            if phase not in phases.MIGRATION_FINAL:
                gauge.add_metric([phase], found[phase])
        yield gauge
