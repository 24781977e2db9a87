"""Evaluate expressions that may call the authorizer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from apiserver.cel.cost import PER_CALL_LIMIT
from apiserver.cel.environment import Program, Result
from apiserver.cel.library.authz import Answer, Question, Undecided
from apiserver.cel.values import Value

Ask = Callable[[Question], Awaitable[Answer]]
"""Failures become ``Answer.error``, never an exception."""


async def evaluate(
    program: Program, variables: Mapping[str, Value], answers: dict[Question, Answer], ask: Ask, *, limit: int = PER_CALL_LIMIT
) -> Result:
    """Return a program's result.

    For each authorization question that it meets without an entry in the shared ``answers``, add the answer of ``ask``, and restart.
    """
    while True:
        try:
            return program.evaluate(variables, limit=limit)
        except Undecided as undecided:
            answers[undecided.question] = await ask(undecided.question)
