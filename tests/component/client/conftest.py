"""Runs the client's tests with asyncio's loop and with uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
import uvloop

_ON_BOTH: Final = frozenset({"test_connections", "test_dialling", "test_exchange"})


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops: dict[str, Any] = {"asyncio": asyncio.new_event_loop}
    return loops | {"uvloop": uvloop.new_event_loop} if item.path.stem in _ON_BOTH else loops
