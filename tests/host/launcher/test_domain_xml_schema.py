from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import libvirt
import pytest

from apiserver.apis.virt.domainxml.domain import DOMAIN
from apiserver.apis.virt.domainxml.grammar import Allowed, Choice, Element
from apiserver.apis.virt.domainxml.values import Number, Rule, Words
from launcher.hypervisor.connection import PCI_PANIC_VERSION
from launcher.hypervisor.port import HypervisorError
from launcher.hypervisor.translate import errors

SCHEMA: Final = Path("/usr/share/libvirt/schemas/domain.rng")
pytestmark = [
    pytest.mark.host,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not SCHEMA.exists(), reason="libvirt's schema is not installed"),
]

UUID: Final = "5d307ca9-b3ef-428c-8861-06e72d69f223"
SAMPLES: Final = (
    *("1", "0x10", "vda", "KiB", "q35", "Nehalem", "0123456789abcdef", "en-us", "Europe/Berlin", "0x505", "0x4", "0x1f", "word", "wo.rd-1"),
    *(UUID, "52:54:00:00:00:01", "@disk:root@", "@network:default@"),
)
FILLED: Final[Mapping[str, str]] = {
    "@type@": "qemu",
    "@uuid@": UUID,
    "@network:default@": "tap0",
    **dict.fromkeys(("@disk:root@", "@serial@", "@agent@", "@vnc@", "@spice@", "@kernel@", "@initrd@", "@loader@", "@nvram@"), "/path"),
}


SINCE: Final[Mapping[str, int]] = {"domain/devices/panic/@model=pvpanic": PCI_PANIC_VERSION}
"""Of libvirt; this machine's may be older than the image's."""


class Tree(NamedTuple):
    name: str
    attributes: Mapping[str, str]
    children: tuple[Tree, ...]
    text: str

    def xml(self) -> str:
        attributes = "".join(f" {name}='{FILLED.get(value, value)}'" for name, value in self.attributes.items())
        content = FILLED.get(self.text, self.text) + "".join(each.xml() for each in self.children)
        return f"<{self.name}{attributes}>{content}</{self.name}>"


def samples(rule: Rule) -> list[str]:
    if isinstance(rule, Words):
        return list(rule.allowed)
    found = [str(rule.least), str(rule.most)] if isinstance(rule, Number) else [each for each in SAMPLES if not rule(each)]
    assert found, f"no sample for {rule}"
    return found


def smallest(name: str, allowed: Allowed) -> Tree:
    if isinstance(allowed, Choice):
        value, element = next(iter(allowed.elements.items()))
        tree = smallest(name, element)
        return tree._replace(attributes={allowed.attribute: value, **tree.attributes})
    attributes = {each: samples(rule)[0] for each, rule in allowed.attributes.items() if each in allowed.required}
    children = tuple(smallest(each, child) for each, child in allowed.children.items() if each in allowed.required_children)
    return Tree(name, attributes, children, samples(allowed.text)[0] if allowed.text is not None else "")


def each_of(name: str, allowed: Allowed) -> Iterator[tuple[str, Tree]]:
    if isinstance(allowed, Choice):
        for value, element in allowed.elements.items():
            for place, tree in each_of(name, element):
                yield f"{place} of {value}", tree._replace(attributes={allowed.attribute: value, **tree.attributes})
        return
    least = smallest(name, allowed)
    yield name, least
    for attribute, rule in allowed.attributes.items():
        for value in samples(rule):
            yield f"{name}/@{attribute}={value}", least._replace(attributes={**least.attributes, attribute: value})
    for value in samples(allowed.text) if allowed.text is not None else ():
        yield f"{name}={value}", least._replace(text=value)
    for child, below in allowed.children.items():
        others = tuple(each for each in least.children if each.name != child)
        for place, tree in each_of(child, below):
            yield f"{name}/{place}", least._replace(children=(*others, tree))


class _Error(ctypes.Structure):
    _fields_: ClassVar = [("domain", ctypes.c_int), ("code", ctypes.c_int), ("message", ctypes.c_char_p)]


class Schema:
    """libvirt's schema in its own XML library; libvirt itself parses the schema again for each domain."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(ctypes.util.find_library("xml2"))
        for name in ("NewParserCtxt", "Parse", "NewValidCtxt"):
            getattr(self._library, f"xmlRelaxNG{name}").restype = ctypes.c_void_p
        self._library.xmlReadMemory.restype = ctypes.c_void_p
        parser = self._called("xmlRelaxNGNewParserCtxt", bytes(path))
        self._context = self._called("xmlRelaxNGNewValidCtxt", self._called("xmlRelaxNGParse", parser))
        self._told: list[str] = []
        self._handler = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Error))(
            lambda _data, error: self._told.append(error.contents.message.decode().strip())
        )
        self._library.xmlRelaxNGSetValidStructuredErrors(self._context, self._handler, None)

    def _called(self, name: str, argument: object) -> ctypes.c_void_p:
        found = getattr(self._library, name)(argument)
        assert found, name
        return ctypes.c_void_p(found)

    def refused(self, xml: str) -> str:
        self._told.clear()
        text = xml.encode()
        document = self._library.xmlReadMemory(text, len(text), None, None, 0)
        assert document, xml
        try:
            result = self._library.xmlRelaxNGValidateDoc(self._context, ctypes.c_void_p(document))
        finally:
            self._library.xmlFreeDoc(ctypes.c_void_p(document))
        assert result >= 0, xml
        return "; ".join(self._told) or "refused" if result else ""


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        ("<nonsense/>", "nonsense"),
        ("<devices><video><model type='vga' vram='x'/></video></devices>", "Extra element devices in interleave"),
    ],
)
def test_schema_error_is_one_line_with_its_field(inside: str, told: str) -> None:
    libvirt.registerErrorHandler(lambda *_: None, None)
    connection = libvirt.open("test:///default")
    xml = smallest("domain", DOMAIN).xml().replace("</domain>", f"{inside}</domain>")
    with pytest.raises(HypervisorError) as raised, errors("start domain x"):
        connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    assert str(raised.value).startswith("start domain x: domainXML: /domain: libvirt's schema does not allow it: ")
    assert told in str(raised.value)
    assert str(raised.value).isprintable()


def test_all_that_is_allowed_is_in_libvirts_schema() -> None:
    schema = Schema(SCHEMA)
    assert schema.refused(smallest("domain", DOMAIN).xml().replace("</domain>", "<nonsense/></domain>"))
    cases = list(each_of("domain", DOMAIN))
    assert len(cases) > 1000
    assert isinstance(DOMAIN, Element)
    refused = {place: told for place, tree in cases if (told := schema.refused(tree.xml()))}
    newer = {place for place, version in SINCE.items() if libvirt.getVersion() < version}
    assert refused.keys() == newer, refused
