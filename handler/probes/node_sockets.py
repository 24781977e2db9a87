"""Makes sockets of the node's network; virt-handler itself is in its pod's network.

NetworkPolicies admit traffic from a node to its own pods. The process' only thread enters the node's namespace for two system calls, during
which no other code runs; the socket stays there.
"""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors

NODE: Final = Path("/proc/1/ns/net")
"""virt-handler's pod shares the node's process namespace."""
OWN: Final = Path("/proc/self/ns/net")
_CLONE_NEWNET: Final = 0x40000000


class NodeSockets:
    """Makes sockets of the node's network."""

    def __init__(self, node: Path = NODE, own: Path = OWN) -> None:
        self._node = node
        self._own = own

    def make(self, family: socket.AddressFamily, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        """Return a socket of the node's network, for TCP unless ``kind`` is another one.

        Raises OSError, or SystemExit if the thread could not return to its own network.
        """
        flags = os.O_RDONLY | os.O_CLOEXEC
        with descriptors.closing(os.open(self._node, flags)) as node, descriptors.closing(os.open(self._own, flags)) as own:
            _enter(node)
            try:
                return socket.socket(family, kind)
            finally:
                _come_back(own)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns exists from Python 3.12 on
    if libc.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _come_back(own: int) -> None:
    try:
        _enter(own)
    except OSError as error:
        raise SystemExit(f"virt-handler could not return to its pod's network namespace, exiting: {error.strerror}") from error
