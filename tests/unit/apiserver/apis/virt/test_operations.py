from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import operations

NOW = datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC)
MOMENT = "2026-01-02T03:04:05Z"


def an_operation(number: int, result: str = "", attempt: int = 1, **more: Any) -> dict[str, Any]:
    told = {"result": result} if result else {}
    return {"id": f"o{number}", "number": number, "action": "Reset", "attempt": attempt, **told, **more}


def a_vm(*found: dict[str, Any], attempt: int = 1, **status: Any) -> dict[str, Any]:
    return {"status": {"attempt": attempt, "operations": list(found), **status}}


@pytest.mark.parametrize("vm", [{}, {"status": None}, {"status": {}}, {"status": {"operations": None}}])
def test_a_machine_without_operations_has_none(vm: dict[str, Any]) -> None:
    assert list(operations.of(vm)) == []
    assert operations.find(vm, "o1") is None
    assert operations.unfinished(vm) == ()


def test_an_operation_is_found_by_its_id() -> None:
    vm = a_vm(an_operation(1), an_operation(3), an_operation(2))
    assert operations.find(vm, "o2") == an_operation(2)
    assert operations.find(vm, "o1") == an_operation(1)
    assert operations.find(vm, "o0") is None


def test_unfinished_operations_are_open_ones_of_this_attempt() -> None:
    vm = a_vm(an_operation(1, attempt=1), an_operation(2, "Failed", 2), an_operation(3, attempt=2), an_operation(4, attempt=3), attempt=2)
    assert operations.unfinished(vm) == (an_operation(3, attempt=2),)
    assert operations.unfinished(a_vm({"id": "x"})) == ()
    assert operations.unfinished(a_vm({"id": "x"}, attempt=0)) == ({"id": "x"},)


def test_appended_operation_has_next_number_and_this_attempt() -> None:
    added = {"id": "x", "action": "Resume", "time": "2026-01-02T03:04:05.000600Z"}
    assert operations.appended(a_vm(), "Resume", "x", NOW) == [{**added, "number": 1, "attempt": 1}]
    before = an_operation(5, "Failed"), an_operation(7)
    found = operations.appended(a_vm(*before, attempt=3), "Resume", "x", NOW)
    assert found == [*before, {**added, "number": 8, "attempt": 3}]
    assert operations.appended(a_vm({"id": "y"}), "Resume", "x", NOW) == [{"id": "y"}, {**added, "number": 1, "attempt": 1}]


@pytest.mark.parametrize("count", [9, 10, 12])
def test_the_oldest_with_a_result_makes_room(count: int) -> None:
    many = [an_operation(number, "" if number == 1 else "Failed") for number in range(1, count + 1)]
    found = operations.appended(a_vm(*many), "Reset", "x", NOW)
    assert found is not None
    assert [each["number"] for each in found] == [1, *range(count - 7 if count >= 10 else 2, count + 2)]


def test_without_room_nothing_is_appended() -> None:
    full = [an_operation(number) for number in range(1, 11)]
    assert operations.appended(a_vm(*full), "Reset", "x", NOW) is None
    assert operations.appended(a_vm(*full[1:]), "Reset", "x", NOW) is not None


def test_the_first_result_counts() -> None:
    vm = a_vm(an_operation(1, "Failed", message="no"), an_operation(2), an_operation(3))
    assert operations.with_result(vm, "o2", "Succeeded", "", NOW) == [
        vm["status"]["operations"][0],
        an_operation(2, "Succeeded", completionTime=MOMENT),
        an_operation(3),
    ]
    assert operations.with_result(vm, "o1", "Succeeded", "yes", NOW) == vm["status"]["operations"]
    assert operations.with_result(vm, "o3", "Succeeded", "", NOW)[1] == an_operation(2)
    (only,) = operations.with_result(a_vm(an_operation(2)), "o2", "Failed", "why", NOW)
    assert only == an_operation(2, "Failed", message="why", completionTime=MOMENT)


LOST = {"result": "Failed", "message": operations.ATTEMPT_ENDED}


@pytest.mark.parametrize(
    ("attempt", "ends", "change"),
    [
        (2, [], None),
        (2, [{"number": 2}], None),
        (2, [{"number": 1, "result": "Failed", "endTime": "E"}, {"number": 2}], None),
        (2, [{"number": 2, "result": "Failed", "endTime": "E"}], {**LOST, "completionTime": "E"}),
        (2, [{"number": 2, "result": "Failed"}], {**LOST, "completionTime": "T"}),
        (1, [{"number": 1, "result": "Failed", "endTime": "E"}, {"number": 2}], {**LOST, "completionTime": "E"}),
        (1, [{"number": 2}], {**LOST, "completionTime": "T"}),
        (3, [{"number": 2}], {**LOST, "completionTime": "T"}),
    ],
)
def test_an_operation_ends_with_its_attempt(attempt: int, ends: list[dict[str, Any]], change: dict[str, Any] | None) -> None:
    told = an_operation(1, attempt=attempt, time="T")
    over = an_operation(2, "Succeeded", attempt)
    status = a_vm(told, over, attempt=2, attempts=ends)["status"]
    operations.end_with_attempts(status)
    assert status["operations"] == [{**told, **(change or {})}, over]


def test_an_operation_without_times_ends_without_one() -> None:
    status = a_vm({"id": "x"}, attempt=1)["status"]
    operations.end_with_attempts(status)
    assert status["operations"] == [{"id": "x", **LOST}]
    first = a_vm({"id": "x"}, attempt=0)["status"]
    operations.end_with_attempts(first)
    assert first["operations"] == [{"id": "x"}]
    nothing: dict[str, Any]
    for nothing in ({}, {"operations": None}, {"operations": []}):
        before: dict[str, Any] = dict(nothing)
        operations.end_with_attempts(nothing)
        assert nothing == before


def test_numbers_fit_into_an_int32() -> None:
    assert 1 << 20 < operations.MAX_NUMBER < 1 << 31
