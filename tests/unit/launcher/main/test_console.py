from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from launcher.main.serving.console import Replay


@given(st.lists(st.binary(max_size=50)))
def test_the_replay_is_a_tail_of_the_output_and_bounded(pieces: list[bytes]) -> None:
    replay = Replay(100)
    for piece in pieces:
        replay.add(piece)
    everything, content = b"".join(pieces), replay.content()
    assert everything.endswith(content)
    assert len(content) <= 100
    if len(everything) <= 100:
        assert content == everything


def test_a_replay_that_lost_its_start_begins_with_a_whole_line() -> None:
    replay = Replay(10)
    replay.add(b"first line\nsecond\n")
    assert replay.content() == b"second\n"


@given(st.lists(st.binary(min_size=1, max_size=50)), st.integers(0, 2000))
def test_output_since_a_position_is_the_end_of_it(pieces: list[bytes], position: int) -> None:
    replay, everything = Replay(100), b"".join(pieces)
    for piece in pieces:
        replay.add(piece)
    found = replay.since(position)
    assert everything[position:].endswith(found)
    assert len(found) >= min(100, len(everything[position:]))
