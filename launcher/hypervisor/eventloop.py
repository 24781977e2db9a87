"""The thread in which libvirt's events arrive.

libvirt has one event loop per process. Its own thread answers keep-alive messages while the asyncio loop is busy.
"""

from __future__ import annotations

import functools
import threading

import libvirt


@functools.cache
def start() -> threading.Thread:
    """Start the thread of libvirt's events, once per process, and return it. The process can exit without stopping it."""
    libvirt.registerErrorHandler(lambda _context, _error: None, None)  # by default libvirt prints each error to stderr
    libvirt.virEventRegisterDefaultImpl()
    # The implementation wakes up for handles and timers only. Without a timer it would miss its first registration.
    libvirt.virEventAddTimeout(60_000, lambda _timer, _opaque: None, None)
    thread = threading.Thread(target=_run, name="libvirt-events", daemon=True)
    thread.start()
    return thread


def _run() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()
