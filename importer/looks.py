"""Signatures of raw disks: partition table, boot sector, file system, or zeros. Pure."""

from __future__ import annotations

from typing import Final

_SIGNATURES: Final = (
    (510, b"\x55\xaa"),  # an MBR, also of GPT, and the boot sectors of FAT, exFAT, NTFS and hybrid ISOs
    (512, b"EFI PART"),
    (4096, b"EFI PART"),
    (508, b"\xda\xbe"),  # Solaris label
    (0, b"ER\x02\x00"),  # Apple partition map
    (0, b"RDSK"),
    (512, b"\x57\x45\x56\x82"),  # BSD label
    (0x8001, b"CD001"),  # ISO 9660
    (0x8001, b"BEA01"),  # UDF
    (0x438, b"\x53\xef"),  # ext2, ext3, ext4
    (0, b"XFSB"),
    (0x10040, b"_BHRfS_M"),
    (0x10034, b"ReIsEr"),
    (0x8000, b"JFS1"),
    (0x400, b"\x10\x20\xf5\xf2"),  # F2FS
    (0x400, b"\xe2\xe1\xf5\xe0"),  # EROFS
    (0x400, b"H+"),
    (0x400, b"HX"),
    (0x400, b"BD"),
    (0x20, b"NXSB"),
    (0, b"hsqs"),
    (0, b"\x45\x3d\xcd\x28"),  # cramfs
    (0, b"-rom1fs-"),
    (0xFF6, b"SWAPSPACE2"),
    (0x218, b"LVM2 001"),
    (0x1000, b"\xfc\x4e\x2b\xa9"),  # Linux software RAID
    (0, b"\xfc\x4e\x2b\xa9"),
)
"""(offset, bytes)."""
HEAD_BYTES: Final = max(offset + len(magic) for offset, magic in _SIGNATURES)
MAX_SHOWN: Final = 48
_HINTS: Final = (
    (b"version https://git-lfs", "it is a Git LFS pointer: use the URL of the file itself"),
    (b"#!", "it is a script"),
    (b"\x7felf", "it is a program"),
    (b"<!", "it is an HTML page: check the URL"),
    (b"<", "it is an HTML page: check the URL"),
    (b"{", "it is JSON: check the URL"),
)
"""(first bytes in lower case, hint)."""
_TEXT: Final = "it is a text: check the URL"


def is_disk(head: bytes) -> bool:
    """Return whether a raw disk may begin with ``head``: it is all zeros and not empty, or has a known signature."""
    return (bool(head) and not any(head)) or any(head[offset : offset + len(magic)] == magic for offset, magic in _SIGNATURES)


def described(head: bytes) -> str:
    """Return words about data that is not a disk: what it begins with, and a hint."""
    begun = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:64].lower()
    hint = next((hint for magic, hint in _HINTS if begun.startswith(magic)), _TEXT if _is_text(head[:512]) else "")
    shown = "".join(chr(each) if 0x20 <= each < 0x7F else f"\\x{each:02x}" for each in head[:MAX_SHOWN])
    return f'begins with "{shown}"{f" ({hint})" if hint else ""}'


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return False
        text = head[: error.start].decode()  # a truncated character
    return bool(text) and all(each.isprintable() or each.isspace() for each in text)
