"""Caps on connections, and the choice of who gives one up when there are too many.

Nobody is turned away at accept, because nobody knows yet who comes: it may be kube-apiserver. A newcomer gets in, and if that makes too
many, whoever holds the most gives up one of its own. So one address, however fast it connects, takes places from itself alone, and
many addresses together take them from each other before they take one from somebody who holds few.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

_NETWORK_BYTES: Final = 8
"""Of an IPv6 address: who has one of a network has as many as it likes (RFC 4291, section 2.5.4)."""


class Member(Hashable, Protocol):
    """A connection that takes a place."""

    @property
    def is_busy(self) -> bool:
        """True while it waits for us, and not we for it."""
        ...

    def abort(self) -> None:
        """End it."""
        ...


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that there may be."""

    total: int
    each: int
    """Of one holder."""


Who = TypeVar("Who", bound=Hashable)
M = TypeVar("M", bound=Member)


def gives_up(caps: Caps, held: Mapping[Who, Collection[object]], total: int, newcomer: Who) -> Who | None:
    """Return who has to give a place up, None if nobody has to.

    Args:
        caps: how many there may be.
        held: what each holder has, the newcomer's among it; holders in the order in which they came.
        total: how many these are.
        newcomer: who has just taken a place.
    """
    if len(held[newcomer]) > caps.each:
        return newcomer
    if total > caps.total:
        return max(held, key=lambda who: len(held[who]))
    return None


class Places(Generic[M]):
    """The places of one kind of connections, by who holds them."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.taken_away = 0
        """Number of those that had to go for others."""
        self._held: dict[Hashable, dict[M, None]] = {}
        self._holders: dict[M, Hashable] = {}

    def __len__(self) -> int:
        """Return the number of places that are taken."""
        return len(self._holders)

    def __iter__(self) -> Iterator[M]:
        """Yield who has taken them, in the order in which they came."""
        return iter(self._holders)

    def take(self, member: M, holder: Hashable) -> None:
        """Give a place; who has to go for it is ended: the oldest of those that we wait for, else the oldest."""
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
        """Give a place back; once more does no harm."""
        if member not in self._holders:
            return
        holder = self._holders.pop(member)
        held = self._held[holder]
        del held[member]
        if not held:
            del self._held[holder]


def origin(address: str) -> str:
    """Return by what the addresses of one peer are counted: an IPv4 address, the network of an IPv6 address."""
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return found.packed[:_NETWORK_BYTES].hex()
