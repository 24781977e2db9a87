"""Limit connections, and choose which one to close.

A refused client could be kube-apiserver. So the holder of most connections loses one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

_NETWORK_BYTES: Final = 8
"""Network part of an IPv6 address (RFC 4291, section 2.5.4)."""


class Member(Hashable, Protocol):
    """A connection that takes a place."""

    @property
    def is_busy(self) -> bool:
        """True if the client waits for us, rather than we for the client."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


@dataclass(frozen=True, slots=True)
class Caps:
    """Maximum numbers of connections: in total, and of each holder."""

    total: int
    each: int
    """Per holder."""


Who = TypeVar("Who", bound=Hashable)
M = TypeVar("M", bound=Member)


def gives_up(caps: Caps, held: Mapping[Who, Collection[object]], total: int, newcomer: Who) -> Who | None:
    """Return who must lose a connection, or None within the limits.

    The newcomer if above its own limit; else, above the total, the holder with most. ``held`` has the new connection already.
    """
    if len(held[newcomer]) > caps.each:
        return newcomer
    if total > caps.total:
        return max(held, key=lambda who: len(held[who]))
    return None


class Places(Generic[M]):
    """The open connections of one kind, by holder, within ``caps``."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.taken_away = 0
        """Connections closed for others."""
        self._held: dict[Hashable, dict[M, None]] = {}
        self._holders: dict[M, Hashable] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def __iter__(self) -> Iterator[M]:
        return iter(self._holders)

    def take(self, member: M, holder: Hashable) -> None:
        """Add a connection; above a limit, abort the oldest idle one, else the oldest, of the holder that :func:`gives_up` names."""
        self._holders[member] = holder
        self._held.setdefault(holder, {})[member] = None
        who = gives_up(self.caps, self._held, len(self._holders), holder)
        if who is None:
            return
        others = [each for each in self._held[who] if each is not member]
        loser = next((each for each in others if not each.is_busy), others[0] if others else member)
        self.leave(loser)
        self.taken_away += 1
        loser.abort()

    def leave(self, member: M) -> None:
        """Remove a connection; safe to repeat."""
        if member not in self._holders:
            return
        holder = self._holders.pop(member)
        held = self._held[holder]
        del held[member]
        if not held:
            del self._held[holder]


def origin(address: str) -> str:
    """Return a peer's IPv4 address as text, also of a mapped one; else the first half of its IPv6 address in hexadecimal."""
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return found.packed[:_NETWORK_BYTES].hex()
