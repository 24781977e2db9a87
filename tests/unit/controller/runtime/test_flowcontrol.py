from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.runtime.flowcontrol import TokenBucket


def test_a_burst_is_let_through_and_then_the_long_run_rate() -> None:
    bucket = TokenBucket(20, 15 / 60, 0.0)
    passed = [now for now in range(601) if bucket.try_accept(float(now))]
    assert passed[:20] == list(range(20))
    assert len(passed) == 20 + 600 * 15 // 60


def test_delay_says_when_the_next_may_pass() -> None:
    bucket = TokenBucket(1, 0.2, 100.0)
    assert bucket.delay(100.0) == 0
    bucket.spend(100.0)
    assert bucket.delay(100.0) == pytest.approx(5)
    assert bucket.delay(103.0) == pytest.approx(2)
    assert bucket.delay(105.0) == 0
    assert bucket.try_accept(105.0)
    assert not bucket.try_accept(109.9)
    assert bucket.try_accept(110.0)


def test_late_charges_make_a_bounded_debt() -> None:
    bucket = TokenBucket(10, 2, 0.0, debt=60)
    bucket.spend(0.0, 1_000_000)
    assert bucket.delay(0.0, 0) == pytest.approx(30)
    assert bucket.delay(30.0, 0) == 0


def test_a_clock_that_goes_backwards_fills_nothing() -> None:
    bucket = TokenBucket(1, 1, 1000.0)
    assert bucket.try_accept(1000.0)
    assert not bucket.try_accept(10.0)
    assert not bucket.try_accept(10.5)
    assert bucket.try_accept(11.5)


@given(st.lists(st.floats(0, 30), max_size=200), st.integers(1, 20), st.floats(0.1, 5))
def test_token_bucket_never_exceeds_burst_and_rate(gaps: list[float], burst: int, rate: float) -> None:
    bucket, now, passed = TokenBucket(burst, rate, 0.0), 0.0, []
    for gap in gaps:
        now += gap
        if bucket.try_accept(now):
            passed.append(now)
    for first, begin in enumerate(passed):
        for count, end in enumerate(passed[first:], start=1):
            assert count <= burst + (end - begin) * rate + 1e-6
