"""Threads of QEMU that serve disks: ``ioThreads``, and ``dedicatedIOThread`` of a disk. Of a disk of bus virtio; the others have none."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, cycle
from typing import Any, Final

from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.hardware.given import Domain

MAX: Final = 16
"""Threads that disks may share."""
THREAD_BYTES: Final = 2 << 20
"""A thread's stack as far as it is used, and its own loop of events: 8 KiB measured of one that waits, and room for requests."""


def shared(domain: Domain) -> int:
    """Return how many threads there are that several disks may share."""
    return int((domain.get("ioThreads") or {}).get("count") or 0)


def total(domain: Domain) -> int:
    """Return how many threads there are."""
    return shared(domain) + sum(is_alone(each) for each in disks.defaulted(domain))


def assigned(domain: Domain) -> dict[str, int]:
    """Return the number of each disk's thread by the disk's name, counted from 1; disks that QEMU's main thread serves are left out.

    The threads that are shared take turns, those of one disk each come after them.
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
    """Return whether a disk, of those that :func:`disks.defaulted` returns, has a thread of its own."""
    return bool(disk.get("dedicatedIOThread")) and _can_have_one(disk)


def _can_have_one(disk: Mapping[str, Any]) -> bool:
    return bool(disk["target"]["bus"] == "virtio")
