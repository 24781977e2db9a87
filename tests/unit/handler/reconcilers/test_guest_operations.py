"""A machine's operations, as its launcher reports them. test_guest_plan: which one is sent."""

from __future__ import annotations

from typing import Any

import pytest

from handler.reconcilers.guests import guest_operations
from launcher.protocol.messages import OperationStatus
from tests.unit.handler.reconcilers.builders import NOW, a_vm, an_operation

WAITING, OVER = an_operation("a", 1), an_operation("b", 2, result="Failed", message="m", completionTime="then")
EARLIER = an_operation("c", 3, attempt=0)
VM = a_vm("Running", operations=[WAITING, OVER, EARLIER])
MOMENT = "2026-11-21T08:00:00Z"


@pytest.mark.parametrize(
    ("told", "change"),
    [
        ((), {}),
        ((OperationStatus("a", 1, "running"),), {}),
        ((OperationStatus("x", 1, "succeeded"),), {}),
        ((OperationStatus("a", 1, "succeeded"),), {"result": "Succeeded", "completionTime": MOMENT}),
        ((OperationStatus("a", 1, "failed", "no\x1b[2J way"),), {"result": "Failed", "message": "no[2J way", "completionTime": MOMENT}),
        ((OperationStatus("a", 1, "failed"),), {"result": "Failed", "completionTime": MOMENT}),
    ],
)
def test_results_are_the_launchers(told: tuple[OperationStatus, ...], change: dict[str, Any]) -> None:
    found = guest_operations.with_results(VM, told, NOW)
    assert found == [{**WAITING, **change}, OVER, EARLIER]


def test_launcher_cannot_change_known_or_earlier_results() -> None:
    told = (OperationStatus("b", 2, "succeeded"), OperationStatus("c", 3, "succeeded"))
    assert guest_operations.with_results(VM, told, NOW) == [WAITING, OVER, EARLIER]


def test_launchers_message_is_bounded() -> None:
    (found, *_) = guest_operations.with_results(VM, (OperationStatus("a", 1, "failed", "x" * 9999),), NOW)
    assert len(found["message"]) == guest_operations.MAX_MESSAGE


@pytest.mark.parametrize(
    ("action", "result", "message", "event"),
    [
        ("Reset", "Succeeded", "", ("Normal", "Reset", "the guest was reset")),
        ("Resume", "Succeeded", "", ("Normal", "Unpaused", "the guest continues")),
        ("SoftReboot", "Succeeded", "", ("Normal", "RebootRequested", "the guest was asked to reboot, and may ignore it")),
        ("InjectNMI", "Succeeded", "", ("Normal", "NMIInjected", "the guest got a non-maskable interrupt")),
        ("SendKey", "Succeeded", "", ("Normal", "KeysSent", "keys were pressed in the guest")),
        ("Freeze", "Succeeded", "", ("Normal", "Frozen", "the guest's file systems are frozen")),
        ("Thaw", "Succeeded", "", ("Normal", "Thawed", "the guest's file systems were thawed")),
        ("Reset", "Failed", "why", ("Warning", "ResetFailed", "why")),
        ("Resume", "Failed", "", ("Warning", "ResumeFailed", "")),
    ],
)
def test_a_result_is_told_once(action: str, result: str, message: str, event: tuple[str, str, str]) -> None:
    waiting = an_operation("a", 1, action)
    over = {**waiting, "result": result, **({"message": message} if message else {})}
    vm = a_vm("Running", operations=[waiting, OVER])
    status = {**vm["status"], "operations": [OVER, over, an_operation("n", 9, result="Failed")]}
    assert list(guest_operations.events(vm, status)) == [event]
    assert list(guest_operations.events({"status": status}, status)) == []
    assert list(guest_operations.events(vm, vm["status"])) == []
    assert list(guest_operations.events(vm, {})) == []


def test_an_operation_of_a_later_release_has_an_event() -> None:
    waiting = an_operation("a", 1, action="Later")
    vm = a_vm("Running", operations=[waiting])
    status = {"operations": [{**waiting, "result": "Succeeded"}]}
    assert list(guest_operations.events(vm, status)) == [("Normal", "Later", "virt-launcher completed Later")]


@pytest.mark.parametrize(("percent", "told"), [(0, {}), (1, {"percent": 1}), (100, {"percent": 100}), (101, {}), (-1, {})])
def test_progress_is_that_of_an_unfinished_operation(percent: int, told: dict[str, Any]) -> None:
    each = OperationStatus("a", 1, "running", percent=percent)
    assert guest_operations.with_results(VM, (each,), NOW) == [{**WAITING, **told}, OVER, EARLIER]
    over = tuple(OperationStatus(name, 2, "running", percent=7) for name in ("b", "c"))
    assert guest_operations.with_results(VM, over, NOW) == [WAITING, OVER, EARLIER]
