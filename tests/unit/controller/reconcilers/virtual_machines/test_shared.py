from __future__ import annotations

from controller.reconcilers.virtual_machines.shared import SHARED_SECONDS, Shared


def test_value_is_computed_at_most_once_a_second() -> None:
    now, computed = [100.0], list[float]()
    shared = Shared[int](lambda: now[0])

    def compute() -> int:
        computed.append(now[0])
        return len(computed)

    assert [shared.value(compute), shared.value(compute)] == [1, 1]
    now[0] += SHARED_SECONDS
    assert shared.value(compute) == 2
    assert computed == [100.0, 101.0]
