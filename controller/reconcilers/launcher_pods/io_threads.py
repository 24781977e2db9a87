"""Threads of QEMU that serve disks: ``ioThreads``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import io_threads
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

THREAD_BYTES: Final = 2 * MIB
"""A thread's stack as far as it is used, and its own loop of events: 8 KiB measured of one that waits, and room for requests."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the memory of the threads."""
    del claims
    return Needs(overhead_bytes=THREAD_BYTES * io_threads.total(domain))
