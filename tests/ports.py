"""Ports of loopback for servers that tests start."""

from __future__ import annotations

import random
import socket
from typing import Final

RANGE: Final = range(20_000, 30_000)
"""Below the ports of connections and of listeners on port 0 (``ip_local_port_range``) and those of Kubernetes' NodePorts: nobody but
another test, which draws by chance as well, takes one between its choice and the start of the server."""
_DRAW: Final = random.SystemRandom()  # the workers of one run are given one seed


def free_port() -> int:
    """Return a port that nobody listens on, on any address."""
    while True:
        port = _DRAW.choice(RANGE)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
