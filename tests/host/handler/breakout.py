"""Attacks from the process that reads a guest's packets, with their results.

Runs as its user in the pod's network namespace, or inside a real launcher pod.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_ADD_KEY, _BPF, _PERF, _MODULE = 248, 321, 298, 313
_SIOCSIFFLAGS, _SIOCSIFADDR, _IFF_UP = 0x8914, 0x8916, 1
_NEWNS, _NEWNET, _NEWUSER = 0x00020000, 0x40000000, 0x10000000


def _called(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _ioctl(number: int, argument: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, number, argument)


def _set_flags(name: bytes, flags: int) -> None:
    _ioctl(_SIOCSIFFLAGS, struct.pack("16sH14x", name, flags))


def _take_address(address: str) -> None:
    _ioctl(_SIOCSIFADDR, struct.pack("16sHH4s8x", b"eth0", socket.AF_INET, 0, socket.inet_aton(address)))


def _delete_rules() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as netlink:
        head = struct.pack("=BBH", 0, 0, socket.htons(10))
        batch = b"".join(struct.pack("=IHHII", 20, kind, 5, 1, 0) + head for kind in (0x10, 0x0A02, 0x11))
        netlink.sendto(batch, (0, 0))
        netlink.settimeout(2)
        code = struct.unpack_from("=i", netlink.recv(4096), 16)[0]
        if code:
            raise OSError(-code, os.strerror(-code))


def _spoof() -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()


def _send_raw() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW).close()


def _read(path: str) -> Callable[[], None]:
    def read() -> None:
        Path(path).open("rb").close()

    return read


def _list(path: str) -> Callable[[], None]:
    def look() -> None:
        os.scandir(path).close()

    return look


NETWORK: dict[str, Callable[[], None]] = {
    "delete the filters": _delete_rules,
    "set the tap down": lambda: _set_flags(b"tap0", 0),
    "set the uplink down": lambda: _set_flags(b"eth0", 0),
    "take another address": lambda: _take_address("10.99.99.99"),
    "send frames": _spoof,
    "send packets with any source": _send_raw,
    "become root": lambda: os.setuid(0),
    "mount": lambda: _called(_libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
    "enter the node's namespaces": lambda: _called(_libc.unshare(_NEWNET)),
    "read the shadow file": _read("/etc/shadow"),
}
"""Attacks that fail for its user everywhere."""

POD: dict[str, Callable[[], None]] = {
    **NETWORK,
    "load a module": lambda: _called(_libc.syscall(_MODULE, 0, b"", 0)),
    "make namespaces": lambda: _called(_libc.unshare(_NEWUSER | _NEWNS)),
    "keep a key": lambda: _called(_libc.syscall(_ADD_KEY, b"user", b"x", b"x", 1, -5)),
    "load a program into the kernel": lambda: _called(_libc.syscall(_BPF, 0, bytes(128), 128)),
    "watch the node": lambda: _called(_libc.syscall(_PERF, bytes(128), -1, 0, -1, 0)),
    "see the kubelet's directory": _list("/var/lib/kubelet"),
    "take a token": _list("/var/run/secrets/kubernetes.io/serviceaccount"),
    "talk to the container runtime": lambda: socket.socket(socket.AF_UNIX).connect("/run/containerd/containerd.sock"),
    "see a disk of the node": _read("/dev/vda"),
}
"""Attacks that fail in the pod, by its seccomp profile, mounts, and credentials."""


def main() -> None:
    ended = {}
    for name, attempt in (POD if sys.argv[1:] == ["pod"] else NETWORK).items():
        try:
            attempt()
        except OSError as error:
            ended[name] = str(error.strerror or error)
        else:
            ended[name] = "done"
    print(json.dumps(ended))


if __name__ == "__main__":
    main()
