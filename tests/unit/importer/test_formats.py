from __future__ import annotations

import random

import pytest

from importer import formats
from importer.failures import ImportFailed

MIB = 1 << 20


def header(version: int = 3, **fields: int) -> bytes:
    places = {
        "backing": (8, 8), "backing_size": (16, 4), "cluster_bits": (20, 4), "size": (24, 8), "crypt": (32, 4),
        "incompatible": (72, 8), "header_length": (100, 4),
    }  # fmt: skip
    values = {"cluster_bits": 16, "size": MIB, "header_length": 104 if version == 3 else 0, **fields}
    head = bytearray(1024)
    head[:8] = formats.QCOW2_MAGIC + version.to_bytes(4, "big")
    for name, value in values.items():
        if version == 3 or places[name][0] < 72:
            offset, length = places[name]
            head[offset : offset + length] = value.to_bytes(length, "big")
    return bytes(head)


def with_extension(kind: int, data: bytes = b"x" * 8, head: bytes | None = None) -> bytes:
    found = bytearray(head or header())
    found[104 : 112 + len(data)] = kind.to_bytes(4, "big") + len(data).to_bytes(4, "big") + data
    return bytes(found)


@pytest.mark.parametrize("version", [2, 3])
def test_a_sound_image_is_known_and_its_size_read(version: int) -> None:
    assert formats.of(header(version)) == "qcow2"
    assert formats.qcow2_size(header(version)) == MIB


@pytest.mark.parametrize("bit", [0, 3, 4])
def test_features_that_qemu_img_reads_by_itself_are_taken(bit: int) -> None:
    assert formats.qcow2_size(header(incompatible=1 << bit)) == MIB


def test_harmless_extensions_are_skipped() -> None:
    assert formats.qcow2_size(with_extension(0x6803F857, b"x" * 384)) == MIB
    assert formats.qcow2_size(with_extension(0xE2792ACA, b"raw")) == MIB


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (header(backing=200), "backing file"),
        (header(backing_size=5), "backing file"),
        (header(version=2, backing=200), "backing file"),
        (header(incompatible=1 << 2), "external data file"),
        (with_extension(0x44415441), "external data file"),
        (with_extension(0x0537BE77), "encrypted"),
        (header(crypt=1), "encrypted"),
        (header(crypt=2), "encrypted"),
        (header(incompatible=1 << 1), "corrupt"),
        (header(incompatible=1 << 5), "bit 5"),
        (header(incompatible=1 << 63), "bit 63"),
        (header(cluster_bits=8), "cluster size"),
        (header(cluster_bits=22), "cluster size"),
        (header(size=0), "empty"),
        (header(header_length=72), "is truncated"),
        (header(header_length=1 << 31), "too many header extensions"),
        (header(version=1), "version 1"),
        (header(version=4), "version 4"),
        (header()[:71], "no header"),
        (header()[:100], "is truncated"),
        (with_extension(1, head=header(), data=b"")[:116], "too many header extensions"),
        (bytes(with_extension(1, b""))[:104] + (b"\0\0\0\1" + bytes(4)) * 100, "too many header extensions"),
        (with_extension(1, b"")[:108] + b"\xff\xff\xff\xff" + bytes(100), "too many header extensions"),
    ],
)
def test_external_references_and_unknown_features_are_refused(head: bytes, words: str) -> None:
    with pytest.raises(ImportFailed, match=words):
        formats.qcow2_size(head)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"KDMV" + bytes(600), "VMDK"),
        (b"# Disk DescriptorFile\nversion=1\nRW 63 FLAT \"/etc/passwd\" 0", "VMDK"),
        (b"vhdxfile" + bytes(600), "VHDX"),
        (b"conectix" + bytes(600), "VHD"),
        (b"<<< Oracle VM VirtualBox Disk Image >>>\n".ljust(0x40, b"\0") + b"\x7f\x10\xda\xbe", "VDI"),
        (b"LUKS\xba\xbe\0\1", "encrypted"),
        (b"PK\x03\x04", "zip"),
        (b"disk.raw".ljust(0x101, b"\0") + b"ustar", "tar"),
        (b"<!DOCTYPE html><title>404</title>", "it is an HTML page"),
        (b"\n  <HTML>", "it is an HTML page"),
        (b"<!-- a comment --><html>", "it is an HTML page"),
        (b"\xef\xbb\xbf<html>", "it is an HTML page"),
        (b'{"error": "denied"}', "it is JSON"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
        (b"#!/bin/sh", "a script"),
        (b"\x7fELF\2\1\1", "a program"),
        (b"404 page not found\n", r'begins with "404 page not found\\x0a" \(it is a text'),
        ("Nicht gefunden: für Fehler".encode() * 40, "it is a text"),
        (b"\x9c\x01" * 400, r'begins with "\\x9c\\x01[^"]*", and is neither'),
        (b'json:{"driver":"raw"}', "it is a text"),
    ],
)  # fmt: skip
def test_other_formats_are_refused_by_name(head: bytes, words: str) -> None:
    with pytest.raises(ImportFailed, match=words):
        formats.of(head)


@pytest.mark.parametrize(
    ("offset", "magic"),
    [
        (510, b"\x55\xaa"),
        (512, b"EFI PART"),
        (0x8001, b"CD001"),
        (0x438, b"\x53\xef"),
        (0, b"XFSB"),
        (0x10040, b"_BHRfS_M"),
        (0xFF6, b"SWAPSPACE2"),
    ],
    ids=["MBR", "GPT", "ISO 9660", "ext4", "XFS", "Btrfs", "swap"],
)
def test_known_disk_signatures_are_raw_images(offset: int, magic: bytes) -> None:
    head = b"\xeb\x63\x90".ljust(offset, b"\1")[:offset] + magic + bytes(512)

    assert formats.of(head[: formats.HEAD_BYTES]) == "raw"
    with pytest.raises(ImportFailed, match="set format: raw"):
        formats.of(head[: offset + len(magic) - 1])


def test_zeros_are_a_disk_and_nothing_is_told_elsewhere() -> None:
    assert formats.of(bytes(512)) == "raw"
    assert formats.of(b"") == "raw"


def test_the_user_may_say_the_format() -> None:
    assert formats.of(b"any text", "raw") == "raw"
    assert formats.of(header(), "raw") == "raw"
    assert formats.of(header(), "qcow2") == "qcow2"
    with pytest.raises(ImportFailed, match="format is qcow2, but the downloaded file begins with"):
        formats.of(bytes(510) + b"\x55\xaa", "qcow2")


def test_no_header_is_worse_than_refused() -> None:
    chance = random.Random(7)
    for _ in range(3000):
        head = bytearray(with_extension(chance.choice([0, 1, 0x6803F857])))
        for _ in range(chance.randrange(1, 6)):
            head[chance.randrange(4, 130)] = chance.randrange(256)
        try:
            size = formats.qcow2_size(bytes(head[: chance.randrange(60, 1024)]))
        except ImportFailed:
            continue
        assert 0 < size < 1 << 64
        assert not any(head[8:20])
        assert not any(head[32:36])
