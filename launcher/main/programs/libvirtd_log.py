"""Filter of libvirtd's standard error: drops what it says at each start and end in a container that has what it needs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from launcher.domain.network_disks import without_users

HARMLESS: Final = (
    b"Unable to open /dev/kvm",  # asked for before there is a guest; one that is to have KVM fails with QEMU's words
    b"Failed to get udev device for syspath '/sys/devices/virtual/dmi/id'",
    b'Configured security driver "none" disables default policy',
    b"Unable to get session bus connection",
    b"Unable to get system bus connection",
    b"Unable to find 'dnsmasq' binary",  # for networks of libvirt's own, whose driver Debian 12 has in the daemon's package
    b"internal error: End of file from agent socket",  # the end of each guest, and of its agent
    b": info : libvirt version: ",
    b": info : hostname: ",
)
"""No device of KVM, no firmware tables, no D-Bus, no networks of libvirt's, no agent any more: none of it is anything that virt-launcher's
libvirtd could miss."""
MAX_LINE: Final = 8 << 10
READ_BYTES: Final = 64 << 10


def worth_telling(line: bytes) -> bool:
    """Return whether a line of libvirtd's is news."""
    return bool(line.strip()) and not any(each in line for each in HARMLESS)


class Lines:
    """Cuts what comes in pieces of any size into lines; longer ones are cut at ``MAX_LINE``."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            lines.append(self._rest)
            self._rest = b""
        return lines


@contextmanager
def forwarding() -> Iterator[int]:
    """Yield the descriptor for libvirtd's output; what is worth telling goes to our standard error."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reader, False)
    lines, loop = Lines(), asyncio.get_running_loop()

    def forward() -> None:
        for line in lines.feed(os.read(reader, READ_BYTES)):
            if worth_telling(line):
                text = without_users(line.decode(errors="surrogateescape"))[:MAX_LINE]
                os.write(sys.stderr.fileno(), f"libvirtd: {text}\n".encode(errors="surrogateescape"))

    loop.add_reader(reader, forward)
    try:
        yield writer
    finally:
        loop.remove_reader(reader)
        os.close(reader)
        os.close(writer)
