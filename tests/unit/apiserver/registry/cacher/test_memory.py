"""Giving memory back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from apiserver.registry.cacher import memory


def test_what_the_c_library_keeps_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace(malloc_trim=asked.append))
    memory.give_back()
    assert asked == [0]


def test_a_c_library_that_cannot_give_back_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace())
    memory.give_back()
