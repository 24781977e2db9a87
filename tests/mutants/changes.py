"""Prints one module's changes: ``python -m tests.mutants.changes < module.py``.

Each line is JSON with ``operator``, ``line`` and the changed ``source``. Most kinds are cosmic-ray's, which only this module imports. Three
are ours: negated memberships, and a dropped operand of ``and`` or ``or``.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import MutationVisitor
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider

from tests.mutants import filters

_DEFAULTS = frozenset({"{}", "[]", "()", '""', "0"})
Position = tuple[tuple[int, int], tuple[int, int]]


class _Membership(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    before: str
    after: str

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if node.type == "comparison":
            for each in node.children[1::2]:
                if each.get_code().split() == self.before.split():
                    yield each.start_pos, each.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        places = [at for at, each in enumerate(node.children) if at % 2 and each.get_code().split() == self.before.split()]
        node.children[places[index]] = parso.parse(f" {self.after}")
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class ReplaceInWithNotIn(_Membership):
    before, after = "in", "not in"


class ReplaceNotInWithIn(_Membership):
    before, after = "not in", "in"


class DropOperand(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """``a and b`` → ``a``, and → ``b``; the same for ``or``, except for defaults (``a or {}``)."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if node.type in ("and_test", "or_test") and node.children[-1].get_code().strip() not in _DEFAULTS:
            for each in node.children[::2]:
                yield each.start_pos, each.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        if index == 0:
            prefix = node.get_first_leaf().prefix
            del node.children[:2]
            node.get_first_leaf().prefix = prefix
        else:
            del node.children[2 * index - 1 : 2 * index + 1]
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


def _operators() -> Iterator[tuple[str, Any]]:
    provided = OperatorProvider()
    for name in provided:
        if not provided[name].arguments():  # the others need variable names
            yield name, provided[name]()
    for ours in (ReplaceInWithNotIn, ReplaceNotInWithIn, DropOperand):
        yield ours.__name__, ours()


def changes(source: str) -> Iterator[dict[str, object]]:
    tree = get_ast(source)
    kept = pickle.dumps(tree)  # a visitor changes the tree, and parsing takes fifteen times as long
    for name, operator in _operators():
        if not filters.is_made(name):
            continue
        positions = [position for node in ast_nodes(tree) for position in operator.mutation_positions(node)]
        for occurrence, (start, _) in enumerate(positions):
            try:
                changed = MutationVisitor(occurrence, operator).walk(pickle.loads(kept)).get_code()
            except AttributeError:  # ExceptionReplacer fails on dotted names (except errors.Conflict)
                continue
            if filters.in_vain(name, source, changed) is None:
                yield {"operator": name, "line": start[0], "source": changed}


def main() -> int:
    for change in changes(sys.stdin.read()):
        print(json.dumps(change), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
