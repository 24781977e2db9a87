from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.virt.lifecycle import power


def _vm(
    strategy: str = "RerunOnFailure", *, limit: int | None = None, attempt: int = 0, request: Any = None, **ended: Any
) -> dict[str, Any]:
    """Return a VM; ``ended`` maps ``a<number>`` to a result, to (result, runningTime), or to its entry's members."""
    attempts = []
    for name, value in ended.items():
        result, running = value if isinstance(value, tuple) else (value, None)
        told = result if isinstance(result, dict) else {"result": result, "nodeName": "node1"}
        attempts.append({"number": int(name[1:]), **told, **({"runningTime": running} if running else {})})
    spec: dict[str, Any] = {"runStrategy": strategy}
    if limit is not None:
        spec["rerun"] = {"limit": limit}
    return {"metadata": {}, "spec": spec, "status": {"attempt": attempt or len(attempts), "attempts": attempts, "request": request}}


def _request(action: str, attempt: int, strategy: str = "RerunOnFailure") -> dict[str, Any]:
    return {"action": action, "attempt": attempt, "runStrategy": strategy}


def _brief(vm: dict[str, Any]) -> tuple[bool, int, str]:
    decision = power.decide(vm)
    return decision.on, decision.attempt, decision.reason


@pytest.mark.parametrize(
    ("vm", "expected"),
    [
        ({"spec": {}}, (True, 1, "FirstAttempt")),
        (_vm("Halted"), (False, 0, "Halted")),
        (_vm("Manual"), (False, 0, "NotRequested")),
        (_vm("Always", a1="Succeeded"), (True, 2, "Always")),
        (_vm("Always", a1="Failed", a2="Failed", a3="Failed", a4="Failed"), (True, 5, "Always")),
        (_vm("Once", a1="Failed"), (False, 1, "AttemptEnded")),
        (_vm(a1="Succeeded"), (False, 1, "Succeeded")),
        (_vm(a1="Failed"), (True, 2, "Rerun")),
        (_vm(a1="Failed", a2="Failed"), (True, 3, "Rerun")),
        (_vm(a1="Failed", a2="Failed", a3="Failed"), (False, 3, "RerunLimitReached")),
        (_vm(limit=1, a1="Failed", a2="Stopped", a3="Failed"), (True, 4, "Rerun")),
        (_vm("Once", a1={"nodeName": "node1"}), (True, 1, "Running")),
        (_vm("Manual", a1="Failed", a2={"nodeName": "node1"}), (True, 2, "Running")),
        (_vm(limit=0, a1="Failed"), (False, 1, "RerunLimitReached")),
        (_vm(limit=0, a1=("Failed", "2026-01-01T00:00:00Z")), (True, 2, "Rerun")),
        (_vm(a1="Failed", a2="Failed", a3=("Failed", "2026-01-01T00:00:00Z")), (True, 4, "Rerun")),
        (_vm(a1="Stopped"), (True, 2, "Rerun")),
        (_vm(limit=0, a1={"result": "Failed"}), (True, 2, "Rerun")),
        (_vm(limit=1, a1="Failed", a2={"result": "Failed"}), (True, 3, "Rerun")),
        (_vm(limit=1, a1="Failed", a2={"result": "Failed"}, a3="Failed"), (False, 3, "RerunLimitReached")),
    ],
)
def test_the_strategy_decides_without_a_request(vm: dict[str, Any], expected: tuple[bool, int, str]) -> None:
    assert _brief(vm) == expected


def _run(result: str, minutes: int) -> dict[str, Any]:
    return {"result": result, "nodeName": "node1", "runningTime": "2026-01-01T00:00:00Z", "endTime": f"2026-01-01T00:{minutes:02}:00Z"}


@pytest.mark.parametrize(
    ("strategy", "ended", "failures"),
    [
        ("Always", [_run("Succeeded", 0), _run("Succeeded", 1)], 2),
        ("Always", [_run("Succeeded", 0), _run("Failed", 9)], 2),
        ("Always", [_run("Succeeded", 0), _run("Succeeded", 10)], 0),
        ("Always", [_run("Failed", 0), _run("Failed", 10), _run("Failed", 1)], 1),
        ("RerunOnFailure", [_run("Failed", 0), _run("Failed", 30)], 0),
        ("RerunOnFailure", [_run("Failed", 0), {"result": "Failed"}], 2),
        ("Always", [_run("Failed", 0), {**_run("Stopped", 0), "stopTime": "2026-01-01T00:00:00Z"}], 0),
        ("Always", [_run("Stopped", 0)] * 3, 3),
        ("RerunOnFailure", [_run("Stopped", 0)] * 3, 3),
        ("Always", [{**_run("Failed", 0), "endTime": "once upon a time"}], 1),
        ("Always", [_run("Failed", 0), {"nodeName": "node1"}], 1),
        ("Always", [{**_run("Failed", 0), "stopTime": "2026-01-01T00:00:00Z"}], 1),
        ("Always", [{"result": "Failed", "endTime": "2026-01-01T00:30:00Z"}], 1),
    ],
)
def test_back_off_counts_consecutive_short_runs_and_resets(strategy: str, ended: list[dict[str, Any]], failures: int) -> None:
    vm = {"spec": {"runStrategy": strategy}, "status": {"attempts": [{"number": at, **each} for at, each in enumerate(ended, 1)]}}
    assert power.decide(vm).failures == failures


def test_rerun_message_counts_starts() -> None:
    assert power.decide(_vm(limit=2, a1="Failed")).message == "the last attempt did not succeed; 1 of 3 starts failed"
    assert power.decide(_vm(limit=1, a1="Failed")).message == "the last attempt did not succeed; 1 of 2 starts failed"
    assert power.decide(_vm(limit=0, a1="Failed")).message == "1 starts failed in a row; spec.rerun.limit is 0"


def test_a_machine_without_a_status_has_the_defaults_of_its_spec() -> None:
    assert power.strategy_of({}) == power.strategy_of({"spec": {"runStrategy": None}}) == "RerunOnFailure"
    assert power.current_attempt({}) == 0
    assert not power.wants_paused({})


def test_current_attempt_is_the_newest_recorded_one() -> None:
    assert power.current_attempt({"status": {"attempt": 2, "attempts": [{"number": 1}, {"number": 3}]}}) == 3
    assert power.current_attempt({"status": {"attempt": 4, "attempts": [{"number": 3}]}}) == 4


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Once", "Manual"])
def test_open_attempt_continues_except_under_halted(strategy: str) -> None:
    on, attempt, _ = _brief(_vm(strategy, attempt=2, a1="Succeeded"))
    assert (on, attempt) == (True, 2)
    assert not power.decide(_vm("Halted", attempt=2, a1="Succeeded")).on


@pytest.mark.parametrize("strategy", power.RUN_STRATEGIES)
def test_stop_keeps_the_machine_off_until_run_strategy_is_edited(strategy: str) -> None:
    assert _brief(_vm(strategy, attempt=1, request=_request("Stop", 1, strategy))) == (False, 1, "StopRequested")
    edited = _vm("Always" if strategy != "Always" else "Once", attempt=1, request=_request("Stop", 1, strategy))
    assert power.decide(edited).on


@pytest.mark.parametrize("action", ["Start", "Stop", "Restart"])
def test_superseded_verb_does_not_return_with_its_strategy(action: str) -> None:
    called = {**_request(action, 2, "Once"), "generation": 4}
    vm = _vm("Once", request=called, a1="Failed")
    assert power.effective_request(vm) == called
    for edited, counts in ((4, True), (5, False), (6, False)):
        vm["status"]["runStrategyGeneration"] = edited
        assert (power.effective_request(vm) is not None) is counts
    assert _brief(vm) == (False, 1, "AttemptEnded")
    del called["generation"]
    for edited, counts in ((0, True), (1, False)):
        vm["status"]["runStrategyGeneration"] = edited
        assert (power.effective_request(vm) is not None) is counts


def test_requested_start_skips_the_back_off() -> None:
    vm = _vm("Always", request=_request("Start", 3, "Always"), a1=_run("Failed", 0), a2=_run("Failed", 0))
    assert (power.decide(vm).reason, power.decide(vm).failures) == ("Requested", 0)


@pytest.mark.parametrize("strategy", ["Manual", "Halted", "Once"])
def test_a_start_lasts_until_its_attempt_ended(strategy: str) -> None:
    assert _brief(_vm(strategy, request=_request("Start", 1, strategy)))[:2] == (True, 1)
    assert _brief(_vm(strategy, attempt=1, request=_request("Start", 1, strategy)))[:2] == (True, 1)
    assert not power.decide(_vm(strategy, request=_request("Start", 1, strategy), a1="Succeeded")).on


FAILED_START = {"result": "Failed", "nodeName": "node1", "generation": 1}
STOPPED_BEFORE = {"result": "Stopped", "generation": 1}
CRASHED = {**FAILED_START, "runningTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:00:01Z"}


@pytest.mark.parametrize(
    ("strategy", "ended", "before", "after"),
    [
        ("RerunOnFailure", [FAILED_START], (False, "RerunLimitReached"), (True, "FirstAttempt")),
        ("Always", [FAILED_START], (True, "Always"), (True, "Always")),
        ("Once", [FAILED_START], (False, "AttemptEnded"), (True, "FirstAttempt")),
        ("Once", [STOPPED_BEFORE], (False, "AttemptEnded"), (True, "FirstAttempt")),
        ("Once", [CRASHED], (False, "AttemptEnded"), (False, "AttemptEnded")),
        ("RerunOnFailure", [{"result": "Succeeded", "generation": 1}], (False, "Succeeded"), (False, "Succeeded")),
        ("RerunOnFailure", [{**FAILED_START, "generation": 0}], (False, "RerunLimitReached"), (False, "RerunLimitReached")),
        ("Manual", [FAILED_START], (False, "NotRequested"), (False, "NotRequested")),
        ("Halted", [FAILED_START], (False, "Halted"), (False, "Halted")),
    ],
)
def test_spec_edit_resets_failed_starts(
    strategy: str, ended: list[dict[str, Any]], before: tuple[bool, str], after: tuple[bool, str]
) -> None:
    vm: dict[str, Any] = {"spec": {"runStrategy": strategy, "rerun": {"limit": 0}}}
    vm["status"] = {"attempts": [{"number": number, **each} for number, each in enumerate(ended, 1)]}
    for generation, expected in ((1, before), (2, after)):
        vm["metadata"] = {"generation": generation}
        decision = power.decide(vm)
        assert (decision.on, decision.reason) == expected


def test_requested_start_is_retried_after_a_spec_edit() -> None:
    vm = _vm("Manual", request={**_request("Start", 1, "Manual"), "generation": 1}, a1=FAILED_START)
    vm["metadata"]["generation"] = 1
    assert not power.decide(vm).on
    vm["metadata"]["generation"] = 2
    assert _brief(vm) == (True, 2, "Requested")


def test_a_back_off_is_forgotten_with_the_spec_that_it_was_for() -> None:
    vm = _vm("Always", a1=CRASHED, a2=CRASHED, a3={**CRASHED, "generation": 2})
    for generation, failures in ((1, 3), (2, 1), (3, 0)):
        vm["metadata"]["generation"] = generation
        assert power.decide(vm).failures == failures


def test_a_start_after_the_rerun_limit_opens_a_new_series() -> None:
    failed: Any = {"a1": "Failed", "a2": "Failed", "a3": "Failed"}
    assert _brief(_vm(request=_request("Start", 4), **failed)) == (True, 4, "Requested")
    assert _brief(_vm(request=_request("Start", 4), a4="Failed", **failed)) == (True, 5, "Rerun")
    assert _brief(_vm(request=_request("Start", 4), a4="Failed", a5="Failed", a6="Failed", **failed)) == (False, 6, "RerunLimitReached")


def test_a_restart_wants_the_attempt_after_the_one_that_runs() -> None:
    assert _brief(_vm(attempt=1, request=_request("Restart", 2))) == (True, 2, "Requested")
    assert _brief(_vm(request=_request("Restart", 2), a1="Stopped")) == (True, 2, "Requested")
    assert _brief(_vm(attempt=2, request=_request("Restart", 2), a1="Stopped")) == (True, 2, "Requested")


LEVELS: list[tuple[dict[str, Any], bool]] = [
    ({}, False),
    ({"pause": {"wanted": True, "attempt": 1}}, True),
    ({"pause": {"wanted": False, "attempt": 1}}, False),
    ({"pause": {"wanted": True, "attempt": 2}}, False),
    ({"pause": {"wanted": True}}, False),
]


@pytest.mark.parametrize(("level", "paused"), LEVELS)
@pytest.mark.parametrize("action", ["Start", "Stop", "Restart"])
def test_pause_and_power_request_are_independent(action: str, level: dict[str, Any], *, paused: bool) -> None:
    vm = _vm(attempt=1, request=_request(action, 1))
    without = power.decide(vm)
    vm["status"] |= level
    assert power.wants_paused(vm) is paused
    assert power.decide(vm) == without


def test_later_write_of_an_older_release_is_honoured() -> None:
    vm = _vm(attempt=1, request=_request("Unpause", 1))
    vm["status"]["pause"] = {"wanted": True, "attempt": 1}
    assert not power.wants_paused(vm)
    power.keep_pause(vm)
    assert vm["status"]["pause"]["wanted"] is False
    assert vm["status"]["request"] == {**_request("Unpause", 1), "action": "Start"}
    power.set_pause(vm, "2026-01-01T00:00:00Z", wanted=True)
    assert power.wants_paused(vm)


def test_setting_the_pause_of_a_machine_without_a_status() -> None:
    vm: dict[str, Any] = {"metadata": {"generation": 3}}
    power.set_pause(vm, "2026-01-01T00:00:00Z", wanted=True)
    assert vm["status"] == {"pause": {"wanted": True, "attempt": 0, "generation": 3, "time": "2026-01-01T00:00:00Z"}}
    stored: dict[str, Any] = {"status": {}}
    power.set_pause(stored, "2026-01-01T00:00:00Z", wanted=False)
    assert stored["status"] == {"pause": {"wanted": False, "attempt": 0, "generation": 0, "time": "2026-01-01T00:00:00Z"}}


def test_pausing_a_manually_started_machine_leaves_it_on() -> None:
    vm = _vm("Manual", attempt=1, request=_request("Pause", 1, "Manual"))
    assert power.decide(vm).on
    assert power.wants_paused(vm)
    vm["spec"]["runStrategy"] = "Always"
    assert power.wants_paused(vm), "editing the strategy lets no guest run on"
    vm["status"]["attempt"] = 2
    assert not power.wants_paused(vm), "a pause belongs to one attempt"


@pytest.mark.parametrize(
    ("request_", "paused"),
    [
        (_request("Pause", 1), True),
        (_request("Unpause", 1), False),
        (_request("Start", 1), False),
        (_request("Pause", 2), False),
        ({"action": "Pause"}, False),
    ],
)
def test_only_a_pause_of_this_very_attempt_pauses(request_: dict[str, Any], paused: bool) -> None:
    assert power.wants_paused(_vm(attempt=1, request=request_)) is paused


@pytest.mark.parametrize(
    ("vm", "why"),
    [
        (_vm(attempt=1, request=_request("Stop", 1)), "stop was requested"),
        (_vm(attempt=1, request=_request("Restart", 2)), "restart was requested"),
        (_vm(attempt=2, request=_request("Restart", 2)), ""),
        (_vm(attempt=1), ""),
        (_vm("Halted", attempt=1), "runStrategy is Halted"),
        (_vm("Always", a1=_run("Failed", 1)), ""),
        (_vm("RerunOnFailure", a1=_run("Failed", 1)), ""),
    ],
)
def test_stop_or_restart_requests_the_end_of_an_attempt(vm: dict[str, Any], why: str) -> None:
    assert power.end_asked_for(vm) == why


def test_a_machine_that_is_being_deleted_is_off() -> None:
    vm = _vm("Always", attempt=1, request=_request("Start", 1, "Always"))
    vm["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert _brief(vm) == (False, 1, "Deleting")


@given(
    strategy=st.sampled_from(power.RUN_STRATEGIES),
    results=st.lists(st.sampled_from(power.RESULTS), max_size=10),
    is_open=st.booleans(),
    action=st.sampled_from([None, *power.ACTIONS]),
    offset=st.integers(0, 2),
    limit=st.integers(0, power.MAX_RERUN_LIMIT),
)
def test_power_decisions_are_feasible(
    strategy: str, results: list[str], is_open: bool, action: str | None, offset: int, limit: int
) -> None:
    current = len(results) + (1 if is_open else 0)
    request = _request(action, max(current + offset - 1, 0), strategy) if action else None
    ended = {f"a{number}": result for number, result in enumerate(results, 1)}
    decision = power.decide(_vm(strategy, limit=limit, attempt=current, request=request, **ended))
    if decision.on:
        assert decision.attempt in ({current, current + 1} if is_open else {current + 1})
    else:
        assert decision.attempt == current
    assert decision.message


def _interrupted(strategy: str, *, status: str = "True", request: Any = None, **last: Any) -> dict[str, Any]:
    vm = _vm(strategy, limit=0, request=request, a1={"result": "Stopped", "nodeName": "node1", **last})
    vm["status"]["conditions"] = [{"type": "DisruptionTarget", "status": status, "reason": "EvictionByEvictionAPI", "message": ""}]
    return vm


@pytest.mark.parametrize("strategy", ["RerunOnFailure", "Once", "Manual"])
@pytest.mark.parametrize("result", ["Stopped", "Failed"])
def test_attempt_ended_by_the_cluster_is_rerun(strategy: str, result: str) -> None:
    assert _brief(_interrupted(strategy, result=result)) == (True, 2, "Interrupted")
    asked = _request("Start", 1, strategy)
    assert _brief(_interrupted(strategy, result=result, request=asked)) == (True, 2, "Interrupted")


@pytest.mark.parametrize("strategy", ["Once", "Manual"])
@pytest.mark.parametrize(
    "last",
    [
        {"result": "Succeeded"},
        {"stopTime": "2026-01-01T00:00:00Z"},
        {"status": "False"},
        {"request": _request("Stop", 0, "Once")},
        {"request": _request("Stop", 0, "Manual")},
    ],
    ids=["the guest powered off", "a stop was requested before", "nothing ended its pod", "stop, once", "stop, manual"],
)
def test_attempt_ended_by_a_user_is_not_rerun(strategy: str, last: dict[str, Any]) -> None:
    if "request" in last and last["request"]["runStrategy"] != strategy:
        return
    assert not power.decide(_interrupted(strategy, **last)).on


def test_halted_machine_stays_off_and_open_attempt_continues() -> None:
    assert _brief(_interrupted("Halted")) == (False, 1, "Halted")
    assert _brief(_interrupted("Once", result="")) == (True, 1, "Running")
    assert not power.was_interrupted({})
    assert _brief(_interrupted("Always")) == (True, 2, "Interrupted")


def test_the_newest_attempt_is_the_one_with_the_current_number() -> None:
    entries = [{"number": number} for number in (1, 2, 3)]
    assert power.newest_attempt({"status": {"attempts": entries}}) == {"number": 3}
    assert power.newest_attempt({"status": {"attempts": entries[::-1]}}) == {"number": 3}
    assert power.newest_attempt({"status": {"attempt": 4, "attempts": entries}}) == {}
    assert power.newest_attempt({}) == {}


_FAILED = {"result": "Failed", "nodeName": "node1", "generation": 2}


def _edited(vm: dict[str, Any], generation: int | None, **metadata: Any) -> dict[str, Any]:
    return {**vm, "metadata": {**({} if generation is None else {"generation": generation}), **metadata}}


@pytest.mark.parametrize(
    ("vm", "given_up", "by_its_spec"),
    [
        (_vm("Halted"), False, True),
        (_vm("Manual"), False, True),
        (_vm(a1="Succeeded"), False, True),
        (_vm("Once", a1="Stopped"), False, True),
        (_vm("Once", a1="Failed"), True, False),
        (_vm(limit=0, a1="Failed"), True, False),
        (_vm(a1="Failed"), False, False),
        (_vm("Halted", a1="Failed"), False, True),
        (_vm("Manual", attempt=1, a1="Failed"), True, False),
        (_vm(attempt=1, a1="Failed", request=_request("Stop", 1)), False, False),
        (_vm("Manual", attempt=1, a1="Failed", request=_request("Stop", 1, "Manual")), False, True),
        (_vm("Always", attempt=1, a1="Succeeded", request=_request("Stop", 1, "Always")), False, False),
        (_edited(_vm("Once", a1=_FAILED), 2), True, False),
        (_edited(_vm("Manual", a1=_FAILED), 3), False, True),
        (_edited(_vm("Manual", a1={**_FAILED, "generation": 1}), None), True, False),
        (_edited(_vm("Once", a1="Failed"), 2, deletionTimestamp="2026-01-01T00:00:00Z"), False, False),
        (_edited(_vm("Once", a1="Succeeded"), 2, deletionTimestamp="2026-01-01T00:00:00Z"), False, False),
        ({"spec": {"runStrategy": "Manual"}}, False, True),
    ],
)
def test_stopped_machine_has_given_up_or_is_off_by_its_spec(vm: dict[str, Any], given_up: bool, by_its_spec: bool) -> None:
    decision = power.decide(vm)
    assert (power.has_given_up(vm, decision), power.is_off_by_its_spec(vm, decision)) == (given_up, by_its_spec)


@pytest.mark.parametrize("strategy", power.RUN_STRATEGIES)
def test_a_suspended_machine_is_off_until_a_later_start(strategy: str) -> None:
    off = (False, 1, "Suspended")
    assert _brief(_vm(strategy, a1="Suspended")) == off
    assert _brief(_vm(strategy, a1="Suspended", request=_request("Start", 1, strategy))) == off
    for attempt in (1, 2):
        assert _brief(_vm(strategy, a1="Suspended", request=_request("Stop", attempt, strategy))) == off
    assert _brief(_vm(strategy, a1="Failed", a2="Suspended", request=_request("Start", 1, strategy))) == (False, 2, "Suspended")
    assert _brief(_vm(strategy, a1="Suspended", request=_request("Start", 2, strategy))) == (True, 2, "Requested")
    assert _brief(_vm(strategy, a1="Suspended", request=_request("Start", 2, "Other"))) == off


def test_a_failed_resume_is_repeated_as_any_start() -> None:
    vm = _vm(a1="Suspended", a2="Failed", request=_request("Start", 2))
    assert _brief(vm) == (True, 3, "Rerun")
    assert not power.has_given_up(_vm(a1="Suspended"), power.decide(_vm(a1="Suspended")))
    assert not power.is_off_by_its_spec(_vm(a1="Suspended"), power.decide(_vm(a1="Suspended")))


def _lost(vm: dict[str, Any], status: str = "True") -> dict[str, Any]:
    vm["spec"]["onNodeLoss"] = "Wait"
    vm["status"]["conditions"] = [{"type": "NodeLost", "status": status}]
    return vm


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Once", "Manual"])
def test_a_machine_of_a_lost_node_is_off_until_a_later_start(strategy: str) -> None:
    vm = _lost(_vm(strategy, a1="Failed"))
    assert _brief(vm) == (False, 1, "NodeLost")
    assert power.has_given_up(vm, power.decide(vm))
    assert _brief(_lost(_vm(strategy, a1="Failed", request=_request("Start", 1, strategy)))) == (False, 1, "NodeLost")
    assert _brief(_lost(_vm(strategy, a1="Failed", request=_request("Start", 2, strategy)))) == (True, 2, "Requested")
    assert _brief(_lost(_vm(strategy, a1="Failed"), "False"))[2] != "NodeLost"
    assert _brief(_lost(_vm(strategy, attempt=2, a1="Failed")))[2] != "NodeLost", "the next attempt runs"
    assert _brief(_lost(_vm("Halted", a1="Failed"))) == (False, 1, "Halted")


@pytest.mark.parametrize(("requested", "expected"), [(None, 40), (5, 5), (60, 40), (0, 0)])
def test_a_stop_shortens_the_grace_period_only(requested: int | None, expected: int) -> None:
    given = {} if requested is None else {"gracePeriodSeconds": requested}
    vm = _vm(a1={"nodeName": "node1"}, request={**_request("Stop", 1), **given})
    vm["spec"]["terminationGracePeriodSeconds"] = 40
    assert power.grace_seconds(vm) == expected
    assert power.grace_of_spec({}) == power.grace_of_spec({"spec": {}}) == 30


def test_a_start_requires_nodes_of_its_own_attempt_only() -> None:
    vm = _vm(request={**_request("Start", 2), "nodeSelector": {"disk": "fast"}})
    assert [dict(power.node_selector(vm, attempt)) for attempt in (1, 2, 3)] == [{}, {"disk": "fast"}, {}]
    assert dict(power.node_selector(_vm(request=_request("Start", 2)), 2)) == {}
    del vm["status"]["request"]["attempt"]
    assert dict(power.node_selector(vm, 1)) == {}


def test_the_newest_calls_are_kept_by_id() -> None:
    vm: dict[str, Any] = {}
    assert power.call_of(vm, "a") is None
    for call in ("b", "a", "c"):
        power.keep_call(vm, call, "start")
    assert [power.call_of(vm, each) for each in ("a", "d")] == [{"id": "a", "verb": "start"}, None]
    for number in range(power.MAX_CALLS_KEPT):
        power.keep_call(vm, f"n{number}", "stop")
    assert [each["id"] for each in vm["status"]["calls"]] == [f"n{number}" for number in range(power.MAX_CALLS_KEPT)]
