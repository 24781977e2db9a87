"""The channels of guests' agents, as libvirt's events tell of them, and a look at the domains that were there before."""

from __future__ import annotations

from collections.abc import Callable


class Agents:
    """Remembers whether each domain's agent is connected.

    Events come in libvirt's thread and win over a look: they are newer, or the newer one is on its way.
    """

    def __init__(self) -> None:
        self._connected: dict[str, bool] = {}

    def forget(self) -> None:
        """Forget all, before events of another connection come."""
        self._connected = {}

    def take(self, name: str, *, connected: bool) -> None:
        """Take in an event."""
        self._connected[name] = connected

    def look(self, name: str, look: Callable[[], bool]) -> None:
        """Look at a domain of which no event has told; one may do so meanwhile."""
        self._connected.setdefault(name, look())

    def is_connected(self, name: str) -> bool:
        """Return whether a domain's agent is connected."""
        return self._connected.get(name, False)
