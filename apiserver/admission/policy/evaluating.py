"""Evaluate expressions within a budget, and a policy's variables on demand (``plugin/cel``)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apiserver.admission.webhook.registrations import Expression
from apiserver.cel import asking
from apiserver.cel.asking import Ask
from apiserver.cel.cost import PER_CALL_LIMIT
from apiserver.cel.environment import Environment, Program, Result
from apiserver.cel.library.authz import Answer, Question
from apiserver.cel.values import CelError, CompileError, Lazy, Value

_LONG: Final = 20_000
"""About ten milliseconds; then other tasks run."""
OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"


class OutOfBudget(Exception):
    """A policy's expressions exceed the budget."""

    def __init__(self) -> None:
        super().__init__(OUT_OF_BUDGET)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled expression, or its problem."""

    text: str
    program: Program | None
    problem: str = ""

    @classmethod
    def of(cls, environment: Environment, text: str) -> Compiled:
        """Compile ``text``; an error becomes ``problem``, which evaluation returns, for the policy's ``failurePolicy``."""
        from apiserver.cel.compiler import compile_expression  # late: 0.6 MiB

        try:
            return cls(text, compile_expression(environment, text))
        except CompileError as error:
            return cls(text, None, f"compilation failed: {error}")


Variables = Mapping[str, Compiled]


class _Composed(Lazy):
    __slots__ = ("_compiled", "_known", "cost", "names")

    def __init__(self, compiled: Variables, names: dict[str, Any]) -> None:
        self._compiled = compiled
        self._known: dict[str, Result] = {}
        self.names = names
        self.cost = 0

    def has(self, name: str) -> bool:
        return name in self._compiled

    def get(self, name: str) -> Value:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._evaluate(name)
        if known.failed:
            raise CelError(known.error)
        return known.value

    def _evaluate(self, name: str) -> Result:
        if (compiled := self._compiled.get(name)) is None:
            raise CelError(f"no such key: {name}")
        if compiled.program is None:
            return Result(None, 0, f'composited variable "{name}" fails to compile: {compiled.problem}')
        result = compiled.program.evaluate(self.names)
        self.cost += result.cost
        if result.failed:
            return Result(None, 0, f'composited variable "{name}" fails to evaluate: {result.error}')
        return result


class Evaluation:
    """Evaluates expressions over one input within one budget."""

    def __init__(self, names: dict[str, Any], variables: Variables | None, budget: int, answers: dict[Question, Answer], ask: Ask) -> None:
        self.remaining = budget
        self._names = names
        self._answers = answers
        self._ask = ask
        self._composed: _Composed | None = None
        if variables is not None:
            self._composed = _Composed(variables, names)
            names["variables"] = self._composed

    async def evaluate(self, compiled: Compiled) -> Result:
        """Return an expression's Result, errors in Go's words; deduct its cost, with that of variables. Raises OutOfBudget."""
        if compiled.program is None:
            return Result(None, 0, f"compilation error: {compiled.problem}")
        result = await asking.evaluate(compiled.program, self._names, self._answers, self._ask, limit=PER_CALL_LIMIT)
        cost = result.cost
        if self._composed is not None:
            cost += self._composed.cost
            self._composed.cost = 0
        if cost > self.remaining:
            raise OutOfBudget
        self.remaining -= cost
        if cost > _LONG:
            await asyncio.sleep(0)
        if result.failed:
            return Result(None, cost, f"expression '{compiled.text}' resulted in error: {result.error}")
        return result


def compose(expressions: Sequence[Expression], *, params: bool, environment_of: Any) -> dict[str, Compiled]:  # noqa: ANN401 - see activation
    """Return a policy's compiled ``variables`` by name; each may use earlier ones.

    ``params``: the policy has parameters. ``environment_of``: :func:`activation.environment`.
    """
    compiled: dict[str, Compiled] = {}
    for each in expressions:
        known = environment_of(params=params, authorizer=True, variables=tuple(compiled))
        compiled[each.name] = Compiled.of(known, each.expression)
    return compiled
