"""Parts that devices of all kinds have: an address in the guest, and a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.virt.domainxml.grammar import Element
from apiserver.apis.virt.domainxml.values import ON_OFF, YES_NO, address, matching, number, word, words

ADDRESS: Final = Element(
    {
        "type": words("pci", "drive", "virtio-serial", "usb", "isa"),
        **dict.fromkeys(("domain", "bus", "slot", "function", "controller", "target", "unit", "iobase", "irq"), address),
        "port": matching(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}|0x[0-9a-f]{1,4}", "must be a port such as 1 or 1.2"),
        "multifunction": ON_OFF,
    },
    required=frozenset({"type"}),
)
ALIAS: Final = Element({"name": word}, required=frozenset({"name"}))
"""libvirt forgets one that does not begin with ``ua-``."""
BOOT: Final = Element({"order": number(1, 99), "loadparm": word}, required=frozenset({"order"}))
PLACE: Final[Mapping[str, Element]] = {"address": ADDRESS, "alias": ALIAS}
ROM: Final = Element({"bar": ON_OFF, "enabled": YES_NO})
