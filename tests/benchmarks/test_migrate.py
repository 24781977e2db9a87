from __future__ import annotations

import os
import subprocess
from datetime import timedelta

from benchmarks import gauges, migrate
from benchmarks.migrate import Attempt, Move
from handler.relays import process

LOG = """\
2026-11-23T10:00:00.000000001Z answered: from-the-guest
2026-11-23T10:00:00.500000000Z failed: fetch: (7) connect to 10.96.0.9 port 80: Connection refused
2026-11-23T10:00:01.000000000Z failed:
2026-11-23T10:00:03.250000000Z answered: somebody else
2026-11-23T10:00:04.000000000Z answered: from-the-guest
2026-11-23T10:00:04.100000000Z a line of another kind
"""


def attempts() -> list[Attempt]:
    return list(migrate.attempts_in(LOG))


def test_each_client_attempt_counts_and_only_the_guest_answers() -> None:
    assert [each.failure for each in attempts()] == [
        "",
        "fetch: (7) connect to 10.96.0.9 port 80: Connection refused",
        "nothing was said",
        "another answer: somebody else",
        "",
    ]
    assert [migrate.kind_of(each) for each in attempts()[1:4]] == ["Connection refused", "nothing was said", "somebody else"]


def test_the_longest_gap_lies_between_two_answers() -> None:
    assert round(migrate.longest_gap(attempts()), 3) == 4.0
    assert migrate.longest_gap(attempts()[:3]) == 0.0


def test_attempts_count_until_answers_in_a_row_after_the_end() -> None:
    end = attempts()[0].ended
    at = end + timedelta(seconds=migrate.HANGING_SECONDS)
    before, good, bad = Attempt(at - timedelta(seconds=1)), Attempt(at), Attempt(at, "refused")
    row = [good] * migrate.SETTLED_ANSWERS
    assert migrate.settled([before, *row, bad], end) == [before, *row]
    assert migrate.settled([before, *row[1:], bad, *row, bad], end) == [before, *row[1:], bad, *row]
    assert migrate.settled([before] * 99, end) == ()
    assert migrate.settled([*row[1:], bad, *row[1:]], end) == ()


def test_a_phase_lasts_until_the_next_one() -> None:
    stamps = [("Pending", "00:00:00"), ("Running", "00:00:01.5"), ("Succeeded", "00:00:04")]
    status = {"phaseTransitionTimestamps": [{"phase": phase, "time": f"2026-11-23T{at}+00:00"} for phase, at in stamps]}
    assert migrate.phase_seconds(status) == {"Pending": 1.5, "Running": 2.5}


def test_report_counts_failures_and_measures_the_others() -> None:
    progress = {"processedBytes": 256 * gauges.MIB, "elapsedMilliseconds": 4000, "downtimeMilliseconds": 40}
    good = Move("Succeeded", 10.0, {"Running": 2.0}, progress, 0.5, 0.25, attempts())
    bad = Move("Failed", 99.0, {}, {}, 7.0, 6.0)
    found = migrate.report([good, good, bad], "emulation", 256)
    assert found["migrations"] == {"Succeeded": 2, "Failed": 1}
    assert found["seconds"] == {"median": 10.0, "p95": 10.0, "max": 10.0}
    assert found["seconds_in_phase"]["Running"]["median"] == 2.0
    assert found["client"]["attempts"] == 10
    assert found["client"]["failed"] == {"Connection refused": 2, "nothing was said": 2, "somebody else": 2}
    assert found["client"]["longest_gap_seconds"]["max"] == 4.0
    assert found["mib_per_second"] == {"median": 64.0, "p95": 64.0, "max": 64.0}
    assert found["virt_handlers"]["cpu_seconds_per_gib"] == 2.0
    assert found["relays"] == {"cpu_seconds_per_migration": {"median": 0.25, "p95": 0.25, "max": 0.25}, "cpu_seconds_per_gib": 1.0}
    assert found["downtime_ms"]["max"] == 40.0


def test_migration_without_bytes_or_time_has_no_rate() -> None:
    assert migrate.mib_per_second({}) is None
    assert migrate.mib_per_second({"processedBytes": gauges.MIB, "elapsedMilliseconds": 0}) is None
    assert "MiB/s" not in migrate.told(Move("Failed", 9.0, {}, {}, 0.0, 0.0))
    moved = {"processedBytes": 3 * gauges.MIB, "elapsedMilliseconds": 1500}
    assert "at 2.0 MiB/s" in migrate.told(Move("Succeeded", 9.0, {"Running": 2.0}, moved, 0.0, 0.0))


def test_relay_time_counts_between_the_looks_that_saw_them() -> None:
    assert migrate.taken({}, {}) == 0.0
    assert migrate.taken({7: 5.0, 8: 1.0}, {7: 5.5, 8: 1.0, 9: 0.25}) == 0.75


def test_relay_program_has_the_name_the_benchmark_looks_for() -> None:
    assert migrate.RELAY in str(process._PROGRAM)


def test_a_processs_time_is_read_and_one_that_has_ended_has_none() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    assert set(migrate.processor_seconds_of([os.getpid(), ended.pid])) == {os.getpid()}
