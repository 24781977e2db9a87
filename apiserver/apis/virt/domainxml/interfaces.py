"""``<interface>``: network cards on taps of the pod."""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.domainxml.grammar import Choice, Element
from apiserver.apis.virt.domainxml.places import BOOT, PLACE, ROM
from apiserver.apis.virt.domainxml.values import NETWORK, mac, named, words

INTERFACE: Final = Choice(
    "type",
    {
        "ethernet": Element(
            {"type": words("ethernet")},
            {
                "mac": Element({"address": mac}, required=frozenset({"address"})),
                "target": Element({"dev": named(NETWORK), "managed": words("no")}, required=frozenset({"dev", "managed"})),
                "model": Element({"type": words("virtio", "e1000", "e1000e", "rtl8139")}, required=frozenset({"type"})),
                "driver": Element({"name": words("qemu")}),
                "link": Element({"state": words("up", "down")}, required=frozenset({"state"})),
                "boot": BOOT,
                "rom": ROM,
                **PLACE,
            },
            required_children=frozenset({"mac", "target", "model"}),
        )
    },
    most=8,
    hint="write <target dev='@network:NAME@' managed='no'/> instead of <source>; NAME is of an interface of spec.domain.devices.interfaces",
)
