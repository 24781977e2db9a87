from __future__ import annotations

from controller.reconcilers.shared import Shared


def test_value_is_computed_at_most_once_in_its_seconds() -> None:
    now, computed = [100.0], list[float]()
    shared = Shared[int](lambda: now[0], 2.0)

    def compute() -> int:
        computed.append(now[0])
        return len(computed)

    assert [shared.value(compute), shared.value(compute)] == [1, 1]
    now[0] += 1.5
    assert shared.value(compute) == 1
    now[0] += 0.5
    assert shared.value(compute) == 2
    assert computed == [100.0, 102.0]
