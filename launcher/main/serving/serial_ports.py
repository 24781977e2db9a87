"""The serial ports after the first, each with a console of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from apiserver.apis.virt.places import layout
from launcher.main.serving.console import Console


class SerialPorts:
    """The consoles of all further ports that a machine can have; those that it has not are idle."""

    def __init__(self, directory: Path, changed: Callable[[], None]) -> None:
        """Do nothing yet; ``changed`` is called whenever the number of viewers of one changed."""
        self._directory = directory
        self._consoles = tuple(Console(directory / layout.serial_socket(port), changed) for port in range(1, layout.SERIAL_PORTS))

    @property
    def viewers(self) -> int:
        """Return how many are connected to all of them."""
        return sum(each.viewers for each in self._consoles)

    def attach(self, count: int) -> None:
        """Connect to the ports of a machine that has ``count`` of them, the first among them, as soon as they are there."""
        for each in self._consoles[: max(count - 1, 0)]:
            each.attach()

    def detach(self) -> None:
        """Stop trying to connect."""
        for each in self._consoles:
            each.detach()

    async def connected(self, count: int) -> None:
        """Wait until the ports are connected to that ``attach`` with this count was called for."""
        for each in self._consoles[: max(count - 1, 0)]:
            await each.connected.wait()

    async def run(self) -> None:
        """Carry their output and accept viewers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for port, each in enumerate(self._consoles, start=1):
                tasks.create_task(each.run())
                tasks.create_task(each.serve(self._directory / layout.console_socket(port)))
