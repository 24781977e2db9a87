from __future__ import annotations

from pathlib import Path

from benchmarks.scale import domains


async def test_guests_of_the_test_driver_run(tmp_path: Path) -> None:
    found = await domains.measure(3, 2, 0.5, tmp_path)
    assert found["running"] == 3
    assert found["start_ms"] > 0
