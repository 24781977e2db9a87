"""``matchConditions``: all must hold before a webhook call or a policy's evaluation (``webhook/matchconditions``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from apiserver.admission.policy.activation import Input, environment
from apiserver.admission.policy.evaluating import Compiled, Evaluation, OutOfBudget, Variables
from apiserver.admission.webhook.conditions import Conditions, ConditionsFailed
from apiserver.admission.webhook.registrations import Expression
from apiserver.admission.webhook.review import VersionedAttributes
from apiserver.apis.meta.objects import Object
from apiserver.cel.asking import Ask
from apiserver.cel.cost import MATCH_CONDITIONS_BUDGET

_FOR_WEBHOOKS: Final = environment(authorizer=True)


async def hold(conditions: Sequence[Compiled], given: Input, params: Object | None, variables: Variables | None, ask: Ask) -> bool:
    """Return whether all conditions are true.

    Raises ConditionsFailed if the evaluation of some fails and none is false, or for an exhausted budget.
    """
    evaluation = Evaluation(given.variables(params, authorizer=True), variables, MATCH_CONDITIONS_BUDGET, given.answers, ask)
    failures: list[str] = []
    for each in conditions:
        try:
            result = await evaluation.evaluate(each)
        except OutOfBudget as error:
            raise ConditionsFailed([str(error)]) from None
        if result.failed:
            failures.append(result.error)
        elif result.value is False:
            return False
    if failures:
        raise ConditionsFailed(failures)
    return True


class _WebhookConditions:
    def __init__(self, expressions: Sequence[Expression], ask: Ask) -> None:
        self._compiled = [Compiled.of(_FOR_WEBHOOKS, each.expression) for each in expressions]
        self._ask = ask

    async def hold(self, versioned: VersionedAttributes) -> bool:
        return await hold(self._compiled, Input(versioned), None, None, self._ask)


def for_webhooks(ask: Ask) -> Callable[[Sequence[Expression]], Conditions]:
    """Return a function that compiles webhooks' ``matchConditions``; ``ask`` answers their authorization checks."""
    return lambda expressions: _WebhookConditions(expressions, ask)
