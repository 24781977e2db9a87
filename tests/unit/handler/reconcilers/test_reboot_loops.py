from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apiserver.apis.meta import objects
from apiserver.apis.virt.lifecycle import summary
from apiserver.apis.virt.v1alpha1 import status_validation
from handler.probes.tally import UNKNOWN
from handler.reconcilers.guests import guest_report, reboot_loops
from handler.reconcilers.guests.reboot_loops import MANY, WINDOW, Reboots
from tests.unit.handler.reconcilers.builders import NOW, a_running, a_vm


def after(*seconds: float, first: int = 0) -> Reboots:
    known = reboot_loops.noted(None, first, NOW)
    for number, each in enumerate(seconds, start=1):
        known = reboot_loops.noted(known, first + number, NOW + timedelta(seconds=each))
    return known


def told(vm: dict[str, Any], reboots: Reboots, seconds: float) -> tuple[Any, float | None, list[Any]]:
    now = NOW + timedelta(seconds=seconds)
    seen = guest_report.Observed(vm, a_running(), (), UNKNOWN, network=None, disks=None, now=now, reboots=reboots)
    status, again = guest_report.status_of(seen)
    assert not status_validation.validate_virtual_machine_status({"status": status}, {})
    return status, again, [each for each in guest_report.events(seen, status) if each[1] == "RebootLoop"]


def state(status: Any) -> str:
    return str((objects.condition(status["conditions"], "RebootLoop") or {}).get("status"))


@pytest.mark.parametrize(
    ("reboots", "found"),
    [
        (after(10, 20, 30, 40), "None"),
        (after(10, 20, 30, 40, 50), "True"),
        (after(10, 95, 180, 265, 320), "None"),
        (after(10, 20, 30, 40, first=100), "None"),
        (after(), "None"),
    ],
    ids=["four", "five", "five in more than the window", "four, and others nobody knows when", "none"],
)
def test_many_reboots_within_minutes_are_a_loop(reboots: Reboots, found: str) -> None:
    status, _, events = told(a_vm("Running"), reboots, 321)
    assert state(status) == found
    assert events == ([("Warning", "RebootLoop", reboot_loops.MESSAGE)] if found == "True" else [])


def test_reboot_loop_is_reported_once_until_the_guest_is_quiet() -> None:
    reboots = after(10, 20, 30, 40, 50)
    status, again, events = told(a_vm("Running"), reboots, 50)
    assert (again, len(events)) == (WINDOW.total_seconds(), 1)
    looping = {**a_vm("Running"), "status": status}
    assert summary.word(looping) == "RebootLoop"
    assert told(looping, reboots, 60)[2] == []
    assert state(told(looping, reboots, 349)[0]) == "True"
    quiet, again, _ = told(looping, reboots, 350)
    assert (state(quiet), again) == ("False", None)
    assert summary.word({**looping, "status": quiet}) == "Running"
    assert reboot_loops.noted(reboots, 1000, NOW).times == (NOW,) * MANY


def test_virt_handler_restart_keeps_a_reported_reboot_loop() -> None:
    looping = {**a_vm("Running"), "status": told(a_vm("Running"), after(10, 20, 30, 40, 50), 50)[0]}
    assert state(told(looping, after(first=5), 299)[0]) == "True"
    assert state(told(looping, after(first=5), 300)[0]) == "False"
