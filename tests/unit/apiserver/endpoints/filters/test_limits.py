from __future__ import annotations

import pytest

from apiserver.apis.meta.errors import TooManyRequests
from apiserver.apis.meta.users import MASTERS, User
from apiserver.endpoints.filters.limits import InFlight

ALICE, ROOT = User("alice"), User("root", groups=(MASTERS,))


@pytest.mark.parametrize("writes", [False, True])
def test_requests_beyond_the_limit_are_refused_until_others_end(writes: bool) -> None:
    limits = InFlight(2, 2)
    for _ in range(2):
        limits.enter(ALICE, writes=writes)
    with pytest.raises(TooManyRequests) as refused:
        limits.enter(ALICE, writes=writes)
    assert refused.value.details.retry_after_seconds == 1
    limits.enter(ALICE, writes=not writes)
    limits.leave(writes=writes)
    limits.enter(ALICE, writes=writes)


def test_masters_always_get_in() -> None:
    limits = InFlight(1, 1)
    for _ in range(3):
        limits.enter(ROOT, writes=True)
    with pytest.raises(TooManyRequests):
        limits.enter(ALICE, writes=True)


def test_no_limit_is_0() -> None:
    limits = InFlight(0, 0)
    for _ in range(1000):
        limits.enter(ALICE, writes=False)
    assert limits.take_peaks() == (1000, 0)


def test_peaks_are_those_since_the_last_look() -> None:
    limits = InFlight()
    limits.enter(ALICE, writes=False)
    limits.enter(ALICE, writes=False)
    limits.leave(writes=False)
    limits.enter(ALICE, writes=True)
    assert limits.take_peaks() == (2, 1)
    limits.leave(writes=True)
    assert limits.take_peaks() == (1, 1)
    assert limits.take_peaks() == (1, 0)
