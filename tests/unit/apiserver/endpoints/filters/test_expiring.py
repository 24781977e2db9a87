from __future__ import annotations

from apiserver.endpoints.filters.expiring import Expiring


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_cached_value_expires_on_its_own_regardless_of_use() -> None:
    clock = Clock()
    cache = Expiring[str, int](2, clock)
    cache.put("a", 1, 10)
    cache.put("b", 2, 20)
    clock.now += 9.9
    assert (cache.get("a"), cache.get("b")) == (1, 2)
    clock.now += 0.1
    assert (cache.get("a"), cache.get("b")) == (None, 2)
    clock.now += 0.1
    assert cache.get("a") is None


def test_the_least_recently_used_goes_first() -> None:
    cache = Expiring[str, int](2, Clock())
    cache.put("a", 1, 10)
    cache.put("b", 2, 10)
    cache.get("a")
    cache.put("c", 3, 10)
    assert [cache.get(each) for each in "abc"] == [1, None, 3]


def test_a_value_that_is_put_again_takes_no_place_of_another() -> None:
    cache = Expiring[str, int](2, Clock())
    for key, value in (("a", 1), ("b", 2), ("b", 3)):
        cache.put(key, value, 10)
    assert [cache.get(each) for each in "ab"] == [1, 3]
