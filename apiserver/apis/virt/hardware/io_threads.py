"""QEMU's threads for virtio disks: ``ioThreads``, and ``dedicatedIOThread`` of a disk."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, cycle
from typing import Any, Final

from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.hardware.given import Domain

MAX: Final = 16
"""Threads that disks share."""
THREAD_BYTES: Final = 2 << 20
"""A used stack and an event loop, plus room for requests."""


def shared(domain: Domain) -> int:
    """Count the I/O threads that disks share."""
    return int((domain.get("ioThreads") or {}).get("count") or 0)


def total(domain: Domain) -> int:
    """Count all I/O threads, shared and dedicated."""
    return shared(domain) + sum(is_alone(each) for each in disks.defaulted(domain))


def assigned(domain: Domain) -> dict[str, int]:
    """Return the number of the I/O thread, from 1, by disk name, without disks of QEMU's main thread.

    Shared threads are assigned in turn; dedicated ones follow.
    """
    in_turn, alone = cycle(range(1, shared(domain) + 1)), count(shared(domain) + 1)
    found = {}
    for disk in disks.defaulted(domain):
        if is_alone(disk):
            found[str(disk["name"])] = next(alone)
        elif _can_have_one(disk) and shared(domain):
            found[str(disk["name"])] = next(in_turn)
    return found


def is_alone(disk: Mapping[str, Any]) -> bool:
    """Return whether a disk of :func:`disks.defaulted` has a dedicated thread; only bus virtio can."""
    return bool(disk.get("dedicatedIOThread")) and _can_have_one(disk)


def _can_have_one(disk: Mapping[str, Any]) -> bool:
    return bool(disk["target"]["bus"] == "virtio")
