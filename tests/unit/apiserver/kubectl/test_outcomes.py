from __future__ import annotations

from typing import Any

import pytest

from apiserver.kubectl import outcomes
from apiserver.kubectl.outcomes import Outcome

STOP = {"action": "Stop", "attempt": 1, "runStrategy": "RerunOnFailure"}
START = {"action": "Start", "attempt": 2, "runStrategy": "RerunOnFailure"}
ENDED = {"number": 1, "result": "Stopped"}
PAUSED = [{"type": "Paused", "status": "True"}]


def vm(phase: str, *attempts: dict[str, Any], **status: Any) -> dict[str, Any]:
    listed = list(attempts or ({"number": 1},))
    return {"metadata": {}, "spec": {}, "status": {"phase": phase, "attempt": listed[-1]["number"], "attempts": listed, **status}}


@pytest.mark.parametrize(
    ("verb", "now", "expected"),
    [
        ("start", vm("Stopped", ENDED, request=START), None),
        ("start", vm("Scheduling", ENDED, {"number": 2}, request=START), None),
        ("start", vm("Running", ENDED, {"number": 2}, request=START), Outcome()),
        ("start", vm("Stopping", ENDED, {"number": 2}, request={**STOP, "attempt": 2}), Outcome("stop was requested")),
        ("resume", vm("Failed", ENDED, {"number": 2, "result": "Failed", "message": "why"}, request=START), Outcome("why")),
        ("start", vm("Succeeded", ENDED, {"number": 2, "result": "Succeeded"}, request=START), Outcome("attempt 2 ended: Succeeded")),
        ("restart", vm("Running", request={**START, "action": "Restart"}), None),
        ("stop", vm("Running", request=STOP), None),
        ("poweroff", vm("Unknown", request=STOP), None),
        ("stop", vm("Stopped", ENDED, request=STOP), Outcome()),
        ("stop", vm("Running", ENDED, {"number": 2}, request=START), Outcome("it is on again: start was requested")),
        ("pause", vm("Running"), None),
        ("pause", vm("Running", conditions=PAUSED), Outcome()),
        ("pause", vm("Failed", ENDED), Outcome("it is Failed")),
        ("unpause", vm("Running", conditions=PAUSED), None),
        ("unpause", vm("Running"), Outcome()),
    ],
)
def test_levels_are_done_when_the_guest_is_there(verb: str, now: dict[str, Any], expected: Outcome | None) -> None:
    assert outcomes.of_level(verb, {"status": {"request": START}})(now) == expected


@pytest.mark.parametrize(
    ("now", "joined"),
    [
        (vm("Stopped", ENDED, request=START), {"start", "resume", "restart"}),
        (vm("Scheduling"), {"start", "resume", "restart"}),
        (vm("Running"), {"start"}),
        (vm("Running", request={**START, "action": "Restart"}), {"start", "resume", "restart"}),
        (vm("Running", conditions=PAUSED), set()),
        (vm("Stopping", request=STOP), set()),
    ],
    ids=["requested", "starting", "running", "restarting", "paused", "stopping"],
)
def test_verbs_wait_for_an_earlier_start(now: dict[str, Any], joined: set[str]) -> None:
    assert {verb for verb in ("start", "resume", "restart") if outcomes.of_earlier_start(now, verb)} == joined


def test_operations_are_done_with_their_result() -> None:
    open_, done = {"id": "a", "action": "Resume"}, {"id": "a", "result": "Succeeded"}
    for judge in (outcomes.of_operation("a"), outcomes.of_level("unpause", vm("Running", operations=[open_]))):
        assert judge(vm("Running", operations=[open_])) is None
        assert judge(vm("Running", operations=[done])) == Outcome()
        assert judge(vm("Running", operations=[{**done, "result": "Failed", "message": "why"}])) == Outcome("why")
        assert judge(vm("Running")) == Outcome(outcomes.FORGOTTEN)


def test_a_deleted_machine_is_off_and_nothing_else() -> None:
    assert outcomes.deleted("stop") == Outcome()
    assert outcomes.deleted("start").problem
