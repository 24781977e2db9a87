"""Field selectors: ``status.phase=Running,spec.nodeName!=node1``, parsed like apimachinery's ``fields``.

In a value, a backslash escapes a comma, an equals sign and itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MAX_LENGTH: Final = 64 * 1024
MAX_TERMS: Final = 1000
"""Each watch evaluates all of them for each change."""


@dataclass(frozen=True, slots=True)
class Term:
    """``field=value`` or ``field!=value``."""

    field: str
    value: str
    equal: bool = True

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Return whether fields satisfy this term; a missing field is the empty string."""
        return (fields.get(self.field, "") == self.value) == self.equal

    def __str__(self) -> str:
        return f"{self.field}{'=' if self.equal else '!='}{escape(self.value)}"


@dataclass(frozen=True, slots=True)
class Selector:
    """Terms that must all hold."""

    terms: tuple[Term, ...] = ()

    @property
    def is_everything(self) -> bool:
        """True if the selector lacks terms, and so matches every object."""
        return not self.terms

    @property
    def field_names(self) -> frozenset[str]:
        """The fields in the terms."""
        return frozenset(each.field for each in self.terms)

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Return whether fields satisfy every term."""
        return all(each.matches(fields) for each in self.terms)

    def exact(self, field: str) -> str | None:
        """Return the value that a term with ``=`` requires for ``field``, or None."""
        return next((each.value for each in self.terms if each.field == field and each.equal), None)

    def __str__(self) -> str:
        return ",".join(str(each) for each in self.terms)


EVERYTHING: Final = Selector()


def parse(text: str) -> Selector:
    """Parse a field selector; its fields need not exist. An empty text matches everything.

    Raises:
        ValueError: it is invalid, with apimachinery's text; or too long, or of too many terms.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a field selector may not be longer than {MAX_LENGTH} characters")
    terms = []
    for part in sorted(_split(text)):
        if not part:
            continue
        field, operator, value = _split_term(part)
        if not operator:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{part}'")
        if field or value:  # apimachinery ignores an operator alone
            terms.append(Term(field, unescape(value), operator != "!="))
    if len(terms) > MAX_TERMS:
        raise ValueError(f"a field selector may not have more than {MAX_TERMS} terms")
    return Selector(tuple(terms))


def escape(value: str) -> str:
    """Return a field's value as a selector has it: a backslash precedes each backslash, comma and equals sign."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def unescape(value: str) -> str:
    """Return a field's value from a selector.

    Raises:
        ValueError: an unescaped ``,`` or ``=``, or a backslash before anything else.
    """
    result = []
    characters = iter(value)
    for char in characters:
        if char == "\\":
            following = next(characters, "")
            if following not in ("\\", ",", "="):
                raise ValueError(f"invalid field selector: invalid escape sequence: \\{following}")
            result.append(following)
        elif char in ",=":
            raise ValueError(f"invalid field selector: unescaped character in value: {ord(char)}")
        else:
            result.append(char)
    return "".join(result)


def _split(text: str) -> list[str]:
    parts, start, escaped = [], 0, False
    for position, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == ",":
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def _split_term(term: str) -> tuple[str, str, str]:
    for position in range(len(term)):
        for operator in ("!=", "==", "="):
            if term.startswith(operator, position):
                return term[:position], operator, term[position + len(operator) :]
    return "", "", ""
