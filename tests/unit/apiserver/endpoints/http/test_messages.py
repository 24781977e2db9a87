from __future__ import annotations

from email.utils import formatdate

from hypothesis import given
from hypothesis import strategies as st

from apiserver.endpoints.http.messages import date_at, date_of

YEAR_10000 = 253_402_300_800


@given(st.integers(0, YEAR_10000 - 1))
def test_dates_are_those_of_the_standard_library(second: int) -> None:
    assert date_of(second) == date_at(second) == formatdate(second, usegmt=True).encode()
