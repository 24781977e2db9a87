"""Turns of tests marked ``host``: a second run is alone on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from tests.cluster.turns import Turn
from tests.testbed import layout

_TURN = Turn(layout.cache() / ".tests-of-the-host.lock", alone=())


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-timeout's clock starts
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    if not _is_of_host(item):
        return (yield)
    with _TURN.during(item.path, nextitem.path if nextitem and _is_of_host(nextitem) else None):
        return (yield)


def pytest_run_alone(item: pytest.Item) -> AbstractContextManager[object] | None:
    return _TURN.alone(item.path) if _is_of_host(item) else None


def _is_of_host(item: pytest.Item) -> bool:
    return item.get_closest_marker("host") is not None
