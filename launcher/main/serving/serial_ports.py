"""The serial ports after the first, each with its own console."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from apiserver.apis.virt.places import layout
from launcher.main.serving.console import Console


class SerialPorts:
    """The consoles of all serial ports but the first. Those that the machine lacks are idle."""

    def __init__(self, directory: Path, changed: Callable[[], None]) -> None:
        """``changed`` is called after each change of the number of viewers."""
        self._directory = directory
        self._consoles = tuple(Console(directory / layout.serial_socket(port), changed) for port in range(1, layout.SERIAL_PORTS))

    @property
    def viewers(self) -> int:
        """Return the number of viewers of all consoles."""
        return sum(each.viewers for each in self._consoles)

    def attach(self, count: int) -> None:
        """Start connecting to all serial ports but the first. ``count`` includes the first."""
        for each in self._consoles[: max(count - 1, 0)]:
            each.attach()

    def detach(self) -> None:
        """Stop trying to connect to the serial ports."""
        for each in self._consoles:
            each.detach()

    async def connected(self, count: int) -> None:
        """Wait until all serial ports but the first are connected. ``count`` includes the first."""
        for each in self._consoles[: max(count - 1, 0)]:
            await each.connected.wait()

    async def run(self) -> None:
        """Forward output and accept viewers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for port, each in enumerate(self._consoles, start=1):
                tasks.create_task(each.run())
                tasks.create_task(each.serve(self._directory / layout.console_socket(port)))
                tasks.create_task(each.serve_log(self._directory / layout.log_socket(port)))
