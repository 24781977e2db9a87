from __future__ import annotations

import pytest

from apiserver.apis.meta.backoff import pause_seconds


@pytest.mark.parametrize(
    ("failures", "seconds"), [(-1, 0.0), (0, 0.0), (1, 5.0), (2, 10.0), (3, 20.0), (6, 160.0), (7, 300.0), (8, 300.0), (5000, 300.0)]
)
def test_pause_doubles_with_each_failure_up_to_the_limit(failures: int, seconds: float) -> None:
    assert pause_seconds(failures, 5.0, 300.0) == seconds


def test_failures_without_end_make_no_number_that_is_too_large() -> None:
    assert pause_seconds(10**6, 0.05, 5.0) == 5.0
