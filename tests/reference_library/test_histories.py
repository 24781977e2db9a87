from __future__ import annotations

import pytest

from tests.reference_library.__main__ import run


@pytest.mark.slow
@pytest.mark.timeout(300)  # Go builds the program the first time
@pytest.mark.sample(4, "random histories")
@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_ssa_04_06_07_ours_is_gos_over_random_histories(first: int) -> None:
    run(500, seed=20261121, first=first)
