from __future__ import annotations

import pytest

from tests.reference_library.__main__ import run


@pytest.mark.slow
@pytest.mark.timeout(300)  # Go builds the program the first time
def test_ssa_04_06_07_ours_is_gos_over_random_histories() -> None:
    run(2000, seed=20261121)
