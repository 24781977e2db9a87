from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import phases
from controller.reconcilers import precedence
from tests.unit.controller.reconcilers.builders import a_vm, an_attempt

EARLIER, LATER = "2026-01-01T00:00:10Z", "2026-01-01T00:01:00Z"


def machine(uid: str, *ran: str, phase: str = "Failed", result: str = "Failed", **spec: Any) -> dict[str, Any]:
    attempts = [an_attempt(number, result=result, **({"runningTime": at} if at else {})) for number, at in enumerate(ran, 1)]
    vm = a_vm(phase=phase, attempts=attempts, **spec)
    vm["metadata"]["uid"] = uid
    return vm


NEW = machine("new")


@pytest.mark.parametrize("phase", sorted(phases.WITH_POD))
def test_machine_with_a_pod_goes_first(phase: str) -> None:
    other = machine("other", "", phase=phase)
    assert precedence.holds(other)
    assert precedence.goes_before(other, machine("vm", LATER))


def test_machine_between_attempts_precedes_one_that_never_ran() -> None:
    assert precedence.holds(machine("other", EARLIER))
    assert precedence.goes_before(machine("other", EARLIER), NEW)
    assert not precedence.goes_before(NEW, machine("other", EARLIER))


def test_latest_run_goes_first_between_attempts() -> None:
    one, other = machine("one", LATER, EARLIER), machine("other", EARLIER)
    assert precedence.goes_before(one, other)
    assert not precedence.goes_before(other, one)


def test_tie_of_run_times_is_broken() -> None:
    one, other = machine("one", EARLIER), machine("other", EARLIER)
    assert precedence.goes_before(one, other) != precedence.goes_before(other, one)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(NEW, id="one without an attempt"),
        pytest.param(machine("other", ""), id="one that never ran, and tries again"),
        pytest.param(machine("other", EARLIER, runStrategy="Halted"), id="one that is to be off"),
        pytest.param(machine("other", EARLIER, runStrategy="Once"), id="one whose only attempt is over"),
        pytest.param(machine("other", EARLIER, phase="Succeeded", result="Succeeded"), id="one whose guest powered off"),
        pytest.param({**machine("other", EARLIER), "spec": {"runStrategy": 7}}, id="one that nobody can read"),
    ],
)
def test_machine_that_does_not_continue_holds_no_precedence(other: dict[str, Any]) -> None:
    assert not precedence.goes_on(other)
    assert not precedence.holds(other)


def test_restart_request_continues_under_each_strategy() -> None:
    vm = machine("vm", EARLIER, result="Stopped", runStrategy="Manual")
    assert not precedence.goes_on(vm)
    vm["status"]["request"] = {"action": "Restart", "runStrategy": "Manual", "attempt": 2}
    assert precedence.goes_on(vm)


def test_suspended_machine_goes_first() -> None:
    suspended = machine("other", EARLIER, phase="Suspended", result="Suspended")
    assert not precedence.holds(suspended)
    suspended["status"]["managedSave"] = {"id": "a"}
    assert precedence.holds(suspended)
    assert precedence.goes_before(suspended, machine("vm", LATER))
