"""One change of one module, with a key that survives other edits."""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, order=True)
class Key:
    module: str
    function: str
    """Qualified name of the innermost function or class, or ``<module>``."""
    operator: str
    """cosmic-ray's kind of change."""
    before: str
    after: str
    nth: int = 1
    """Its number among equal lines of a function."""


@dataclass(frozen=True)
class Mutant:
    key: Key
    line: int
    source: str


def mutants(module: str, source: str, changes: Iterable[Mapping[str, Any]]) -> list[Mutant]:
    functions = _functions(source)
    found = []
    for change in sorted(changes, key=lambda each: (each["line"], each["operator"])):
        before, after = _lines(source, change["source"])
        key = Key(module, _innermost(functions, change["line"]), change["operator"], before, after)
        found.append(Mutant(key, change["line"], change["source"]))
    return _numbered(found)


def _numbered(found: list[Mutant]) -> list[Mutant]:
    seen: Counter[Key] = Counter()
    numbered = []
    for each in found:
        seen[each.key] += 1
        numbered.append(replace(each, key=replace(each.key, nth=seen[each.key])))
    return numbered


def _functions(source: str) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                found.append((first, child.end_lineno or child.lineno, name))
            visit(child, name)

    visit(ast.parse(source), "")
    return found


def _innermost(functions: list[tuple[int, int, str]], line: int) -> str:
    return next((name for first, last, name in reversed(functions) if first <= line <= last), "<module>")


def _lines(before: str, after: str) -> tuple[str, str]:
    old, new = before.splitlines(), after.splitlines()
    gone, come = [], []
    for tag, first, last, new_first, new_last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            gone += old[first:last]
            come += new[new_first:new_last]
    return "\n".join(each.strip() for each in gone), "\n".join(each.strip() for each in come)
