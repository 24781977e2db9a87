"""The thread in which libvirt's events arrive.

libvirt has one event loop per process, to be registered before the first connection. Its own implementation in a thread of its own is
independent of asyncio: keep-alive messages are answered while the asyncio loop is busy, and no handles outlive that loop.
"""

from __future__ import annotations

import functools
import threading

import libvirt


@functools.cache
def start() -> threading.Thread:
    """Start the event loop of this process, once; later calls return the same thread.

    It is a daemon thread, so that it need not be stopped before the process ends.
    """
    libvirt.registerErrorHandler(lambda _context, _error: None, None)  # its default prints each error to stderr; we raise them
    libvirt.virEventRegisterDefaultImpl()
    # The implementation wakes up for handles and timers only; a timer keeps it from sleeping through its first registration.
    libvirt.virEventAddTimeout(60_000, lambda _timer, _opaque: None, None)
    thread = threading.Thread(target=_run, name="libvirt-events", daemon=True)
    thread.start()
    return thread


def _run() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()
