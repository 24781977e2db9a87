"""Parts common to all devices: address and alias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.virt.domainxml.grammar import Allowed, Choice, Element
from apiserver.apis.virt.domainxml.values import ON_OFF, YES_NO, Rule, address, matching, number, word, words

_USB_PORT: Final = matching(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}", "must be a port such as 1 or 1.2")
_NEEDED: Final = {"virtio-serial": frozenset({"controller"}), "usb": frozenset({"bus"})}
_PARTS: Final[Mapping[str, Mapping[str, Rule]]] = {
    "pci": {
        "domain": matching(r"0x[0-9a-fA-F]{1,4}", "must be a number such as 0x0000"),
        "bus": address,
        "slot": matching(r"0x[01]?[0-9a-fA-F]|[12]?[0-9]|3[01]", "must be a number from 0 to 31 such as 0x1f"),
        "function": matching(r"(0x)?[0-7]", "must be a number from 0 to 7 such as 0x7"),
        "multifunction": ON_OFF,
    },
    "drive": dict.fromkeys(("controller", "bus", "target", "unit"), number(0, 99)),
    "virtio-serial": dict.fromkeys(("controller", "bus", "port"), number(0, 99)),
    "usb": {"bus": number(0, 99), "port": _USB_PORT},
    "isa": {
        "iobase": matching(r"0x[0-9a-fA-F]{1,4}", "must be a number such as 0x505"),
        "irq": matching(r"0x[0-9a-fA-F]", "must be a number such as 0x4"),
    },
}
ADDRESS: Final = Choice(
    "type", {kind: Element({"type": words(kind), **parts}, required=_NEEDED.get(kind, frozenset())) for kind, parts in _PARTS.items()}
)
ALIAS: Final = Element({"name": word}, required=frozenset({"name"}))
"""libvirt drops aliases that do not begin with ``ua-``."""
BOOT: Final = Element({"order": number(1, 99)}, required=frozenset({"order"}))
PLACE: Final[Mapping[str, Allowed]] = {"address": ADDRESS, "alias": ALIAS}
ROM: Final = Element({"bar": ON_OFF, "enabled": YES_NO})
