"""Invalidates cached plug-in interest: whether they want to see something is asked anew after a change."""

from __future__ import annotations

import asyncio

from apiserver.apis.meta.objects import Object
from apiserver.client.informer import Informer


class Changes:
    """Counts changes of whatever plug-ins decide by."""

    def __init__(self) -> None:
        self.number = 0
        self._unknown: list[asyncio.Event] = []

    def note(self, old: Object | None = None, new: Object | None = None) -> None:
        """Count one; a callback of informers."""
        del old, new
        self.number += 1

    def follow(self, informer: Informer) -> None:
        """Count every change of an informer's objects."""
        informer.subscribe(self.note)
        self.wait_for(informer.synced)

    def wait_for(self, known: asyncio.Event) -> None:
        """Let nothing be remembered before this is set: until then plug-ins may want to see whatever there is, to hold it up."""
        self._unknown.append(known)

    @property
    def settled(self) -> bool:
        """True if everything is known."""
        if self._unknown:
            self._unknown = [each for each in self._unknown if not each.is_set()]
        return not self._unknown
