"""The syntax tree of an expression, after macro expansion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from apiserver.cel.values import CompileError, Value

MAX_DEPTH: Final = 120
"""Of nested brackets, calls and operators: cel-go allows 250, but a level takes several Python frames."""
MAX_LENGTH: Final = 100_000
"""In characters, as in cel-go."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    at: int
    value: Value


@dataclass(frozen=True, slots=True)
class Ident:
    """A name."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """``operand.field``, ``operand.?field``, or with ``test`` ``has(operand.field)``."""

    at: int
    operand: Node
    field: str
    optional: bool = False
    test: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """``operand[key]`` or ``operand[?key]``."""

    at: int
    operand: Node
    key: Node
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function, or an operator by its sign (``&&``, ``!``, ``?:``), with a member call's target."""

    at: int
    function: str
    args: tuple[Node, ...]
    target: Node | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """Element of a list, map or message; if ``optional`` (``?``), omitted when missing."""

    value: Node
    key: Node | None = None
    name: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ListOf:
    """``[a, b]``."""

    at: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """``{key: value}``."""

    at: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class MessageOf:
    """``Name{field: value}``."""

    at: int
    name: str
    items: tuple[Item, ...]


Loop: TypeAlias = Literal["all", "exists", "exists_one", "map", "filter", "transformList", "transformMap", "transformMapEntry"]


@dataclass(frozen=True, slots=True)
class Comprehension:
    """A macro that iterates over a list or a map."""

    at: int
    loop: Loop
    over: Node
    variables: tuple[str, ...]
    """One: the element, or a map's key. Two: index and element, or key and value."""
    step: Node
    where: Node | None = None


@dataclass(frozen=True, slots=True)
class Bind:
    """``optMap`` and ``optFlatMap``: ``step`` with ``variable`` bound to the value in ``over``; without a value, nothing."""

    at: int
    over: Node
    variable: str
    step: Node
    wrap: bool
    """The result becomes an optional."""


@dataclass(frozen=True, slots=True)
class SortBy:
    """``over.sortBy(variable, key)``."""

    at: int
    over: Node
    variable: str
    key: Node


Node: TypeAlias = Constant | Ident | Select | Index | Call | ListOf | MapOf | MessageOf | Comprehension | Bind | SortBy


@dataclass(frozen=True, slots=True)
class Source:
    """An expression's text, for error positions."""

    text: str

    def error(self, at: int, message: str) -> CompileError:
        """Return an error at the character ``at`` in cel-go's form: position, line, and a caret."""
        line = self.text.count("\n", 0, at) + 1
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        shown = self.text[start : end if end >= 0 else len(self.text)]
        column = at - start
        return CompileError(f"ERROR: <input>:{line}:{column + 1}: {message}\n | {shown}\n | {'.' * column}^")
