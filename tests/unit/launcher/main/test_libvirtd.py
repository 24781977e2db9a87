from __future__ import annotations

import pytest

from launcher.main.programs.libvirtd import RESTART_SECONDS, next_delay

FIRST, MOST = RESTART_SECONDS


@pytest.mark.parametrize(
    ("delay", "lived", "expected"),
    [
        (FIRST, 0.0, 2 * FIRST),
        (2 * FIRST, MOST, 4 * FIRST),
        (MOST / 2 + 0.1, 0.0, MOST),
        (MOST, 0.0, MOST),
        (MOST, MOST + 0.1, FIRST),
    ],
)
def test_how_long_is_waited_before_the_next(delay: float, lived: float, expected: float) -> None:
    assert next_delay(delay, lived) == expected
