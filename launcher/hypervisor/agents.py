"""Connection states of the domains' guest agents."""

from __future__ import annotations

from collections.abc import Callable


class Agents:
    """The connection state of each domain's guest agent.

    Events arrive in libvirt's thread. They override the initial query, because they are newer or a newer one follows.
    """

    def __init__(self) -> None:
        self._connected: dict[str, bool] = {}

    def forget(self) -> None:
        """Drop all states before another connection's events arrive."""
        self._connected = {}

    def take(self, name: str, *, connected: bool) -> None:
        """Record that a domain's guest agent connected or disconnected."""
        self._connected[name] = connected

    def look(self, name: str, look: Callable[[], bool]) -> None:
        """Record what ``look`` returns, whether a domain's agent is connected, unless a state is recorded already or during that call."""
        self._connected.setdefault(name, look())

    def is_connected(self, name: str) -> bool:
        """Return whether a domain's guest agent is connected; False if unknown."""
        return self._connected.get(name, False)
