"""Find out from the tables of a qcow2 image whether all of it came.

The bytes come in order, so the image is whole if its tables and clusters are in the file. QEMU reads the missing bytes of a partial cluster
as zeros.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from collections.abc import Callable
from typing import Final

from importer import formats

_MAX_L1_BYTES: Final = 32 << 20
"""QEMU's limit."""
_OFFSET: Final = 0x00FF_FFFF_FFFF_FE00
"""Bits of the host offset in an entry of the tables L1 and L2."""
_COMPRESSED: Final = 1 << 62
_SECTOR: Final = 512
_EXTENDED_L2: Final = 4
"""Bit of the incompatible features: the second half of a 16-byte entry says which 32nds of its cluster are in use."""
_ALL: Final = 0xFFFF_FFFF


def is_whole(read: Callable[[int, int], bytes], size: int) -> bool:
    """Return whether the first ``size`` bytes of a qcow2 image have its L1 and L2 tables and the clusters that these name.

    ``read`` returns bytes by offset and length. The header must be valid (``formats.qcow2_size``).
    """
    header = read(0, formats.HEAD_BYTES)
    cluster_bits = int.from_bytes(header[20:24], "big")
    l1, l1_bytes = int.from_bytes(header[40:48], "big"), int.from_bytes(header[36:40], "big") * 8
    if l1_bytes > _MAX_L1_BYTES or l1 + l1_bytes > size:
        return False
    extended = bool(int.from_bytes(header[4:8], "big") > 2 and header[79] >> _EXTENDED_L2 & 1)
    for table in {entry & _OFFSET for entry in _entries(read(l1, l1_bytes))} - {0}:
        if table + (1 << cluster_bits) > size:
            return False
        entries = _entries(read(table, 1 << cluster_bits))
        used = [each & _ALL for each in entries[1::2]] if extended else itertools.repeat(_ALL)
        if any(_end(entry, parts, cluster_bits) > size for entry, parts in zip(entries[:: 1 + extended], used, strict=False)):
            return False
    return True


def _entries(table: bytes) -> array[int]:
    found = array("Q", table)
    if sys.byteorder == "little":
        found.byteswap()
    return found


def _end(entry: int, parts: int, cluster_bits: int) -> int:
    """Return the offset at which the bytes of a cluster, by its L2 table ``entry``, end; 0: it has none.

    The set bits of ``parts`` are the used 32nds of the cluster.
    """
    if entry & _COMPRESSED:
        width = 62 - (cluster_bits - 8)
        offset, more = entry & (1 << width) - 1, (entry & _COMPRESSED - 1) >> width
        return (offset // _SECTOR + 1 + more) * _SECTOR
    offset = entry & _OFFSET
    return offset + (parts.bit_length() << cluster_bits) // 32 if offset and parts else 0
