"""The metrics of virt-controller."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Sequence

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import evictions, phases
from apiserver.client.informer import Informer
from apiserver.metrics import process
from apiserver.metrics.instruments import Gauge, Read, Registry
from controller.manager import machine_metrics
from controller.runtime.reconciling import Controller
from controller.serving.reconcile_metrics import ReconcileMetrics


class Metrics:
    """virt-controller's metrics."""

    def __init__(self) -> None:
        self._registry = Registry()
        self._registry.add(*process.families())
        self.loops = ReconcileMetrics(self._registry)
        self._queues: dict[str, Controller] = {}
        about = "Objects in the work queue."
        self._registry.add(Read("kubevirt_workqueue_depth", "gauge", about, ("controller",), self._depths))
        leader = Gauge("kubevirt_leader", "1 while this process is the leader.")
        self._registry.add(leader)
        self.leader = leader.cell()
        self._faults: Callable[[], int] = int
        about = "Received objects that could not be processed; the log has the errors."
        self._registry.add(Read("kubevirt_informer_faults", "gauge", about, (), lambda: [((), self._faults())]))
        self._outdated: Callable[[], int] = int
        self._machines: Callable[[], Sequence[Object]] = list
        self._migrations: Callable[[], Sequence[Object]] = list
        self._strategy: evictions.Strategy = evictions.LIVE_MIGRATE_IF_POSSIBLE
        about = "Machines with a virt-launcher of another version; 0 in a process that is not the leader."
        self._registry.add(Read("kubevirt_outdated_launchers", "gauge", about, (), lambda: [((), self._outdated())]))
        self._non_operational: Callable[[], Sequence[str]] = list
        about = "1 for a node that starts avoid, because they fail there; only the leader has them."
        self._registry.add(
            Read("kubevirt_node_non_operational", "gauge", about, ("node",), lambda: [((each,), 1) for each in self._non_operational()])
        )

    def watch_queue(self, controller: Controller) -> None:
        """Add the length of this loop's queue to the metrics."""
        self._queues[controller.name] = controller

    def watch_informers(self, informers: Sequence[Informer]) -> None:
        """Add the number of received objects that these informers could not process to the metrics."""
        self._faults = lambda: sum(each.faults for each in informers)

    def watch_machines(self, machines: Callable[[], Sequence[Object]], strategy: evictions.Strategy) -> None:
        """Add metrics of each machine, on the leader. ``strategy`` is the cluster's for evictions."""
        self._machines = machines
        self._strategy = strategy

    def watch_outdated(self, count: Callable[[], int]) -> None:
        """Add the number of guests in pods of another version to the metrics."""
        self._outdated = count

    def watch_nodes(self, non_operational: Callable[[], Sequence[str]]) -> None:
        """Add the names of the nodes that starts avoid to the metrics."""
        self._non_operational = non_operational

    def watch_migrations(self, migrations: Informer) -> None:
        """Add metrics of each Migration, and the number of unfinished ones by phase, even if 0. Call it once."""
        self._migrations = migrations.list

        def by_phase() -> list[tuple[tuple[str, ...], float]]:
            found = Counts(phases.phase_of(each) or phases.PENDING for each in migrations.list())
            return [((each,), found[each]) for each in phases.MIGRATION_PHASES if each not in phases.MIGRATION_FINAL]

        about = "Unfinished Migrations by phase; Pending ones wait in the queue."
        self._registry.add(Read("kubevirt_migrations", "gauge", about, ("phase",), by_phase))

    async def page(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return self._registry.page() + await machine_metrics.page(self._machines(), self._migrations(), self._strategy)

    def _depths(self) -> list[tuple[tuple[str, ...], float]]:
        return [((name,), len(each.queue)) for name, each in self._queues.items()]
