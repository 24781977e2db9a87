"""The environment of expressions: available names, compilation and evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from apiserver.cel.code import Run
from apiserver.cel.cost import PER_CALL_LIMIT
from apiserver.cel.frame import Frame
from apiserver.cel.registry import Library
from apiserver.cel.values import CelError, CostExceeded, Type, Value

_TYPES: Final = (
    *("bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type"),
    *("google.protobuf.Timestamp", "google.protobuf.Duration", "net.IP", "net.CIDR"),
)
TYPES: Final[Mapping[str, Type]] = {name: Type(name) for name in _TYPES}


@dataclass(frozen=True)
class Environment:
    """Functions and variables that expressions may use."""

    library: Library
    variables: frozenset[str] = frozenset()
    """Names may have dots: ``authorizer.requestResource``."""
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of variables, such as ``variables`` of a policy."""
    patches: bool = False
    """Allows ``Object{...}`` and ``JSONPatch{...}``."""


@dataclass(frozen=True, slots=True)
class Result:
    """A value or an error, and the cost."""

    value: Value
    cost: int
    error: str = ""

    @property
    def failed(self) -> bool:
        """True for an error instead of a value."""
        return bool(self.error)


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled, stateless expression."""

    text: str
    run: Run
    cost: int
    """Without loops and branches."""
    slots: int

    def evaluate(self, variables: Mapping[str, Value], *, limit: int = PER_CALL_LIMIT) -> Result:
        """Evaluate with ``variables``. CelError, exceeded limits and deep nesting become the Result's error; ``Undecided`` propagates."""
        frame = Frame(variables, self.slots, limit)
        frame.cost = self.cost
        try:
            value = self.run(frame)
            if frame.cost > limit:
                raise CostExceeded
        except (CelError, CostExceeded) as error:
            return Result(None, frame.cost, str(error) or "no such overload")
        except RecursionError:
            return Result(None, frame.cost, "values nest too deeply")
        return Result(value, frame.cost)
