from __future__ import annotations

from types import SimpleNamespace

from apiserver.registry.cacher import memory


def test_freed_memory_is_trimmed() -> None:
    asked: list[int] = []
    memory.give_back(lambda _: SimpleNamespace(malloc_trim=asked.append))
    assert asked == [0]


def test_a_c_library_that_cannot_give_back_is_left_alone() -> None:
    memory.give_back(lambda _: SimpleNamespace())


def test_the_c_library_of_this_process_is_asked() -> None:
    memory.give_back()
