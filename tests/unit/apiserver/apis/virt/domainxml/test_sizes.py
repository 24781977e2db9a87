from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.domainxml import reading
from apiserver.apis.virt.domainxml.reading import Reading
from apiserver.apis.virt.domainxml.sizes import Size, Sizes
from apiserver.apis.virt.hardware import cpu, memory
from apiserver.apis.virt.spec.described import domain_of, size_of
from tests.unit.apiserver.apis.virt.domainxml.documents import document

MIB = 1 << 20
CELLS = "<cpu><topology sockets='2' dies='2' cores='3' threads='1'/><numa><cell id='0' memory='1' unit='GiB'/></numa></cpu>"


class Reads:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> Reading:
        self.texts.append(text)
        return reading.read_uncached(text)


def of_memory(mebibytes: int) -> str:
    return document(memory=f"<memory unit='MiB'>{mebibytes}</memory>")


def test_a_document_is_read_once_while_it_is_remembered() -> None:
    read = Reads()
    found = Sizes(read, most=3)
    texts = [of_memory(each) for each in (64, 65, 66)]
    for _ in range(2):
        assert [found.of(each) for each in texts] == [Size(each * MIB, (2, 1, 1)) for each in (64, 65, 66)]
    assert read.texts == texts
    assert found.of(of_memory(67)) == Size(67 * MIB, (2, 1, 1))
    assert (found.of(texts[1]), found.of(texts[2]), len(found)) == (Size(65 * MIB, (2, 1, 1)), Size(66 * MIB, (2, 1, 1)), 3)
    assert read.texts[3:] == [of_memory(67)]
    assert found.of(texts[0]) == Size(64 * MIB, (2, 1, 1)), "the oldest has gone"
    assert read.texts[4:] == [texts[0]]


@pytest.mark.parametrize("text", ["", "<domain", "\ud800", document("<hostdev/>")])
def test_that_a_document_cannot_be_read_is_remembered_too(text: str) -> None:
    read = Reads()
    found = Sizes(read)
    assert [found.of(text), found.of(text)] == [None, None]
    assert read.texts == [text]


@pytest.mark.parametrize("xml", [None, "<domain", document(), of_memory(99), document(inside=CELLS, vcpu="<vcpu>12</vcpu>")])
@pytest.mark.parametrize("typed", [None, {}, {"cpu": {"cores": 3}}, {"memory": {"guest": "1Gi"}}, {"cpu": {"cores": None}, "memory": {}}])
def test_a_row_shows_what_the_machine_has(xml: str | None, typed: dict[str, Any] | None) -> None:
    vm = {"spec": {"domainXML": xml, "domain": typed}}
    for fact in (cpu.vcpus, memory.guest_bytes):
        assert fact(size_of(vm)) == fact(domain_of(vm))
