"""Kinds of changes that cannot matter, each with its reason."""

from __future__ import annotations

import ast
import functools
import re
from typing import Final

WITHOUT: Final = (
    (
        re.compile(r"ReplaceComparisonOperator_(?!Is)\w+_Is(Not)?"),
        "which equal values are one object is the interpreter's choice (small numbers and names are); ruff forbids it where it is not",
    ),
)
"""Kinds that are never made, with reasons."""
UNORDERED: Final = "words have no order in this code: an equality that becomes one compares letters, and what it says is chance"
NOTHING: Final = "only annotations differ, how an argument may be passed, what others may assign (mypy looks at these), or what is logged"
CHOSEN: Final = "a number at the top of a module is a choice of ours, one more or less keeps what it is for, and a test would repeat it"
BROKEN: Final = "is no program"

_TO_AN_ORDER: Final = re.compile(r"ReplaceComparisonOperator_(Eq|NotEq)_(Lt|LtE|Gt|GtE)")
_WORD: Final = re.compile(r"_?[A-Z][A-Z0-9_]*")
_GUARDS: Final = frozenset({"frozen", "slots", "kw_only"})
_LOGS: Final = frozenset({"log", "_log", "logger", "_logger", "LOG", "_LOG"})


def is_made(operator: str) -> bool:
    return not any(pattern.fullmatch(operator) for pattern, _ in WITHOUT)


def in_vain(operator: str, before: str, after: str) -> str | None:
    try:
        new = ast.parse(after)
        compile(new, "<mutant>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return BROKEN
    if _bare(before) == ast.dump(_Bare().visit(new)):
        return NOTHING
    if operator == "NumberReplacer" and _without_choices(before) == _without_choices(after):
        return CHOSEN
    if _TO_AN_ORDER.fullmatch(operator):
        compared = _comparison(ast.parse(before), ast.parse(after))
        if compared is not None and any(map(_is_word, [compared.left, *compared.comparators])):
            return UNORDERED
    return None


def _without_choices(source: str) -> str:
    tree = ast.parse(source)
    tree.body = [each for each in tree.body if not isinstance(each, ast.Assign | ast.AnnAssign)]
    return ast.dump(tree)


@functools.lru_cache(maxsize=1)
def _bare(source: str) -> str:
    return ast.dump(_Bare().visit(ast.parse(source)))


class _Bare(ast.NodeTransformer):
    """Removes what a change of :data:`NOTHING` affects, such as annotations, which are not evaluated."""

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults = [*node.defaults, *(each for each in node.kw_defaults if each is not None)]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Name(id="dataclass"):
                node.keywords = [each for each in node.keywords if each.arg not in _GUARDS]
            case ast.Attribute(value=ast.Name(id=name)) if name in _LOGS:
                node.args, node.keywords = [], []
        return self.generic_visit(node)


def _comparison(before: ast.AST, after: ast.AST) -> ast.Compare | None:
    found: ast.Compare | None = None
    while type(before) is type(after):
        if isinstance(before, ast.Compare):
            found = before
        pairs = zip(ast.iter_child_nodes(before), ast.iter_child_nodes(after), strict=True)
        differing = [(old, new) for old, new in pairs if ast.dump(old) != ast.dump(new)]
        if len(differing) != 1:
            break
        ((before, after),) = differing
    return found


def _is_word(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _WORD.fullmatch(name) is not None
        case _:
            return False
