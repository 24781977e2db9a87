from __future__ import annotations

from datetime import timedelta

from controller.evictions.waiting import SECONDS, Waiting
from tests.unit.controller.evictions.test_eviction_plan import NOW


def test_namespace_waits_half_a_minute_where_it_found_no_place() -> None:
    waiting = Waiting()
    waiting.note("node1", "a", NOW)
    waiting.note("", "b", NOW)
    waiting.note("node1", "c", NOW + timedelta(seconds=10))
    assert waiting.at(("node1", "", "node2"), NOW + timedelta(seconds=10)) == {"node1": {"a", "c"}, "": {"b"}, "node2": frozenset()}
    later = NOW + timedelta(seconds=SECONDS)
    assert waiting.at(("node1", ""), later) == {"node1": {"c"}, "": frozenset()}
    waiting.note("node1", "a", later)
    assert len(waiting) == 2, "those that ask no more are forgotten"
    assert waiting.at(("node1",), later) == {"node1": {"a", "c"}}


def test_clock_set_back_keeps_no_namespace_waiting() -> None:
    waiting = Waiting()
    waiting.note("node1", "a", NOW)
    assert waiting.at(("node1",), NOW - timedelta(hours=1)) == {"node1": frozenset()}


def test_a_namespace_that_asks_again_waits_from_then_on() -> None:
    waiting = Waiting()
    waiting.note("node1", "a", NOW)
    waiting.note("node1", "a", NOW + timedelta(seconds=SECONDS - 1))
    assert waiting.at(("node1",), NOW + timedelta(seconds=SECONDS + 1)) == {"node1": {"a"}}
