from __future__ import annotations

import pytest

from apiserver.kubectl import logs
from apiserver.kubectl.logs import Newest


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"login: \r\n\tx", b"login: \n\tx"),
        (b"\x1b[31mred\x1b[0m \x1b[2J\x1b[?1049h", b"red "),
        (b"\x1b]0;title\x07a\x1b]52;c;eA==\x1b\\b\x1bcc\x07", b"abc"),
        ("gr\u00fc\u00dfe".encode(), "gr\u00fc\u00dfe".encode()),
    ],
)
def test_terminal_gets_no_control_sequences(printed: bytes, shown: bytes) -> None:
    assert logs.plain(printed) == shown


def test_tail_is_the_last_lines_before_the_first_pause() -> None:
    newest = Newest(2)
    assert newest.add(b"one\ntwo\nth") + newest.add(b"ree\nfour") == b""
    assert newest.rest() == b"three\nfour"
    assert newest.add(b"five\n") == b"five\n"
    assert (newest.is_waiting, newest.rest()) == (False, b"")
    assert Newest(0).rest() == b""


def test_output_without_a_pause_is_not_held_forever() -> None:
    newest = Newest(1)
    shown = b"".join(newest.add(b"x" * 65535 + b"\n") for _ in range(40))
    assert len(shown) >= 65536
    assert not newest.is_waiting
