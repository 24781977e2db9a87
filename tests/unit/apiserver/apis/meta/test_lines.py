from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta.lines import one_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("as it is", "as it is"),
        ("one\ntwo\r\n\n three ", "one | two | three"),
        ("\x1b[2J\x07red", "[2Jred"),
        ("\u202eback\u200b", "back"),
        ("x" * 21, "x" * 19 + "…"),
        ("\x00" * 500, "…"),
        ("", ""),
    ],
)
def test_untrusted_text_becomes_one_harmless_line(text: str, line: str) -> None:
    assert one_line(text, 20) == line


@given(st.text(max_size=200), st.integers(1, 30))
def test_any_text_becomes_a_bounded_printable_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()
