from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle.failed_starts import Verdict
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.trials import TURN_SECONDS, Trials, is_decided
from tests.unit.controller.reconcilers.builders import a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
OVER, PAUSED = (Verdict(NOW + timedelta(minutes=each), 3, 2) for each in (-1, 1))


class Cluster:
    def __init__(self) -> None:
        self.now = 0.0
        self.trials = Trials(lambda: self.now)
        self.machines: dict[str, Object] = {}

    def machine(self, name: str, *attempts: dict[str, Any], **spec: Any) -> Object:
        vm = a_vm(phase="Scheduling", attempts=list(attempts), **spec)
        vm["metadata"]["name"] = name
        vm["status"].pop("nodeName", None)
        self.machines[name] = vm
        return vm

    def take(self, vm: Object, **verdicts: Verdict) -> frozenset[str]:
        seen = Observed(vm=vm, pods=(), claims={}, now=NOW, settings=Settings("launcher"), non_operational=verdicts or {"bad": OVER})
        return self.trials.take(seen, lambda _, name: self.machines.get(name))


def test_one_machine_has_the_turn_until_its_start_is_decided() -> None:
    cluster = Cluster()
    first, other = cluster.machine("a"), cluster.machine("b")
    assert cluster.take(first) == {"bad"}
    assert cluster.take(other) == frozenset()
    assert cluster.take(first) == {"bad"}, "a repeated pass"
    cluster.machine("a", an_attempt())
    assert cluster.take(other) == frozenset()
    cluster.machine("a", an_attempt(nodeName="bad", result="Failed", endTime="2026-01-01T00:00:30Z"))
    assert cluster.take(other) == {"bad"}
    assert cluster.take(cluster.machine("c")) == frozenset()


def test_a_paused_node_has_no_trial() -> None:
    cluster = Cluster()
    assert cluster.take(cluster.machine("a"), bad=OVER, worse=PAUSED) == {"bad"}


def test_a_machine_that_is_gone_or_late_loses_its_turn() -> None:
    cluster = Cluster()
    other = cluster.machine("b")
    assert cluster.take(cluster.machine("a"))
    cluster.now = TURN_SECONDS - 1
    assert not cluster.take(other)
    cluster.now = TURN_SECONDS
    assert cluster.take(other)
    del cluster.machines["b"]
    assert cluster.take(cluster.machine("c"))


@pytest.mark.parametrize(
    ("attempts", "spec", "decided"),
    [
        ([], {}, False),
        ([], {"runStrategy": "Halted"}, True),
        ([an_attempt()], {}, False),
        ([an_attempt(nodeName="bad")], {}, False),
        ([an_attempt(nodeName="good")], {}, True),
        ([an_attempt(nodeName="bad", runningTime="2026-01-01T00:00:30Z")], {}, True),
        ([an_attempt(result="Failed", endTime="2026-01-01T00:00:30Z")], {}, True),
        ([an_attempt(), {**an_attempt(), "number": 2}], {}, True),
    ],
)
def test_when_it_is_known_whether_a_start_succeeds(attempts: list[dict[str, Any]], spec: dict[str, Any], decided: bool) -> None:
    vm = Cluster().machine("a", *attempts, **spec)
    assert is_decided(vm, 1, "bad") is decided
