from __future__ import annotations

import functools
import itertools
import os
import random
import socket
from collections.abc import Iterator
from typing import Final

RANGE: Final = range(20_000, 30_000)
"""Below the ports of connections and of port 0 (``ip_local_port_range``), and below Kubernetes' NodePorts."""
BLOCK: Final = 100
"""Reserved for one process, also before its server starts or while a killed server is away. A port repeats after 99 others."""
_DRAW: Final = random.SystemRandom()  # all workers of one run get the same seed


def free_port() -> int:
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
    return claimed(RANGE)


def claimed(among: range) -> Iterator[int]:
    """Claim a block of ports until this process ends; return an endless iterator over them."""
    starts = list(among[::BLOCK])
    _DRAW.shuffle(starts)
    for start in starts:
        claim = socket.socket(socket.AF_UNIX)
        try:
            # An abstract address: one per network namespace, like a port, and gone with its process.
            claim.bind(f"\0kubevirt-python/tests/ports/{start}")
        except OSError:
            claim.close()
            continue
        claim.detach()
        return itertools.cycle(range(start, start + BLOCK))
    raise OSError(f"other processes have all ports from {among.start} to {among.stop}")
