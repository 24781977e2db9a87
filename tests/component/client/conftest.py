"""The client runs on uvloop in our processes and on asyncio's own loop in tests: what it does with connections is held to both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import uvloop


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give the tests of connections both loops."""
    loops: dict[str, Any] = {"asyncio": asyncio.new_event_loop}
    return loops | {"uvloop": uvloop.new_event_loop} if item.path.stem == "test_connections" else loops
