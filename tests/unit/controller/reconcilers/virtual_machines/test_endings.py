from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta.objects import NamespacedName
from controller.reconcilers.virtual_machines.endings import Endings
from tests.unit.controller.reconcilers.builders import a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def ended(ahead: timedelta = timedelta(), number: int = 1) -> dict[str, Any]:
    moment = (NOW + ahead).strftime("%Y-%m-%dT%H:%M:%SZ")
    return a_vm(phase="Failed", attempts=[an_attempt(each, result="Failed", endTime=moment) for each in range(1, number + 1)])


@pytest.mark.parametrize("ahead", [timedelta(hours=-1), timedelta(), timedelta(minutes=5), timedelta(days=1)])
def test_observed_end_is_measured_by_the_local_clock(ahead: timedelta) -> None:
    time = Time()
    endings = Endings(time)
    assert endings.rested(a_vm(phase="Running", attempts=[an_attempt()]), NOW) == 0
    time.now += 500
    assert endings.rested(ended(ahead), NOW) == 0
    time.now += 7
    assert endings.rested(ended(ahead), NOW) == 7


@pytest.mark.parametrize(("ahead", "rested"), [(timedelta(seconds=-40), 40), (timedelta(minutes=5), 0)])
def test_end_before_this_process_counts_from_its_time_or_now(ahead: timedelta, rested: int) -> None:
    time = Time()
    endings = Endings(time)
    assert endings.rested(ended(ahead), NOW) == rested
    time.now += 3
    assert endings.rested(ended(ahead), NOW + timedelta(days=9)) == rested + 3


def test_the_newest_end_counts_and_one_without_a_time_is_of_now() -> None:
    older = an_attempt(1, result="Failed", endTime="2025-12-31T00:00:00Z")
    newer = an_attempt(2, result="Failed", endTime="2026-01-01T00:00:20Z")
    assert Endings(Time()).rested(a_vm(phase="Failed", attempts=[older, newer]), NOW) == 40
    assert Endings(Time()).rested(a_vm(phase="Failed", attempts=[an_attempt(result="Failed")]), NOW) == 0
    assert Endings(Time()).rested(a_vm(), NOW) == 0


def test_rest_restarts_per_attempt_and_machine_and_is_forgotten() -> None:
    time = Time()
    endings = Endings(time)
    endings.rested(ended(), NOW)
    time.now += 60
    assert endings.rested(a_vm(phase="Running", attempts=[*ended()["status"]["attempts"], an_attempt(2)]), NOW) == 0
    assert endings.rested(ended(number=2), NOW) == 0
    time.now += 60
    for uid in ("another", "0"):
        namesake = ended(number=2)
        namesake["metadata"]["uid"] = uid
        assert endings.rested(namesake, NOW) == 0
        time.now += 250
        assert endings.rested(namesake, NOW) == 250
    endings.forget(NamespacedName("default", "testvm"))
    assert len(endings) == 0
