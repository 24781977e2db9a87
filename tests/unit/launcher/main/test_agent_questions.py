from __future__ import annotations

import dataclasses

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import AgentRefused, AgentUnresponsive, Observation
from launcher.main.decisions import agent_questions
from launcher.main.decisions.agent_questions import Round, Turn

RUNNING = Observation("guest", "u", "qemu", State.RUNNING, "booted", agent_connected=True)
PAUSED = dataclasses.replace(RUNNING, state=State.PAUSED)
DEAF = dataclasses.replace(RUNNING, agent_connected=False)
OFF = dataclasses.replace(RUNNING, state=State.SHUTOFF)


@pytest.mark.parametrize(
    ("domain", "stopping", "expected"),
    [
        (None, False, Turn.MISS),
        (DEAF, False, Turn.MISS),
        (DEAF, True, Turn.MISS),
        (RUNNING, False, Turn.ASK),
        (RUNNING, True, Turn.PASS),
        (PAUSED, False, Turn.PASS),
    ],
)
def test_agent_turn_follows_the_domain_state(domain: Observation | None, *, stopping: bool, expected: Turn) -> None:
    assert agent_questions.turn(domain, stopping=stopping) is expected


@pytest.mark.parametrize(
    ("domain", "stopping", "reason"),
    [
        (None, False, "the guest is not running"),
        (OFF, True, "the guest is not running"),
        (RUNNING, True, "the guest is being shut down"),
        (DEAF, True, "the guest is being shut down"),
        (DEAF, False, "no guest agent is connected: "),
        (PAUSED, False, "the guest is paused; unpause it first"),
        (dataclasses.replace(PAUSED, agent_connected=False), False, "the guest is paused; unpause it first"),
        (RUNNING, False, ""),
    ],
)
def test_why_an_agent_cannot_be_asked(domain: Observation | None, *, stopping: bool, reason: str) -> None:
    found = agent_questions.why_unavailable(domain, stopping=stopping)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


KNOWS = Round(found={"agent": {"commands": ["guest-get-users"]}})


@pytest.mark.parametrize(
    ("so_far", "stopping", "late", "reason"),
    [
        (Round(), False, False, ""),
        (Round(found={"agent": None}), False, False, ""),
        (KNOWS, False, False, "the guest agent does not support guest-get-osinfo, or its configuration blocks it"),
        (KNOWS, False, True, "not requested, because the guest agent was too slow"),
        (KNOWS, True, True, "the guest is being shut down"),
        (dataclasses.replace(KNOWS, unresponsive="no answer"), True, True, "no answer"),
        (Round(found={"agent": {"commands": ["guest-get-osinfo"]}}), False, False, ""),
    ],
)
def test_why_a_question_of_a_round_is_not_asked(so_far: Round, *, stopping: bool, late: bool, reason: str) -> None:
    assert agent_questions.why_not_asked(so_far, "guest-get-osinfo", stopping=stopping, late=late) == reason


def test_a_round_has_what_was_told_and_why_the_rest_was_not() -> None:
    asked = agent_questions.answered(Round(), "hostname", {"host-name": "web-1"})
    asked = agent_questions.answered(asked, "timezone", "no object")
    asked = agent_questions.passed_over(asked, "os", "too slow")
    asked = agent_questions.refused(asked, "users", AgentRefused("not allowed"))
    assert asked.unresponsive == ""
    asked = agent_questions.refused(asked, "interfaces", AgentUnresponsive("no answer"))
    assert asked.unresponsive == "no answer"
    told = agent_questions.answers(asked)
    assert told["hostname"] == "web-1"
    assert "timezone" not in told
    assert [(each["field"], each["reason"]) for each in told["unavailable"]] == [
        ("os", "too slow"),
        ("users", "not allowed"),
        ("interfaces", "no answer"),
    ]
    assert told["truncated"] == []


def test_a_list_that_is_cut_says_so() -> None:
    asked = agent_questions.answered(Round(), "users", [{"user": f"u{each}", "login-time": 1.0} for each in range(1000)])
    assert agent_questions.answers(asked)["truncated"] == ["users"]
