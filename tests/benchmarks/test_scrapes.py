from __future__ import annotations

from benchmarks import scrapes


async def test_each_guest_is_on_the_measured_page() -> None:
    found = await scrapes.measure(guests=3, rounds=2)
    assert found["guests"] == 3
    assert found["cpu_milliseconds"] > 0
    assert found["percent_of_a_core"] == round(found["cpu_milliseconds"] / 300, 3)
