"""Grammar of ``spec.domainXML``: the allowed elements and attributes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from apiserver.apis.virt.domainxml import characters
from apiserver.apis.virt.domainxml.parsing import BLANKS, Node
from apiserver.apis.virt.domainxml.values import Rule

MAX_PROBLEMS: Final = 50
"""Reported per document."""


@dataclass(frozen=True, slots=True)
class Element:
    """The attributes, text and children that an XML element may contain."""

    attributes: Mapping[str, Rule] = field(default_factory=dict)
    children: Mapping[str, Allowed] = field(default_factory=dict)
    text: Rule | None = None
    required: frozenset[str] = frozenset()
    required_children: frozenset[str] = frozenset()
    """An attribute and a child may share a name (``<controller model=''><model/>``)."""
    most: int = 1
    """Siblings of this name: of elements that it expects once, libvirt reads only the first."""
    is_foreign: bool = False
    """Elements of other namespaces in it are ignored."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An element with content that depends on one of its attributes."""

    attribute: str
    elements: Mapping[str, Element]
    most: int = 1
    hint: str = ""
    """For users: what to write instead."""


Allowed: TypeAlias = Element | Choice


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a document that is not allowed."""

    path: str
    text: str
    is_syntax: bool = False
    """The text is not XML."""

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def problems(node: Node, allowed: Allowed, reasons: Mapping[str, str]) -> list[Problem]:
    """Return a document's first ``MAX_PROBLEMS`` problems with ``allowed``, one per path.

    ``reasons``: by name of an element or attribute, why it is never allowed.
    """
    found: dict[str, Problem] = {}
    for problem in itertools.chain(_characters(node), _problems(node, allowed, reasons)):
        found.setdefault(problem.path, problem)
        if len(found) >= MAX_PROBLEMS:
            break
    return list(found.values())


def _characters(node: Node) -> Iterator[Problem]:
    """Yield problems with characters, also in ignored elements."""
    for name, value in node.attributes.items():
        if problem := characters.problem(value):
            yield Problem(f"{node.path}/@{name[:80]}", problem)
    if problem := characters.problem(node.text):
        yield Problem(node.path, problem)
    for child in node.children:
        yield from _characters(child)


def _problems(node: Node, allowed: Allowed, reasons: Mapping[str, str]) -> Iterator[Problem]:
    if node.is_foreign:
        yield Problem(node.path, "elements and attributes of other namespaces are allowed only in /domain/metadata")
        return
    if isinstance(allowed, Choice):
        value = node.get(allowed.attribute)
        if value not in allowed.elements:
            known = ", ".join(allowed.elements)
            words = f"must be one of {known}" if "," in known else f"must be {known}"
            yield Problem(f"{node.path}/@{allowed.attribute}", f"{words}: {allowed.hint}" if allowed.hint else words)
            return
        allowed = allowed.elements[value]
    yield from _attributes(node, allowed, reasons)
    yield from _text(node, allowed)
    if allowed.is_foreign:
        yield from (Problem(each.path, "must be in an XML namespace") for each in node.children if not each.is_foreign)
        return
    yield from _children(node, allowed, reasons)


def _attributes(node: Node, allowed: Element, reasons: Mapping[str, str]) -> Iterator[Problem]:
    for name, value in node.attributes.items():
        path = f"{node.path}/@{name[:80]}"
        rule = allowed.attributes.get(name)
        if rule is None:
            yield Problem(path, reasons.get(f"@{name}", "is not allowed here"))
        elif problem := rule(value):
            yield Problem(path, problem)
    for name in sorted(allowed.required - node.attributes.keys()):
        yield Problem(f"{node.path}/@{name}", "is required")


def _text(node: Node, allowed: Element) -> Iterator[Problem]:
    if allowed.text is not None:
        if problem := ("must be text" if node.children else allowed.text(node.text)):
            yield Problem(node.path, problem)
    elif node.text.strip(BLANKS):
        yield Problem(node.path, "has text where none is allowed")


def _children(node: Node, allowed: Element, reasons: Mapping[str, str]) -> Iterator[Problem]:
    counted: dict[str, int] = {}
    for child in node.children:
        element = allowed.children.get(child.name)
        if element is None:
            reason = "" if child.is_foreign else reasons.get(child.name, "")
            yield Problem(child.path, reason or "is not allowed here")
            continue
        counted[child.name] = counted.get(child.name, 0) + 1
        if counted[child.name] > element.most:
            yield Problem(child.path, f"may occur at most {element.most} times" if element.most > 1 else "may occur only once")
            continue
        yield from _problems(child, element, reasons)
    for name in sorted(allowed.required_children - counted.keys()):
        yield Problem(f"{node.path}/{name}", "is required")
