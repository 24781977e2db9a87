"""Watch metrics: the filters count open watches, each watch its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from apiserver.metrics.instruments import Cell, Counter, Histogram, HistogramCell, Registry, Tally, exponential

WATCH_LIST_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2, 4, 6, 8, 10, 15, 20, 30, 45, 60)


class WatchMeters:
    """Metrics of watches."""

    def __init__(self) -> None:
        labels = ("group", "version", "resource")
        self.events = Counter("apiserver_watch_events_total", "Events sent to watchers.", labels)
        self.sizes = Histogram(
            "apiserver_watch_events_sizes", "Sizes of events sent to watchers in bytes.", exponential(1024, 2, 8), labels
        )
        about = "Seconds from a WatchList request to the end of its initial events."
        self.lists = Histogram("apiserver_watch_list_duration_seconds", about, WATCH_LIST_SECONDS, (*labels, "scope"))
        about = "Watches closed because they were too slow."
        self.terminated = Counter("apiserver_terminated_watchers_total", about, ("group", "resource"))
        self._meters: dict[tuple[str, str, str], WatchMeter] = {}

    def watch(self, group: str, version: str, resource: str) -> WatchMeter:
        """Return the meter that all watches of a served resource share."""
        names = (group, version, resource)
        meter = self._meters.get(names)
        if meter is None:
            cells = self.events.cell(*names), self.sizes.cell(*names), self.terminated.cell(group, resource)
            meter = self._meters[names] = WatchMeter(*cells, self.lists, names)
        return meter

    def register(self, registry: Registry) -> None:
        """Add all metrics to the registry."""
        registry.add(self.events, self.sizes, self.lists, self.terminated)


@dataclass(slots=True)
class WatchMeter:
    """Counts one resource's events."""

    _events: Cell
    _sizes: HistogramCell
    _cut: Cell
    _lists: Histogram
    _names: tuple[str, str, str]

    def tally(self, frames: Sequence[bytes]) -> Tally:
        """Group frames by size, for :meth:`sent` of all watches that send them."""
        return self._sizes.tally([len(each) for each in frames])

    def sent(self, tally: Tally) -> None:
        """Count the sent events of a :meth:`tally`."""
        self._events.value += tally.number
        self._sizes.add(tally)

    def cut(self) -> None:
        """Count a watch cut off because it was too slow."""
        self._cut.value += 1

    def listed(self, seconds: float, scope: str) -> None:
        """Record the time to send the initial events of a WatchList."""
        self._lists.observe(seconds, *self._names, scope)
