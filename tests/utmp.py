"""A login record for a busybox, which writes none."""

from __future__ import annotations

import base64
import struct


def login(user: str, seconds: int) -> str:
    record = struct.pack("<hxxi32s4s32s256shhiii16x20x", 7, 1, b"ttyS0", b"S0", user.encode(), b"", 0, 0, 0, seconds, 0)
    return f"echo {base64.b64encode(record).decode()} | base64 -d > /var/run/utmp"
