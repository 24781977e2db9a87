from __future__ import annotations

import pytest

from apiserver.apis.virt.domainxml import subresource
from launcher.main.decisions import known, requests
from launcher.main.decisions.known import Known
from launcher.main.decisions.refusal import RequestRefused


def test_given_xml_is_available_after_preparation() -> None:
    with pytest.raises(RequestRefused, match="the domain has not been created yet"):
        requests.given_xml(Known())
    assert requests.given_xml(known.prepared(Known(), "<domain/>")) == "<domain/>"


def test_given_xml_is_returned_byte_for_byte() -> None:
    text = "<domain>\r\n\t<!-- ü 緑 \u00a0\u200b -->\n</domain>"
    assert subresource.parse(text) == {"xml": text}


@pytest.mark.parametrize("text", ["\x1b]0;x\x07", "\x9b2J", "\0", "a\u202eb", "x" * (subresource.MAX_CHARACTERS + 1)])
def test_xml_with_control_characters_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must not have|longer than"):
        subresource.parse(text)
