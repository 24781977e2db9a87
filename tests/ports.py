"""Ports of loopback for servers that tests start."""

from __future__ import annotations

import functools
import itertools
import os
import random
import socket
from collections.abc import Iterator
from typing import Final

RANGE: Final = range(20_000, 30_000)
"""Below the ports of connections and of listeners on port 0 (``ip_local_port_range``) and those of Kubernetes' NodePorts."""
BLOCK: Final = 100
"""Ports that one process has for itself while it runs: nobody else takes one between its choice and the start of its server, nor while
a server that was killed is away. A process chooses them in turn, so one comes again after 99 others."""
_DRAW: Final = random.SystemRandom()  # the workers of one run are given one seed


def free_port() -> int:
    """Return a port that nobody listens on, on any address.

    Raises:
        OSError: the other processes have all of them.
    """
    ports = _own(os.getpid())
    while True:
        port = next(ports)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port


@functools.cache
def _own(_pid: int) -> Iterator[int]:
    """Return this process's ports, again and again. A forked child has others than its parent."""
    return claimed(RANGE)


def claimed(among: range) -> Iterator[int]:
    """Claim a block of ports until this process ends, and return them, again and again.

    Raises:
        OSError: other processes have all of them.
    """
    starts = list(among[::BLOCK])
    _DRAW.shuffle(starts)
    for start in starts:
        claim = socket.socket(socket.AF_UNIX)
        try:
            # An abstract address: one per network namespace, as a port is, and gone with its process.
            claim.bind(f"\0kubevirt-python/tests/ports/{start}")
        except OSError:
            claim.close()
            continue
        claim.detach()
        return itertools.cycle(range(start, start + BLOCK))
    raise OSError(f"other processes have all ports from {among.start} to {among.stop}")
