"""The guardian's file with the deadline of its node's guests. Pure.

It is in memory that a reboot clears. virt-handler passes its descriptor, opened for reading, to each virt-launcher, which ends its guest
after the deadline even if the guardian does not run.
"""

from __future__ import annotations

import struct
import time
from typing import Final

DIRECTORY: Final = "/run/kubevirt-guardian"
"""A directory of the node. In it, a directory with the node's name has the file."""
FILE: Final = "deadline"
HOLDERS: Final = "holders"
"""virt-handler's file beside it: uids of pods with a virt-launcher that confirmed the descriptor, a line each."""
MAX_HOLDERS: Final = 2000
CONFIRMED: Final = b"k"
"""virt-launcher's answer to the descriptor."""
_FORM: Final = struct.Struct("<q36s")
SIZE: Final = _FORM.size
NONE: Final = 0


def elapsed() -> float:
    """Return the seconds since the boot, with those of suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def encode(until: float | None, boot: str) -> bytes:
    """Return the file's content: the deadline in seconds of CLOCK_BOOTTIME (None: guests need not end), and the boot ID."""
    return _FORM.pack(NONE if until is None else max(int(until * 1e9), 1), boot.encode()[:36])


def decode(content: bytes) -> tuple[float | None, str] | None:
    """Return the deadline in seconds of CLOCK_BOOTTIME (None: guests need not end) and the boot ID; None if the size is wrong."""
    if len(content) != SIZE:
        return None
    nanoseconds, boot = _FORM.unpack(content)
    return (None if nanoseconds == NONE else nanoseconds / 1e9), boot.rstrip(b"\0").decode("ascii", errors="replace")
