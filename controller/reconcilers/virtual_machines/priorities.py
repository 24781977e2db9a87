"""Reads the PriorityClasses when machines of a lost node restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from apiserver.apis.core.resources import PRIORITY_CLASSES
from apiserver.client.rest import Client
from controller.reconcilers.virtual_machines import restart_turns

KEPT_SECONDS: Final = 30.0
"""Many machines ask at once."""


class PriorityClasses:
    """The values of PriorityClasses."""

    def __init__(self, client: Client, elapsed: Callable[[], float]) -> None:
        self._client = client
        self._elapsed = elapsed
        self._found: tuple[float, restart_turns.Priorities] | None = None

    async def values(self) -> restart_turns.Priorities:
        """Return the values by name."""
        now = self._elapsed()
        if self._found is None or now - self._found[0] > KEPT_SECONDS:
            listed = await self._client.list(PRIORITY_CLASSES)
            self._found = (now, restart_turns.priorities_of(listed["items"]))
        return self._found[1]
