"""Label selectors: ``app=web,tier in (a, b),!legacy``, as in apimachinery's ``labels``."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from apiserver.apis.meta import names
from apiserver.apis.meta.validation import FieldError, Path, invalid

MAX_LENGTH: Final = 64 * 1024
"""More than fits into a URL."""
MAX_REQUIREMENTS: Final = 1000
"""Each watch evaluates all of them for each change."""
_FEW: Final = 8


class Operator(StrEnum):
    """Operator of a requirement (Go: ``selection.Operator``); ``==`` in a selector is EQUALS."""

    EQUALS = "="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER_THAN = "gt"
    LESS_THAN = "lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    """Sorted."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy this term; a missing key satisfies ``!=``, ``notin`` and ``!``."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.EQUALS | Operator.IN:
                return value is not None and self._names(value)
            case Operator.NOT_EQUALS | Operator.NOT_IN:
                return value is None or not self._names(value)
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                number = _integer(value)
                bound = _integer(self.values[0])
                if number is None or bound is None:
                    return False
                return number > bound if self.operator is Operator.GREATER_THAN else number < bound

    def _names(self, value: str) -> bool:
        values = self.values
        if len(values) <= _FEW:
            return value in values
        place = bisect_left(values, value)
        return place < len(values) and values[place] == value

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator} ({','.join(sorted(self.values))})"
            case Operator.GREATER_THAN:
                return f"{self.key}>{self.values[0]}"
            case Operator.LESS_THAN:
                return f"{self.key}<{self.values[0]}"
            case Operator.EQUALS | Operator.NOT_EQUALS:
                return f"{self.key}{self.operator}{self.values[0]}"


@dataclass(frozen=True, slots=True)
class Selector:
    """Terms that must all hold; without terms, everything matches."""

    requirements: tuple[Requirement, ...] = ()

    @property
    def is_everything(self) -> bool:
        """True if the selector lacks terms, and so matches every object."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether labels satisfy every term."""
        given = labels or {}
        return all(each.matches(given) for each in self.requirements)

    def __str__(self) -> str:
        return ",".join(str(each) for each in self.requirements)


EVERYTHING: Final = Selector()


def parse(text: str) -> Selector:
    """Parse a label selector; its terms are sorted by key. An empty text matches everything.

    Raises:
        ValueError: it is invalid, with apimachinery's text; or too long, or of too many terms.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a label selector may not be longer than {MAX_LENGTH} characters")
    requirements = _Parser(_scan(text)).parse()
    if len(requirements) > MAX_REQUIREMENTS:
        raise ValueError(f"a label selector may not have more than {MAX_REQUIREMENTS} requirements")
    return Selector(tuple(sorted(requirements, key=lambda each: each.key)))


def from_json(selector: Mapping[str, Any] | None) -> Selector:
    """Return the selector of a validated ``metav1.LabelSelector``, with terms sorted by key; None matches everything."""
    given = selector or {}
    operators = {
        "In": Operator.IN,
        "NotIn": Operator.NOT_IN,
        "Exists": Operator.EXISTS,
        "DoesNotExist": Operator.DOES_NOT_EXIST,
    }
    requirements = [Requirement(key, Operator.EQUALS, (value,)) for key, value in (given.get("matchLabels") or {}).items()]
    requirements += [
        Requirement(each["key"], operators[each["operator"]], tuple(sorted(each.get("values") or ())))
        for each in given.get("matchExpressions") or []
    ]
    return Selector(tuple(sorted(requirements, key=lambda each: each.key)))


class _Token(NamedTuple):
    kind: str
    text: str


_WORD: Final = "identifier"
_END: Final = "end"
_SYMBOLS: Final = frozenset({"=", "==", "!=", "!", "(", ")", ",", ">", "<"})
_SPECIAL: Final = frozenset("=!(),><")
_BLANK: Final = frozenset(" \t\r\n")
_BINARY: Final = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.EQUALS,
    "==": Operator.EQUALS,
    "!=": Operator.NOT_EQUALS,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}
_BINARY_TEXT: Final = "in, notin, =, ==, !=, gt, lt"


def _scan(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char in _BLANK:
            position += 1
        elif char in _SPECIAL:
            symbol = _longest_symbol(text, position)
            tokens.append(_Token(symbol, symbol))
            position += len(symbol)
        else:
            start = position
            while position < len(text) and text[position] not in _SPECIAL and text[position] not in _BLANK:
                position += 1
            word = text[start:position]
            tokens.append(_Token(word if word in ("in", "notin") else _WORD, word))
    tokens.append(_Token(_END, ""))
    return tokens


def _longest_symbol(text: str, position: int) -> str:
    two = text[position : position + 2]
    return two if two in _SYMBOLS else text[position]


class _Parser:
    """Parses a selector's tokens; ``in`` and ``notin`` are words where a key or value may be."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._position = 0

    def _peek(self) -> _Token:
        token = self._tokens[min(self._position, len(self._tokens) - 1)]
        return _Token(_WORD, token.text) if token.kind in ("in", "notin") else token

    def _take(self) -> _Token:
        token = self._peek()
        self._position += 1
        return token

    def _take_operator(self) -> _Token:
        token = self._tokens[min(self._position, len(self._tokens) - 1)]
        self._position += 1
        return token

    def parse(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while True:
            token = self._peek()
            if token.kind == _END:
                return requirements
            if token.kind not in (_WORD, "!"):
                raise ValueError(f"found '{token.text}', expected: !, identifier, or 'end of string'")
            try:
                requirements.append(self._requirement())
            except ValueError as error:
                raise ValueError(f"unable to parse requirement: {error}") from error
            after = self._take()
            if after.kind == _END:
                return requirements
            if after.kind != ",":
                raise ValueError(f"found '{after.text}', expected: ',' or 'end of string'")
            following = self._peek()
            if following.kind not in (_WORD, "!"):
                raise ValueError(f"found '{following.text}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        token = self._take()
        negated = token.kind == "!"
        if negated:
            token = self._take()
        if token.kind != _WORD:
            raise ValueError(f"found '{token.text}', expected: identifier")
        key = token.text
        if problems := names.qualified_name_errors(key):
            raise ValueError(str(invalid(Path(), key, "; ".join(problems))))
        if negated:
            return Requirement(key, Operator.DOES_NOT_EXIST)
        if self._peek().kind in (_END, ","):
            return Requirement(key, Operator.EXISTS)
        symbol = self._take_operator()
        operator = _BINARY.get(symbol.kind)
        if operator is None:
            raise ValueError(f"found '{symbol.text}', expected: {_BINARY_TEXT}")
        values = self._values() if operator in (Operator.IN, Operator.NOT_IN) else (self._exact_value(),)
        return _checked(Requirement(key, operator, values))

    def _values(self) -> tuple[str, ...]:
        opening = self._take()
        if opening.kind != "(":
            raise ValueError(f"found '{opening.text}' expected: '('")
        values: set[str] = set()
        expects_value = True
        while True:
            token = self._take()
            if token.kind == _WORD and expects_value:
                values.add(token.text)
                expects_value = False
            elif token.kind == ",":
                if expects_value:
                    values.add("")
                expects_value = True
            elif token.kind == ")":
                if expects_value:
                    values.add("")
                return tuple(sorted(values))
            elif expects_value:
                text = "',', ')' or identifier" if not values else "',', or identifier"
                raise ValueError(f"found '{token.text}', expected: {text}")
            else:
                raise ValueError(f"found '{token.text}', expected: ',' or ')'")

    def _exact_value(self) -> str:
        if self._peek().kind in (_END, ","):
            return ""
        token = self._take()
        if token.kind != _WORD:
            raise ValueError(f"found '{token.text}', expected: identifier")
        return token.text


def _checked(requirement: Requirement) -> Requirement:
    found: list[FieldError] = []
    path = Path("values")
    if requirement.operator in (Operator.GREATER_THAN, Operator.LESS_THAN) and _integer(requirement.values[0]) is None:
        found.append(invalid(path.index(0), requirement.values[0], "for 'Gt', 'Lt' operators, the value must be an integer"))
    for position, value in enumerate(requirement.values):
        if problems := names.label_value_errors(value):
            found.append(invalid(path.index(position).key(requirement.key), value, "; ".join(problems)))
    if found:
        texts = [str(each) for each in found]
        raise ValueError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    return requirement


def _integer(text: str | None) -> int | None:
    if text is None or len(text) > 20 or not text.removeprefix("-").removeprefix("+").isdecimal() or not text.isascii():
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
