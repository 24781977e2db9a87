from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from apiserver.metrics.instruments import Counter, Gauge, Histogram, Read, Registry, exponential


def parsed(registry: Registry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(registry.page().decode())
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples}


def test_prometheus_reads_back_what_was_counted() -> None:
    registry = Registry()
    counter = Counter("a_total", "With a \\ and\na line.", ("x",))
    gauge = Gauge("b", "About.")
    registry.add(counter, gauge, Read("c", "gauge", "Read.", ("y",), lambda: [(("1",), 7.5)]))
    counter.cell('quoted " \\ \n').value += 2
    gauge.cell().value -= 1.5
    assert parsed(registry) == {
        ("a_total", (("x", 'quoted " \\ \n'),)): 2,
        ("b", ()): -1.5,
        ("c", (("y", "1"),)): 7.5,
    }


def test_a_value_on_a_bound_belongs_to_the_bucket_below() -> None:
    registry = Registry()
    histogram = Histogram("h", "About.", (0.1, 1), ("x",))
    registry.add(histogram)
    for each in (0.05, 0.1, 0.5, 7):
        histogram.observe(each, "v")
    read = parsed(registry)
    assert [read["h_bucket", (("le", bound), ("x", "v"))] for bound in ("0.1", "1", "+Inf")] == [2, 3, 4]
    assert read["h_sum", (("x", "v"),)] == pytest.approx(7.65)
    assert read["h_count", (("x", "v"),)] == 4


def test_tallied_values_count_like_single_observations() -> None:
    one, other = Histogram("h", "About.", (1, 10)).cell(), Histogram("h", "About.", (1, 10)).cell()
    values = (0.5, 1, 5, 50, 7)
    tally = one.tally(values)
    for _ in range(3):
        one.add(tally)
        for each in values:
            other.observe(each)
    assert (one.counts, one.total) == (other.counts, other.total) == ([6, 6, 3], 190.5)
    assert tally.number == 5


def test_a_histogram_without_labels_is_written_too() -> None:
    registry = Registry()
    histogram = Histogram("h", "About.", (1,))
    registry.add(histogram)
    histogram.observe(2)
    assert parsed(registry)["h_bucket", (("le", "+Inf"),)] == 1


def test_client_invented_labels_share_one_series() -> None:
    counter = Counter("a_total", "About.", ("x", "y"), limit=2)
    for each in range(10):
        counter.increment(str(each), "v")
    lines = list(counter.lines())[2:]
    assert lines == ['a_total{x="0",y="v"} 1', 'a_total{x="1",y="v"} 1', 'a_total{x="other",y="other"} 8']


def test_a_name_is_taken_once_and_labels_are_complete() -> None:
    registry = Registry()
    registry.add(Counter("a_total", "About.", ("x",)))
    with pytest.raises(ValueError, match="two metrics a_total"):
        registry.add(Gauge("a_total", "About."))
    with pytest.raises(ValueError, match="labels"):
        Counter("b_total", "About.", ("x",)).increment("1", "2")


def test_exponential_bounds_grow_by_their_factor() -> None:
    assert exponential(1000, 10, 3) == (1000, 10_000, 100_000)
