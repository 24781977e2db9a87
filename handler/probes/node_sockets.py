"""Sockets of the node's own network, made by virt-handler, which is in its pod's.

What a node sends to its own pods always arrives, whatever NetworkPolicies say, as the kubelet's probes do. A socket stays in the network
namespace in which it was made: the one thread of this process is there for the two system calls that it takes, during which nothing else
of it runs.
"""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path
from typing import Final

NODE: Final = Path("/proc/1/ns/net")
"""virt-handler's pod is in the node's process namespace."""
OWN: Final = Path("/proc/self/ns/net")
_CLONE_NEWNET: Final = 0x40000000


class NodeSockets:
    """Makes them."""

    def __init__(self, node: Path = NODE, own: Path = OWN) -> None:
        self._node = node
        self._own = own

    def make(self, family: socket.AddressFamily) -> socket.socket:
        """Return a TCP socket of the node's network.

        Raises:
            OSError: it is refused.
            SystemExit: this thread could not come back: nothing that it does from now on would be where it belongs.
        """
        node = os.open(self._node, os.O_RDONLY | os.O_CLOEXEC)
        try:
            own = os.open(self._own, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _enter(node)
                try:
                    return socket.socket(family, socket.SOCK_STREAM)
                finally:
                    _come_back(own)
            finally:
                os.close(own)
        finally:
            os.close(node)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns is there from Python 3.12 on
    if libc.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _come_back(own: int) -> None:
    try:
        _enter(own)
    except OSError as error:
        raise SystemExit(f"virt-handler could not come back to its pod's network, and ends: {error.strerror}") from error
