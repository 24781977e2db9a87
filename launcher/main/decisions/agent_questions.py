"""Decides which questions to send to a guest agent, and collects a round's answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from apiserver.apis.meta.objects import Object
from launcher.domain.states import State
from launcher.hypervisor.port import AgentUnresponsive, Observation, OperationInvalid
from launcher.main.decisions import agent_answers


class Turn(Enum):
    """What to do when the next questions to a guest agent are due."""

    MISS = "say that no agent is connected"
    ASK = "ask for what the status tells"
    PASS = "do nothing"  # noqa: S105  # no password


def turn(domain: Observation | None, *, stopping: bool, frozen: bool = False) -> Turn:
    """Return a Turn: ``ASK`` the agent, ``MISS`` (none is connected), or ``PASS`` (the guest cannot answer now).

    ``stopping``: the guest is shutting down. ``frozen``: its file systems are frozen, and qemu-ga refuses most commands.
    """
    if domain is None or not domain.agent_connected:
        return Turn.MISS
    return Turn.ASK if domain.state is State.RUNNING and not stopping and not frozen else Turn.PASS


def why_unavailable(domain: Observation | None, *, stopping: bool, frozen: bool = False) -> str:
    """Return why a domain's agent is unavailable; empty if it is available."""
    if domain is None or not domain.active:
        return "the guest is not running"
    if stopping:
        return "the guest is being shut down"
    if domain.state is State.PAUSED:
        return "the guest is paused; unpause it first (kubectl virt unpause)"
    if not domain.agent_connected:
        return "no guest agent is connected: install the package qemu-guest-agent in the guest and start it"
    if domain.state is not State.RUNNING:
        return f"the guest is {domain.state.name.lower()}, and so is its agent"
    if frozen:
        return "the guest's file systems are frozen, and so is most of its agent"
    return ""


@dataclass(frozen=True, slots=True)
class Round:
    """A guest agent's answers to one series of questions so far."""

    found: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    problems: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Why fields are missing."""
    truncated: tuple[str, ...] = ()
    unresponsive: str = ""
    """The agent did not answer, which ended the round."""

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the agent's commands; empty if unknown."""
        return tuple((self.found.get("agent") or {}).get("commands") or ())


def why_not_asked(round_: Round, command: str, *, stopping: bool, late: bool) -> str:
    """Return why a question is skipped, or an empty string; ``late``: the round has taken too long."""
    if round_.unresponsive:
        return round_.unresponsive
    if stopping:
        return "the guest is being shut down"
    if late:
        return "not requested, because the guest agent was too slow"
    if round_.commands and command not in round_.commands:
        return f"the guest agent does not support {command}, or its configuration blocks it"
    return ""


def passed_over(round_: Round, field: str, reason: str) -> Round:
    """Return the Round with the reason why the question for this field was skipped."""
    return dataclasses.replace(round_, problems={**round_.problems, field: reason})


def answered(round_: Round, field: str, answer: object) -> Round:
    """Return the Round with the untrusted answer for this field."""
    value, more = agent_answers.field_of(field, answer)
    return dataclasses.replace(
        round_, found={**round_.found, field: value}, truncated=(*round_.truncated, field) if more else round_.truncated
    )


def refused(round_: Round, field: str, error: OperationInvalid) -> Round:
    """Return the Round with an error for this field; after an unresponsive agent, further questions are skipped."""
    unresponsive = str(error) if isinstance(error, AgentUnresponsive) else ""
    return dataclasses.replace(passed_over(round_, field, str(error)), unresponsive=unresponsive)


def answers(round_: Round) -> Object:
    """Return the Round's fields with answers, why others are missing, and which are cut."""
    return {
        **{field: value for field, value in round_.found.items() if value is not None},
        "unavailable": [{"field": field, "reason": reason} for field, reason in round_.problems.items()],
        "truncated": list(round_.truncated),
    }
