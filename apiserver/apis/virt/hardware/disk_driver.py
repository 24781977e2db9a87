"""Reads a disk's ``driver``, the way in which QEMU accesses it, with libvirt's values."""

from __future__ import annotations

from typing import Final, Literal, get_args

Cache = Literal["none", "directsync", "writethrough", "writeback", "unsafe"]
CACHES: Final = get_args(Cache)
IO = Literal["threads", "native"]
IOS: Final = get_args(IO)
Discard = Literal["unmap", "ignore"]
DetectZeroes = Literal["off", "on", "unmap"]
ErrorPolicy = Literal["stop", "report", "ignore", "enospace"]
