"""QEMU's threads for disks: ``ioThreads``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import io_threads
from controller.reconcilers.launcher_pods.requirements import Claims, Requirements


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the memory of the disks' threads."""
    del claims
    return Requirements(overhead_bytes=io_threads.THREAD_BYTES * io_threads.total(domain))
