"""``<disk>``: files and devices of the disks next to the XML."""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.domainxml.grammar import Choice, Element
from apiserver.apis.virt.domainxml.places import BOOT, PLACE
from apiserver.apis.virt.domainxml.values import DISK, ON_OFF, matching, named, number, words

MOST: Final = 32
SOURCES: Final = {"file": "file", "block": "dev"}
"""Attribute of ``<source>`` with the path, by type."""

_DRIVER: Final = Element(
    {
        "name": words("qemu"),
        "type": words("raw", "qcow2"),
        "cache": words("none", "writethrough", "writeback", "directsync", "unsafe"),
        "io": words("threads", "native"),
        "discard": words("unmap", "ignore"),
        "detect_zeroes": words("off", "on", "unmap"),
        "error_policy": words("stop", "report", "enospace"),
        "rerror_policy": words("stop", "report"),
        "iothread": number(1, 16),
        "queues": number(1, 64),
    }
)
_TARGET: Final = Element(
    {
        "dev": matching(r"(vd|sd|hd)[a-z]{1,2}", "must be the name of a disk such as vda"),
        "bus": words("virtio", "scsi", "sata", "ide", "usb"),
        "tray": words("open", "closed"),
        "removable": ON_OFF,
    },
    required=frozenset({"dev", "bus"}),
)


def _disk(path: str) -> Element:
    return Element(
        {
            "type": words(*SOURCES),
            "device": words("disk", "cdrom"),
            "snapshot": words("internal", "external", "no"),
        },
        {
            "driver": _DRIVER,
            "source": Element({path: named(DISK), "index": number(1, 9999)}, required=frozenset({path})),
            "target": _TARGET,
            "boot": BOOT,
            "serial": Element(text=matching(r"[A-Za-z0-9_.+-]{0,36}", "must be at most 36 letters, digits and _.+-")),
            "wwn": Element(text=matching(r"[0-9a-fA-F]{16}", "must be 16 hexadecimal digits")),
            "vendor": Element(text=matching(r"[ -+.-~]{1,8}", "must be at most 8 printable characters, no comma")),
            "product": Element(text=matching(r"[ -+.-~]{1,16}", "must be at most 16 printable characters, no comma")),
            "readonly": Element(),
            "backingStore": Element(),
            "blockio": Element(dict.fromkeys(("logical_block_size", "physical_block_size"), words("512", "1024", "2048", "4096"))),
            **PLACE,
        },
        required_children=frozenset({"target"}),
        most=MOST,
    )


DISK_ELEMENT: Final = Choice("type", {kind: _disk(path) for kind, path in SOURCES.items()}, most=MOST)
