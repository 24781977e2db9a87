from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.kubectl.scrollback import Overlap, Scrollback, longest
from launcher.main.serving.console import Replay

BOOT = b"".join(b"[%8d] line %d of the boot\r\n" % (number * 977, number) for number in range(300))


def printed(seen: bytes, *parts: bytes) -> bytes:
    overlap = Overlap(seen)
    return b"".join(map(overlap.take, parts)) + overlap.rest()


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("meanwhile", [b"", b"x", b"another line\r\n"])
def test_only_what_came_meanwhile_is_printed_however_it_is_cut(size: int, meanwhile: bytes) -> None:
    replay = BOOT + meanwhile
    parts = [replay[start : start + size] for start in range(0, len(replay), size)]
    assert printed(BOOT, *parts) == meanwhile
    assert printed(BOOT, *parts, b"live") == meanwhile + b"live"


def test_a_guest_in_another_pod_has_another_past() -> None:
    assert printed(BOOT, b"\n") == b"\n"
    assert printed(BOOT, b"uname\r\nLinux\r\n") == b"uname\r\nLinux\r\n"
    assert printed(BOOT, BOOT[:500]) == BOOT[:500]
    assert printed(b"", b"first") == b"first"


def test_repeated_scrollback_holds_nothing_back() -> None:
    prompt = b"testguest:~# "
    overlap = Overlap(prompt * 3)
    assert overlap.take(prompt * 3) == b""
    assert overlap.decided
    assert overlap.take(b"ls") == b"ls"


@given(st.binary(max_size=300), st.binary(max_size=100), st.integers(1, 64), st.integers(16, 64))
def test_of_what_a_launcher_replays_exactly_the_rest_is_printed(past: bytes, meanwhile: bytes, size: int, limit: int) -> None:
    """virt-launcher's replay buffer is cut at a line."""
    past = b"".join(b"%d:%d\n" % (number, byte) for number, byte in enumerate(past))
    launcher, seen = Replay(limit), Scrollback(limit)
    launcher.add(past)
    seen.add(past)
    launcher.add(meanwhile)
    replay = launcher.content()
    found = printed(seen.content, *(replay[start : start + size] for start in range(0, len(replay), size)))
    if len(meanwhile) + 16 <= len(replay):
        assert found == meanwhile or longest(seen.content, replay) > len(replay) - len(meanwhile)
    else:
        assert replay.endswith(found)
        assert len(found) >= min(len(meanwhile), len(replay)) or longest(seen.content, replay) >= 16


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_the_longest_overlap_is_what_trying_all_of_them_finds(before: str, after: str) -> None:
    tried = max(length for length in range(min(len(before), len(after)) + 1) if before.endswith(after[:length]))
    assert longest(before.encode(), after.encode()) == tried
