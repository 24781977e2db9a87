from __future__ import annotations

import pytest

from apiserver.apis.virt.domainxml import subresource
from launcher.main.decisions import known, requests
from launcher.main.decisions.known import Known
from launcher.main.decisions.refusal import RequestRefused


def test_what_libvirt_was_given_is_told_once_there_is_something() -> None:
    with pytest.raises(RequestRefused, match="no domain was made yet"):
        requests.given_xml(Known())
    assert requests.given_xml(known.prepared(Known(), "<domain/>")) == "<domain/>"


def test_it_is_told_with_every_byte() -> None:
    text = "<domain>\r\n\t<!-- ü 緑 \u00a0\u200b -->\n</domain>"
    assert subresource.parse(text) == {"xml": text}


@pytest.mark.parametrize("text", ["\x1b]0;x\x07", "\x9b2J", "\0", "a\u202eb", "x" * (subresource.MAX_CHARACTERS + 1)])
def test_what_a_terminal_obeys_is_no_such_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"must not have|longer than"):
        subresource.parse(text)
