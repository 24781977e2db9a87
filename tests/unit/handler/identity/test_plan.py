from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.validity import SKEW
from handler.identity.plan import EARLIEST, LATEST, Held, Observed, RequestCertificate, Requeue, plan, problem, renewed_at

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)
GOOD = Observed(Held(NOW - SKEW, NOW + DAY), has_authorities=True, refusal="", is_revoked=False, spread=0.5)


@pytest.mark.parametrize(
    ("observed", "later", "asks", "said"),
    [
        (GOOD, timedelta(), "", ""),
        (GOOD, DAY * 0.59, "", ""),
        (GOOD, DAY * 0.73, "it expires soon", ""),
        (GOOD, DAY, "it expires soon", "expired"),
        (GOOD, DAY * 2, "it expires soon", "expired"),
        (replace(GOOD, held=None), timedelta(), "there is no valid certificate", "no certificate"),
        (replace(GOOD, refusal="from before 2026 are revoked"), timedelta(), "revoked", "revoked"),
        (replace(GOOD, is_revoked=True), timedelta(), "", "this node is revoked"),
        (replace(GOOD, is_revoked=True, held=None), timedelta(), "", "this node is revoked"),
        (replace(GOOD, has_authorities=False), DAY, "", "kubevirt-trust"),
    ],
)
def test_certificate_plan_decides_request_and_problem(observed: Observed, later: timedelta, asks: str, said: str) -> None:
    action = plan(observed, NOW + later)

    assert isinstance(action, RequestCertificate) == bool(asks)
    if isinstance(action, RequestCertificate):
        assert asks in action.reason
    found = problem(observed, NOW + later)
    assert said in found
    assert bool(found) == bool(said)


@given(st.timedeltas(min_value=timedelta(minutes=1), max_value=timedelta(days=400)), st.floats(0, 1))
def test_certificate_is_renewed_within_its_life_and_not_at_once(life: timedelta, spread: float) -> None:
    held = Held(NOW - SKEW, NOW + life)

    due = renewed_at(held, spread)

    assert NOW + life * EARLIEST - timedelta(seconds=1) <= due <= NOW + life * LATEST + timedelta(seconds=1)
    assert isinstance(plan(replace(GOOD, held=held, spread=spread), due), RequestCertificate)
    before = plan(replace(GOOD, held=held, spread=spread), NOW)
    assert isinstance(before, Requeue)
    assert 0 < before.seconds <= (due - NOW).total_seconds()


def test_certificate_without_backdating_is_renewed_in_its_life() -> None:
    held = Held(NOW, NOW + timedelta(minutes=4))

    assert NOW < renewed_at(held, 0.0) <= renewed_at(held, 1.0) < held.not_after


def test_certificate_no_longer_than_the_skew_is_renewed_in_time() -> None:
    held = Held(NOW, NOW + SKEW)

    assert NOW < renewed_at(held, 0.0) <= renewed_at(held, 1.0) < held.not_after
