"""Counters, gauges and histograms, and their registry. Single-threaded.

A metric takes at most ``limit`` combinations of label values; further ones share a cell with values ``other``, so that
invented names cannot fill memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from apiserver.metrics.exposition import heading, histogram_lines, label_text, number

OTHER: Final = "other"
LIMIT: Final = 2000


class Family(Protocol):
    """One metric with all its series."""

    @property
    def name(self) -> str:
        """The metric's name."""
        ...

    def lines(self) -> Iterator[str]:
        """Yield this metric's lines, without line ends."""
        ...


class Cell:
    """One number; its holder writes ``cell.value += 1``."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """Values grouped by buckets, to count repeatedly."""

    number: int
    total: float
    buckets: tuple[tuple[int, int], ...]
    """Pairs of bucket and count."""


class HistogramCell:
    """Counts by bucket; the last bucket is unbounded."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def tally(self, values: Sequence[float]) -> Tally:
        """Return values grouped by bucket, uncounted, for :meth:`add` of cells with the same bounds."""
        buckets = Counts(bisect_left(self._bounds, value) for value in values)
        return Tally(len(values), sum(values), tuple(buckets.items()))

    def add(self, tally: Tally) -> None:
        """Count all values of a :meth:`tally`."""
        for bucket, count in tally.buckets:
            self.counts[bucket] += count
        self.total += tally.total


class _Labelled:
    def __init__(self, name: str, documentation: str, labels: Sequence[str] = (), *, limit: int = LIMIT) -> None:
        self.name = name
        self.labels = tuple(labels)
        self._documentation = documentation
        self._limit = limit

    def _key(self, values: tuple[str, ...], known: int) -> tuple[str, ...]:
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {values}")
        return values if known < self._limit else (OTHER,) * len(self.labels)


class _Numbers(_Labelled):
    kind = "untyped"

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = (), *, limit: int = LIMIT) -> None:
        super().__init__(name, documentation, labels, limit=limit)
        self._cells: dict[tuple[str, ...], Cell] = {}

    def cell(self, *values: str) -> Cell:
        """Return the cell for label values, as :meth:`_Numbers.cell`."""
        found = self._cells.get(values)
        if found is None:
            found = self._cells.setdefault(self._key(values, len(self._cells)), Cell())
        return found

    def lines(self) -> Iterator[str]:
        yield from heading(self.name, self.kind, self._documentation)
        for values, each in list(self._cells.items()):
            yield f"{self.name}{label_text(self.labels, values)} {number(each.value)}"


class Counter(_Numbers):
    """Numbers that only grow; usually named ``…_total``."""

    kind = "counter"

    def increment(self, *values: str) -> None:
        """Add one under these label values; for frequent use, keep the :meth:`cell`."""
        self.cell(*values).value += 1


class Gauge(_Numbers):
    """Numbers that go up and down."""

    kind = "gauge"


class Histogram(_Labelled):
    """Counts of values by bucket."""

    def __init__(self, name: str, documentation: str, bounds: Sequence[float], labels: Sequence[str] = (), *, limit: int = LIMIT) -> None:
        super().__init__(name, documentation, labels, limit=limit)
        self.bounds = tuple(bounds)
        self._cells: dict[tuple[str, ...], HistogramCell] = {}

    def cell(self, *values: str) -> HistogramCell:
        """Return the cell for label values, created if missing; beyond the limit, the shared cell ``other``."""
        found = self._cells.get(values)
        if found is None:
            found = self._cells.setdefault(self._key(values, len(self._cells)), HistogramCell(self.bounds))
        return found

    def observe(self, value: float, *values: str) -> None:
        """Count one value under these label values; for frequent use, keep the :meth:`cell`."""
        self.cell(*values).observe(value)

    def lines(self) -> Iterator[str]:
        """Yield this metric's lines."""
        yield from heading(self.name, "histogram", self._documentation)
        for values, each in list(self._cells.items()):
            yield from histogram_lines(self.name, self.labels, values, self.bounds, each.counts, each.total)


class Read:
    """A metric with numbers from a function, called for each page."""

    def __init__(
        self,
        name: str,
        kind: str,
        documentation: str,
        labels: Sequence[str],
        read: Callable[[], Iterable[tuple[tuple[str, ...], float]]],
    ) -> None:
        """``read`` is called for each page, and yields (label values, number) per series."""
        self.name = name
        self._head = list(heading(name, kind, documentation))
        self._labels = tuple(labels)
        self._read = read

    def lines(self) -> Iterator[str]:
        """Yield this metric's lines."""
        yield from self._head
        for values, value in self._read():
            yield f"{self.name}{label_text(self._labels, values)} {number(value)}"


class Registry:
    """Metrics with unique names."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def add(self, *families: Family) -> None:
        """Add metrics; raises ValueError for a taken name."""
        for each in families:
            if each.name in self._families:
                raise ValueError(f"there are two metrics {each.name}")
            self._families[each.name] = each

    def page(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        lines = [line for name in sorted(self._families) for line in self._families[name].lines()]
        return "\n".join([*lines, ""]).encode()


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return bucket bounds: ``start``, then each ``factor`` times larger."""
    return tuple(start * factor**each for each in range(count))
