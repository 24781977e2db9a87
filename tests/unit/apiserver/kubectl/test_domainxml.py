from __future__ import annotations

import pytest

from apiserver.kubectl import flags
from apiserver.kubectl.domainxml import printed
from apiserver.kubectl.messages import Failure


def test_the_command_is_about_one_machine() -> None:
    parsed = flags.parse(["domainxml", "vm/a"])
    assert (parsed.command, parsed.name) == ("domainxml", "a")


def test_the_xml_is_printed_as_it_is() -> None:
    assert printed({"xml": "<domain>\n  <name>a</name>\n</domain>\n"}, "read") == "<domain>\n  <name>a</name>\n</domain>"


@pytest.mark.parametrize("answer", [{}, {"xml": "<a>\x1b[2J</a>"}, {"xml": "<a>\u202e</a>"}], ids=["none", "escape", "right to left"])
def test_terminal_control_characters_are_not_printed(answer: dict[str, str]) -> None:
    with pytest.raises(Failure, match=r"^error: cannot read: the response cannot be shown"):
        printed(answer, "read")
