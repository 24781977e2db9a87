"""One evaluation's state."""

from __future__ import annotations

from collections.abc import Mapping

from apiserver.cel.cost import MAX_TOIL, PER_CALL_LIMIT
from apiserver.cel.values import CostExceeded, Value


class Frame:
    """State of one evaluation: variables, loop variables by slot, and the cost."""

    __slots__ = ("cost", "limit", "slots", "toiled", "variables")

    def __init__(self, variables: Mapping[str, Value], slots: int, limit: int = PER_CALL_LIMIT) -> None:
        self.variables = variables
        self.slots: list[Value] = [None] * slots
        self.cost = 0
        self.toiled = 0
        self.limit = limit

    def charge(self, cost: int) -> None:
        """Add a cost, before work that depends on arguments; raises CostExceeded."""
        self.cost += cost
        if self.cost > self.limit:
            raise CostExceeded

    def toil(self, values: int) -> None:
        """Count values that a step visits for less than their cost; raises CostExceeded above ``MAX_TOIL``."""
        self.toiled += values
        if self.toiled > MAX_TOIL:
            raise CostExceeded
