"""Parses XML of a hostile author.

Our parser is expat, libvirt's is libxml2. What they may interpret differently is refused: document types and so entities, processing
instructions, CDATA, other encodings, comments inside a value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from apiserver.apis.virt.domainxml import characters

MAX_BYTES: Final = 64 << 10
"""In UTF-8. The whole object may have 128 KiB; engines write 20."""
MAX_DEPTH: Final = 16
MAX_ELEMENTS: Final = 4000
"""For reading: earlier versions admitted this many."""
MAX_ELEMENTS_ADMITTED: Final = 1600
"""For new documents: the grammar allows at most 1462, without ``<metadata>``."""
MAX_ATTRIBUTES: Final = 32
"""Per element."""
MAX_NAMESPACE: Final = 1024
"""Characters; expat repeats the name for each element and attribute."""
OF_LIBVIRT: Final = "http://libvirt.org/schemas/domain/"
"""Namespaces with elements that bypass libvirt's checks, such as ``qemu:commandline``."""

BLANKS: Final = " \t\r\n"
"""Insignificant between two elements. libvirt treats other Unicode blanks as text."""
_TAG: Final = re.compile(rb"<[^\s/>]+")
_ATTRIBUTE: Final = re.compile(rb"""\s+([^\s=/>]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_TAG_END: Final = re.compile(rb"\s*(/?)>")
_SEPARATOR: Final = " "

Span = tuple[int, int]
"""First byte, and after the last one, in UTF-8."""


class Malformed(ValueError):
    """An invalid document; the message begins with the place."""


class NotWellFormed(Malformed):
    """A text that is not XML."""


@dataclass(frozen=True, slots=True)
class Node:
    """An XML element."""

    name: str
    path: str
    attributes: Mapping[str, str]
    text: str
    """Between its tags, including blanks; empty if it has child elements."""
    children: tuple[Node, ...]
    is_foreign: bool
    """It or one of its attributes has a namespace, which libvirt's own lack."""
    spans: Mapping[str, Span]
    """Places of attributes' values; empty for foreign elements."""
    inner: Span | None
    """Between its tags; None if it has one tag, or is foreign."""

    def child(self, name: str) -> Node | None:
        """Return the first child with this name, or None."""
        return next((each for each in self.children if each.name == name), None)

    def all(self, name: str) -> tuple[Node, ...]:
        """Return the children with this name."""
        return tuple(each for each in self.children if each.name == name)

    def find(self, *names: str) -> Node | None:
        """Return the descendant at this path of names, the first child each, or None."""
        node: Node | None = self
        for name in names:
            node = node.child(name) if node is not None else None
        return node

    def get(self, attribute: str, default: str = "") -> str:
        """Return an attribute's value, or ``default``."""
        return self.attributes.get(attribute, default)


@dataclass(slots=True)
class _Element:
    """An element before its path is known."""

    name: str
    attributes: dict[str, str]
    is_foreign: bool
    spans: dict[str, Span]
    begin: int | None
    """Offset after its start tag; None: as for :attr:`Node.inner`."""
    inner: Span | None = None
    pieces: list[str] = field(default_factory=list)
    text: str = ""
    children: list[_Element] = field(default_factory=list)
    has_comment: bool = False


class _Builder:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._open: list[_Element] = []
        self._count = 0
        self.root: _Element | None = None
        self._parser = parser = expat.ParserCreate("utf-8", _SEPARATOR)
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._refuse("a document type is not allowed")
        parser.EntityDeclHandler = self._refuse("an entity is not allowed")
        parser.ProcessingInstructionHandler = self._refuse("a processing instruction is not allowed")
        parser.StartCdataSectionHandler = self._refuse("CDATA is not allowed")
        parser.StartNamespaceDeclHandler = self._namespace
        parser.CommentHandler = self._comment
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters

    def parse(self) -> _Element:
        try:
            self._parser.Parse(self._data, True)  # noqa: FBT003  # that it is all of it; by position only
        except expat.ExpatError as error:
            raise NotWellFormed(f"line {error.lineno}: is not well-formed XML: {self._syntax_error(error)}") from error
        finally:
            del self._parser  # it and our methods reference each other
        if self.root is None:
            raise NotWellFormed("line 1: is not well-formed XML: no element found")
        return self.root

    def _syntax_error(self, error: expat.ExpatError) -> str:
        if self._open and expat.errors.messages.get(error.code) == expat.errors.XML_ERROR_NO_ELEMENTS:
            return f"it ends at line {error.lineno} before </{self._open[-1].name[:80]}>"
        return expat.errors.messages.get(error.code, "no XML")

    def _refuse(self, text: str):  # type: ignore[no-untyped-def]  # noqa: ANN202  # the handlers have many signatures
        def handler(*_: object) -> None:
            raise self._malformed(text)

        return handler

    def _malformed(self, text: str) -> Malformed:
        return Malformed(f"line {self._parser.CurrentLineNumber}: {text}")

    def _declaration(self, version: str, encoding: str | None, _standalone: int) -> None:
        if version != "1.0" or (encoding or "UTF-8").upper() != "UTF-8":
            raise self._malformed("must be XML 1.0 in UTF-8")

    def _namespace(self, _prefix: str | None, uri: str | None) -> None:
        if len(uri or "") > MAX_NAMESPACE:
            raise self._malformed(f"a namespace of more than {MAX_NAMESPACE} characters")
        self._require_characters("a namespace", uri or "")
        if (uri or "").lower().startswith(OF_LIBVIRT):
            raise self._malformed(f"the namespace {(uri or '')[:80]} is not allowed, because its elements are not checked")

    def _require_characters(self, what: str, text: str) -> None:
        if problem := characters.problem(text):
            raise self._malformed(f"{what} {problem}")

    def _comment(self, text: str) -> None:
        self._require_characters("a comment", text)
        if self._open:
            self._open[-1].has_comment = True

    def _characters(self, text: str) -> None:
        self._open[-1].pieces.append(text)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS:
            raise self._malformed(f"more than {MAX_ELEMENTS} elements")
        if len(self._open) >= MAX_DEPTH:
            raise self._malformed(f"nested deeper than {MAX_DEPTH} elements")
        if len(attributes) > MAX_ATTRIBUTES:
            raise self._malformed(f"an element with more than {MAX_ATTRIBUTES} attributes")
        is_foreign = _SEPARATOR in name or _SEPARATOR in "".join(attributes)
        spans, begin = ({}, None) if is_foreign else self._spans(self._parser.CurrentByteIndex)
        self._open.append(_Element(name.rpartition(_SEPARATOR)[2], attributes, is_foreign, spans, begin))

    def _spans(self, at: int) -> tuple[dict[str, Span], int | None]:
        """Return, for the start tag at byte ``at``, (byte spans of attribute values by name; the tag's end, None for an empty element)."""
        match = _TAG.match(self._data, at)
        spans: dict[str, Span] = {}
        while match is not None:
            at = match.end()
            match = _ATTRIBUTE.match(self._data, at)
            if match is not None:
                spans[match[1].decode()] = match.span(2 if match[2] is not None else 3)
        end = _TAG_END.match(self._data, at)
        if end is None:  # expat has accepted this tag
            raise self._malformed("a tag is not valid")
        return spans, None if end[1] else end.end()

    def _end(self, _name: str) -> None:
        element = self._open.pop()
        if element.begin is not None:
            element.inner = (element.begin, self._parser.CurrentByteIndex)
        text = "".join(element.pieces)
        has_text = bool(text.strip(BLANKS))
        if not element.children:
            element.text = text
        elif has_text:
            raise self._malformed(f"<{element.name[:80]}> mixes text and elements")
        if element.has_comment and has_text:
            raise self._malformed(f"<{element.name[:80]}> mixes a comment and text")
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element


def element_count(text: str) -> int:
    """Count the elements in a text, including those in comments, without parsing it."""
    return text.count("<") - text.count("</") - text.count("<!") - text.count("<?")


def parse(text: str) -> Node:
    """Return the root of an XML document.

    Raises:
        Malformed: it is not XML (NotWellFormed), too large, or contains something never allowed.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise Malformed("line 1: must be Unicode text") from error
    if len(data) > MAX_BYTES:
        raise Malformed(f"line 1: may not be more than {MAX_BYTES} bytes, but has {len(data)}")
    if line := characters.line_of_control(text):
        raise Malformed(f"line {line}: {characters.problem(text)}")
    if not text.lstrip(BLANKS).startswith("<"):
        raise NotWellFormed("line 1: must begin with an element")
    root = _Builder(data).parse()
    return _placed(root, f"/{root.name}")


def _placed(element: _Element, path: str) -> Node:
    children = []
    if element.children:
        for each, number in zip(element.children, numbers([each.name for each in element.children]), strict=True):
            place = f"{path}/{each.name[:80]}"
            children.append(_placed(each, f"{place}[{number}]" if number else place))
    return Node(element.name, path, element.attributes, element.text, tuple(children), element.is_foreign, element.spans, element.inner)


def numbers(names: Sequence[str]) -> list[int]:
    """Return each sibling's number among those of its name, from 1; 0 if unique."""
    total = Counter(names) if len(set(names)) < len(names) else {}
    counted = dict.fromkeys(total, 0)
    found = []
    for name in names:
        is_alone = total.get(name, 1) == 1
        if not is_alone:
            counted[name] += 1
        found.append(0 if is_alone else counted[name])
    return found
