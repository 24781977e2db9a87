"""Invalidate the chain's cache of interested plug-ins."""

from __future__ import annotations

import asyncio

from apiserver.apis.meta.objects import Object
from apiserver.client.informer import Informer


class Changes:
    """Counts changes of webhooks and policies, which outdate the chain's cache."""

    def __init__(self) -> None:
        self.number = 0
        self._unknown: list[asyncio.Event] = []

    def note(self, old: Object | None = None, new: Object | None = None) -> None:
        """Count a change, whatever it is; an informer's callback."""
        del old, new
        self.number += 1

    def follow(self, informer: Informer) -> None:
        """Count an informer's changes; the chain caches nothing before its first list."""
        informer.subscribe(self.note)
        self.wait_for(informer.synced)

    def wait_for(self, known: asyncio.Event) -> None:
        """Let the chain cache nothing before ``known`` is set; until then, plug-ins handle (and delay) every request."""
        self._unknown.append(known)

    @property
    def settled(self) -> bool:
        """True if all events of :meth:`wait_for` are set."""
        if self._unknown:
            self._unknown = [each for each in self._unknown if not each.is_set()]
        return not self._unknown
