"""Drops messages of libvirtd that every start and end causes in a pod."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from launcher.domain.network_disks import without_users

HARMLESS: Final = (
    b"Unable to open /dev/kvm",  # a start that needs KVM fails with QEMU's own message
    b"Failed to get udev device for syspath '/sys/devices/virtual/dmi/id'",
    b'Configured security driver "none" disables default policy',
    b"Unable to get session bus connection",
    b"Unable to get system bus connection",
    b"Unable to find 'dnsmasq' binary",  # for libvirt's networks; Debian 12 ships their driver with the daemon
    b"internal error: End of file from agent socket",  # each guest's and agent's end
    b": info : libvirt version: ",
    b": info : hostname: ",
)
"""virt-launcher's libvirtd needs no KVM device, firmware tables, D-Bus, libvirt networks or agent."""
MAX_LINE: Final = 8 << 10
READ_BYTES: Final = 64 << 10


def worth_telling(line: bytes) -> bool:
    """Return whether a line of libvirtd's log is not empty, and without words of ``HARMLESS``."""
    return bool(line.strip()) and not any(each in line for each in HARMLESS)


class Lines:
    """Splits chunks into lines. An unfinished line of more than ``MAX_LINE`` bytes counts as a line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes or makes too long."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            lines.append(self._rest)
            self._rest = b""
        return lines


@contextmanager
def forwarding() -> Iterator[int]:
    """Yield a descriptor for libvirtd's output, and forward useful lines to our standard error."""
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
