from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.endpoints.http.caps import Caps, Places, gives_up, origin

CAPS = Caps(total=6, each=4)


@pytest.mark.parametrize(
    ("held", "newcomer", "expected"),
    [
        ({"a": 1}, "a", None),
        ({"a": 4}, "a", None),
        ({"a": 5}, "a", "a"),
        ({"a": 5, "b": 1}, "b", None),
        ({"a": 4, "b": 2}, "b", None),
        ({"a": 4, "b": 3}, "b", "a"),
        ({"a": 3, "b": 4}, "b", "b"),
        ({"a": 4, "b": 2, "c": 1}, "c", "a"),
        ({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1}, "g", "a"),
    ],
)
def test_largest_holder_gives_up_a_place(held: dict[str, int], newcomer: str, expected: str | None) -> None:
    places = {who: [who] * count for who, count in held.items()}
    assert gives_up(CAPS, places, sum(held.values()), newcomer) == expected


class Peer:
    def __init__(self, who: str, is_busy: bool = False) -> None:
        self.who = who
        self.is_busy = is_busy
        self.ended = False

    def abort(self) -> None:
        assert not self.ended
        self.ended = True


def test_the_oldest_of_those_that_are_waited_for_goes_first() -> None:
    places: Places[Peer] = Places(Caps(10, 3))
    peers = [Peer("a", is_busy=True), Peer("a"), Peer("a"), Peer("a"), Peer("a", is_busy=True), Peer("a", is_busy=True)]
    for each in peers:
        places.take(each, each.who)
    assert [each.ended for each in peers] == [False, True, True, True, False, False]
    last = Peer("a")
    places.take(last, "a")
    assert (peers[0].ended, last.ended) == (True, False), "a newcomer gets in, even among those that are all busy"
    assert (len(places), places.taken_away) == (3, 4)


def test_lone_newcomer_is_never_refused() -> None:
    places: Places[Peer] = Places(Caps(1, 1))
    peers = [Peer("a"), Peer("b"), Peer("b")]
    for each in peers:
        places.take(each, each.who)
    assert [each.ended for each in peers] == [True, True, False]


def test_leaving_twice_does_no_harm() -> None:
    places: Places[Peer] = Places(CAPS)
    peer = Peer("a")
    places.take(peer, "a")
    places.leave(peer)
    places.leave(peer)
    assert (len(places), list(places)) == (0, [])


STEPS = st.lists(st.one_of(st.sampled_from("abcdef"), st.integers(0, 20)), max_size=80)


@given(STEPS, st.integers(1, 8), st.integers(1, 8))
def test_caps_hold_whatever_comes_and_goes(steps: list[str | int], total: int, each: int) -> None:
    places: Places[Peer] = Places(Caps(total, each))
    there: list[Peer] = []
    for step in steps:
        if isinstance(step, int):
            if there:
                places.leave(there.pop(step % len(there)))
            continue
        before = {who: sum(peer.who == who for peer in there) for who in "abcdef"}
        newcomer = Peer(step, is_busy=len(there) % 2 == 0)
        places.take(newcomer, step)
        assert not newcomer.ended
        gone = [peer for peer in there if peer.ended]
        there = [peer for peer in there if not peer.ended] + [newcomer]
        assert set(places) == set(there)
        assert len(there) <= total
        assert all(sum(peer.who == who for peer in there) <= each for who in "abcdef")
        for peer in gone:
            assert peer.who == step or before[peer.who] >= max(before.values()), "who holds few loses none to who holds many"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8::1", "2001:db8::2:3:4", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::1", "127.0.0.1", False),
    ],
)
def test_addresses_are_counted_by_whom_they_belong_to(one: str, other: str, same: bool) -> None:
    assert (origin(one) == origin(other)) is same
