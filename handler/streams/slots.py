"""Tracks slots for clients' USB devices.

QEMU serves one client per slot; a second one would silently wait in its queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName
from apiserver.apis.virt.places import layout, streams
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES

_SLOTS: Final = tuple(streams.usbredir(slot) for slot in range(layout.REDIRECTED_DEVICES))


class Slot(NamedTuple):
    """A machine's slot for a client's USB device."""

    machine_uid: str
    stream: str


class Slots:
    """The slots for USB devices that open streams use."""

    def __init__(self) -> None:
        self._taken: set[Slot] = set()

    @contextmanager
    def one(self, machine: NamespacedName, uid: str, stream: str, exists: Callable[[str], bool]) -> Iterator[str]:
        """Take a slot for a USB stream while the block runs; yield the stream with this slot. Other streams take none.

        ``stream`` is the requested slot, or any free one; ``exists`` says whether the machine has a slot. Raises Conflict if none is free.
        """
        any_slot = stream == streams.usbredir()
        if not any_slot and stream not in _SLOTS:
            yield stream
            return
        wanted = (_SLOTS[0], *filter(exists, _SLOTS[1:])) if any_slot else (stream,)
        free = next((each for each in wanted if Slot(uid, each) not in self._taken), None)
        if free is None:
            raise _busy(machine, "every slot" if any_slot else f"slot {_SLOTS.index(stream)}")
        self._taken.add(Slot(uid, free))
        try:
            yield free
        finally:
            self._taken.discard(Slot(uid, free))


def _busy(machine: NamespacedName, what: str) -> errors.Conflict:
    name, resource = machine.name, VIRTUAL_MACHINES
    details = errors.Details(name=name, group=resource.group, kind=resource.plural)
    why = f"{what} for redirected devices is in use; try again when that client has disconnected"
    return errors.Conflict(f'Operation cannot be fulfilled on {resource.plural}.{resource.group} "{name}": {why}', details)
