"""Compiled nodes of the syntax tree, and the compiler's interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from apiserver.cel.frame import Frame
from apiserver.cel.syntax import Node, Source
from apiserver.cel.values import Value

Run = Callable[[Frame], Value]


class Code(NamedTuple):
    """A compiled node of the syntax tree; ``run`` evaluates it."""

    run: Run
    cost: int
    """Of every evaluation."""
    constant: bool = False


class Nodes(Protocol):
    """Compiles nodes; ``scope`` maps visible loop variables' names to slots."""

    source: Source

    def slot(self) -> int:
        """Reserve and return a loop variable's slot in ``Frame.slots``."""
        ...

    def compile(self, node: Node, scope: dict[str, int]) -> Code:
        """Compile a syntax node, or raise CompileError."""
        ...
