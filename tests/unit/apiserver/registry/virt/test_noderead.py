from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.domainxml import subresource
from apiserver.registry.virt.reads import DomainXML, GuestInfo

NOBODY: Any = None


def test_xml_is_taken_out_of_whatever_a_node_tells() -> None:
    assert DomainXML(NOBODY).fields({"xml": "<domain/>\n", "other": 1}) == {"xml": "<domain/>\n"}


@pytest.mark.parametrize(
    "answer", [{}, {"xml": None}, {"xml": 1}, {"xml": ["<domain/>"]}, {"xml": "\x1b[2J"}, {"xml": "x" * (128 << 10) + "x"}]
)
def test_unprintable_xml_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be a string|longer than|must not have"):
        DomainXML(NOBODY).fields(answer)
    assert subresource.MAX_CHARACTERS == 128 << 10


def test_information_is_bounded_again() -> None:
    said = {"hostname": "x\x1b[2J" + "y" * 999, "users": [{"userName": "u", "password": "p"}] * 999, "other": 1}
    found = GuestInfo(NOBODY).fields(said)
    assert found.keys() == {"hostname", "users"}
    assert (len(found["users"]), found["users"][0]) == (64, {"userName": "u"})
    assert found["hostname"].isprintable()
    assert len(found["hostname"]) <= 253
