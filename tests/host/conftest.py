from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests import booting
from tests.cluster.turns import Turn
from tests.host.launcher import guest, sandbox
from tests.testbed import layout

_HERE = Path(__file__).parent
_TURN = Turn(layout.cache() / ".tests-of-the-host.lock", alone=())


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-timeout's clock starts, because a failed test may run again alone meanwhile
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    if not item.path.is_relative_to(_HERE):
        return (yield)
    _TURN.begin(item.path)
    try:
        return (yield)
    finally:
        booting.SLOTS.end()
        if nextitem is None or nextitem.path != item.path:
            _TURN.end()


def pytest_run_alone(item: pytest.Item) -> AbstractContextManager[object]:
    return _TURN.alone(item.path)


@pytest.fixture(scope="session")
def test_guest() -> guest.Guest:
    return guest.build()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("program")
    sandbox.install(directory)
    return directory
