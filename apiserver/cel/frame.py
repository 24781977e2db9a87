"""Frame of one evaluation: all that it has at hand."""

from __future__ import annotations

from collections.abc import Mapping

from apiserver.cel.cost import MAX_TOIL, PER_CALL_LIMIT
from apiserver.cel.values import CostExceeded, Value


class Frame:
    """The variables of one evaluation, the loop variables by number, and the cost so far."""

    __slots__ = ("cost", "limit", "slots", "toiled", "variables")

    def __init__(self, variables: Mapping[str, Value], slots: int, limit: int = PER_CALL_LIMIT) -> None:
        self.variables = variables
        self.slots: list[Value] = [None] * slots
        self.cost = 0
        self.toiled = 0
        self.limit = limit

    def charge(self, cost: int) -> None:
        """Add to the cost; called before the work where that depends on the arguments.

        Raises:
            CostExceeded: that is too much.
        """
        self.cost += cost
        if self.cost > self.limit:
            raise CostExceeded

    def toil(self, values: int) -> None:
        """Count values looked at by a step that costs less than it takes.

        Raises:
            CostExceeded: that is too much.
        """
        self.toiled += values
        if self.toiled > MAX_TOIL:
            raise CostExceeded
