"""Waits for processes that the agent started in the guest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from launcher.main.decisions import agent_answers

STATUS: Final = "guest-exec-status"

Ask = Callable[[str, Mapping[str, Any]], Awaitable[object]]
"""Sends the agent (command, arguments); raises HypervisorError."""


async def report(ask: Ask, pid: int, seconds: float, look: float) -> Mapping[str, Any] | None:
    """Return the agent's report of the guest's process ``pid`` after its end; None if it still runs after ``seconds``. Raises as ``ask``.

    ``look``: seconds between questions; None may come up to this much earlier.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while True:
        found = agent_answers.members(await ask(STATUS, {"pid": pid}))
        if found.get("exited") is True:
            return found
        if loop.time() + look > until:
            return None
        await asyncio.sleep(look)
