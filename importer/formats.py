"""Detect image formats by their first bytes. Pure.

Accepted are raw and qcow2 without references to other files (https://www.qemu.org/docs/master/interop/qcow2.html). Other formats, and data
unlike a disk, such as an error page, are refused unless the user sets ``format: raw``.
"""

from __future__ import annotations

from typing import Final, Literal

from importer import looks
from importer.failures import ImportFailed

Format = Literal["raw", "qcow2"]

HEAD_BYTES: Final = max(1 << 16, looks.HEAD_BYTES)
"""Examined bytes: all header extensions, and signatures of file systems."""
MAX_EXTENSIONS: Final = 64
QCOW2_MAGIC: Final = b"QFI\xfb"

_REFUSED: Final = (
    (0, b"KDMV", "VMDK"),
    (0, b"COWD", "VMDK"),
    (0, b"# Disk Descriptor", "VMDK"),
    (0, b"vhdxfile", "VHDX"),
    (0, b"conectix", "VHD"),
    (0x40, b"\x7f\x10\xda\xbe", "VDI"),
    (0, b"QED\0", "QED"),
    (0, b"WithoutFreeSpace", "Parallels"),
    (0, b"WithouFreSpacExt", "Parallels"),
    (0, b"Bochs Virtual HD Image", "Bochs"),
    (0, b"OOOM", "a container for disk images"),
    (0, b"LUKS\xba\xbe", "LUKS, which is encrypted"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"Rar!\x1a\x07", "rar"),
    (0, b"\x04\x22\x4d\x18", "lz4"),
    (0x101, b"ustar", "tar"),
)
"""(offset, bytes, name) of refused formats."""

_HEADER_2: Final = 72
_HEADER_3: Final = 104
"""Header lengths of versions 2 and 3."""
_KNOWN_FEATURES: Final = {0: "dirty", 3: "compression type", 4: "extended L2 entries"}
_CORRUPT: Final = 1
_EXTERNAL_DATA: Final = 2
_EXTENSION_END: Final = 0
_EXTENSION_DATA_FILE: Final = 0x44415441
_EXTENSION_ENCRYPTION: Final = 0x0537BE77


def of(head: bytes, said: str | None = None) -> Format:
    """Return the format: by the first bytes, unless the user ``said`` raw; raw if empty.

    Raises ImportFailed for other formats, for data unlike a disk, or if the user said qcow2 and it is not.
    """
    if said == "raw" or not head:
        return "raw"
    if said == "qcow2" and not head.startswith(QCOW2_MAGIC):
        raise ImportFailed(f"format is qcow2, but the downloaded file {looks.described(head)}")
    if head.startswith(QCOW2_MAGIC):
        return "qcow2"
    for offset, magic, name in _REFUSED:
        if head[offset : offset + len(magic)] == magic:
            raise ImportFailed(
                f"the image is {name}: only raw and qcow2 are supported, uncompressed or compressed with gzip, xz, bzip2 or zstd"
            )
    if not looks.is_disk(head):
        words = "and is neither qcow2 nor a raw disk with a known partition table or file system"
        raise ImportFailed(f"the downloaded file {looks.described(head)}, {words}; if it is a raw disk, set format: raw")
    return "raw"


def qcow2_size(head: bytes) -> int:
    """Return the disk size in bytes of a qcow2 image, from its first ``HEAD_BYTES``.

    Raises ImportFailed if it refers to other files, is encrypted, empty or damaged, or has unknown features.
    """
    if len(head) < _HEADER_2 or not head.startswith(QCOW2_MAGIC):
        raise ImportFailed("the qcow2 image has no header")
    version = _number(head, 4, 4)
    if version not in (2, 3):
        raise ImportFailed(f"the qcow2 image has version {version}; only 2 and 3 are supported")
    if version == 3 and (len(head) < _HEADER_3 or _number(head, 100, 4) < _HEADER_3):
        raise ImportFailed("the header of the qcow2 image is truncated")
    if _number(head, 8, 8) or _number(head, 16, 4):
        raise ImportFailed("the qcow2 image has a backing file; convert it to a standalone image with qemu-img convert")
    if _number(head, 32, 4):
        raise ImportFailed("the qcow2 image is encrypted")
    if not 9 <= _number(head, 20, 4) <= 21:
        raise ImportFailed("the qcow2 image has an invalid cluster size")
    if version == 3:
        _check_features(_number(head, 72, 8))
    _check_extensions(head, _number(head, 100, 4) if version == 3 else _HEADER_2)
    if not (size := _number(head, 24, 8)):
        raise ImportFailed("the qcow2 image holds an empty disk")
    return size


def _check_features(features: int) -> None:
    if features >> _CORRUPT & 1:
        raise ImportFailed("the qcow2 image is marked as corrupt")
    if features >> _EXTERNAL_DATA & 1:
        raise ImportFailed("the qcow2 image has an external data file; convert it to a standalone image with qemu-img convert")
    unknown = [bit for bit in range(64) if features >> bit & 1 and bit not in _KNOWN_FEATURES]
    if unknown:
        raise ImportFailed(f"the qcow2 image has unsupported incompatible features: bit {unknown[0]}")


def _check_extensions(head: bytes, offset: int) -> None:
    """Raise ImportFailed if the header extensions name a data file or encryption, or do not end."""
    for _ in range(MAX_EXTENSIONS):
        if offset + 8 > len(head):
            raise ImportFailed("the qcow2 image has too many header extensions")
        kind, length = _number(head, offset, 4), _number(head, offset + 4, 4)
        if kind == _EXTENSION_END:
            return
        if kind == _EXTENSION_DATA_FILE:
            raise ImportFailed("the qcow2 image has an external data file; convert it to a standalone image with qemu-img convert")
        if kind == _EXTENSION_ENCRYPTION:
            raise ImportFailed("the qcow2 image is encrypted")
        offset += 8 + (length + 7) // 8 * 8
    raise ImportFailed("the qcow2 image has too many header extensions")


def _number(head: bytes, offset: int, length: int) -> int:
    return int.from_bytes(head[offset : offset + length], "big")
