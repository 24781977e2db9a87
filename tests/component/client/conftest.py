"""The client runs on uvloop in our processes and on asyncio's own loop in tests: what it does with connections is held to both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
import uvloop

_ON_BOTH: Final = frozenset({"test_connections", "test_dialling", "test_exchange"})


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give the tests of what is below REST both loops."""
    loops: dict[str, Any] = {"asyncio": asyncio.new_event_loop}
    return loops | {"uvloop": uvloop.new_event_loop} if item.path.stem in _ON_BOTH else loops
