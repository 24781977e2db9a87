"""``<devices>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.virt.domainxml import chardevs, disks, displays, interfaces
from apiserver.apis.virt.domainxml.grammar import Allowed, Choice, Element
from apiserver.apis.virt.domainxml.places import ALIAS, PLACE
from apiserver.apis.virt.domainxml.values import ON_OFF, YES_NO, address, number, words
from apiserver.apis.virt.places import layout

_DRIVER: Final = Element({"queues": number(1, 64), "cmd_per_lun": number(1, 1024), "max_sectors": number(1, 65535)})
_PCI_MODEL: Final = words(
    "pci-bridge", "i82801b11-bridge", "pcie-pci-bridge", "ioh3420", "pcie-root-port", "x3130-upstream", "xio3130-downstream"
)
_PCI_TARGET: Final = Element(dict.fromkeys(("chassisNr", "chassis", "port", "busNr", "index"), address))
_PORTS: Final = {"ports": number(1, 31)}
_CONTROLLERS: Final[Mapping[str, Element]] = {
    "pci": Element(
        {
            "model": words(
                "pci-root",
                "pcie-root",
                "pci-bridge",
                "pcie-root-port",
                "pcie-to-pci-bridge",
                "dmi-to-pci-bridge",
                "pcie-switch-upstream-port",
                "pcie-switch-downstream-port",
            )
        },
        {"model": Element({"name": _PCI_MODEL}, required=frozenset({"name"})), "target": _PCI_TARGET},
        required=frozenset({"model"}),
    ),
    "usb": Element(
        {
            "model": words("none", "qemu-xhci", "nec-xhci", "piix3-uhci", "ich9-ehci1", "ich9-uhci1", "ich9-uhci2", "ich9-uhci3"),
            **_PORTS,
        },
        {"master": Element({"startport": number(0, 15)}, required=frozenset({"startport"}))},
    ),
    "scsi": Element({"model": words("virtio-scsi", "lsilogic")}, {"driver": _DRIVER}),
    "virtio-serial": Element({"model": words("virtio"), **_PORTS, "vectors": number(0, 64)}),
    "sata": Element(),
    "ide": Element({"model": words("piix3")}),
}


def _controller(kind: str, special: Element) -> Element:
    attributes = {"type": words(kind), "index": number(0, 255), **special.attributes}
    return Element(attributes, {**special.children, **PLACE}, required=special.required)


_CONTROLLER: Final = Choice("type", {kind: _controller(kind, each) for kind, each in _CONTROLLERS.items()}, most=64)
_INPUT: Final = Element(
    {"type": words("tablet", "mouse", "keyboard"), "bus": words("usb", "ps2", "virtio")},
    PLACE,
    required=frozenset({"type"}),
    most=8,
)
_RNG: Final = Element(
    {"model": words("virtio")},
    {
        "backend": Choice(
            "model",
            {
                "random": Element({"model": words("random")}, text=words("/dev/urandom", "/dev/random")),
                "builtin": Element({"model": words("builtin")}),
            },
        ),
        "rate": Element({"bytes": number(1, 1 << 30), "period": number(1, 1 << 30)}, required=frozenset({"bytes"})),
        **PLACE,
    },
    required=frozenset({"model"}),
    required_children=frozenset({"backend"}),
    most=2,
)
_BALLOON: Final = Element(
    {"model": words("virtio", "none"), "autodeflate": ON_OFF, "freePageReporting": ON_OFF},
    {"stats": Element({"period": number(1, 3600)}, required=frozenset({"period"})), **PLACE},
    required=frozenset({"model"}),
)
_SOUND: Final = Element(
    {"model": words("ich6", "ich9", "ac97")},
    {"codec": Element({"type": words("duplex", "micro", "output")}, required=frozenset({"type"})), **PLACE},
    required=frozenset({"model"}),
    most=2,
)
_AUDIO: Final = Element({"id": number(1, 1), "type": words("none")}, required=frozenset({"id", "type"}))
"""libvirt's dumps contain one per VNC display."""
_WATCHDOG: Final = Element(
    {"model": words("i6300esb", "ib700"), "action": words("reset", "poweroff", "none")}, PLACE, required=frozenset({"model"})
)
_PANIC: Final = Element({"model": words("isa", "hyperv", "pvpanic")}, PLACE, most=3)
_TPM: Final = Element(
    {"model": words("tpm-crb", "tpm-tis")},
    {
        "backend": Choice(
            "type",
            {
                "emulator": Element(
                    {"type": words("emulator"), "version": words("2.0"), "persistent_state": YES_NO}, required=frozenset({"version"})
                )
            },
        ),
        "alias": ALIAS,
    },
    required=frozenset({"model"}),
    required_children=frozenset({"backend"}),
)
_CHILDREN: Final[Mapping[str, Allowed]] = {
    "emulator": Element(text=words(layout.EMULATOR)),
    "disk": disks.DISK_ELEMENT,
    "interface": interfaces.INTERFACE,
    "controller": _CONTROLLER,
    "serial": chardevs.SERIAL_PORT,
    "console": chardevs.CONSOLE,
    "channel": chardevs.CHANNEL_ELEMENT,
    "input": _INPUT,
    "graphics": displays.GRAPHICS,
    "video": displays.VIDEO,
    "sound": _SOUND,
    "audio": _AUDIO,
    "rng": _RNG,
    "memballoon": _BALLOON,
    "watchdog": _WATCHDOG,
    "panic": _PANIC,
    "tpm": _TPM,
}
DEVICES: Final = Element(children=_CHILDREN)
