"""``<devices>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.virt.domainxml import chardevs, disks, displays, interfaces
from apiserver.apis.virt.domainxml.grammar import Allowed, Choice, Element
from apiserver.apis.virt.domainxml.places import PLACE
from apiserver.apis.virt.domainxml.values import ON_OFF, address, number, words

EMULATOR: Final = "/usr/bin/qemu-system-x86_64"

_MODELS: Final[Mapping[str, tuple[str, ...]]] = {
    "pci": (
        "pci-root",
        "pcie-root",
        "pci-bridge",
        "pcie-root-port",
        "pcie-to-pci-bridge",
        "dmi-to-pci-bridge",
        "pcie-switch-upstream-port",
        "pcie-switch-downstream-port",
    ),
    "usb": (
        "none",
        "qemu-xhci",
        "nec-xhci",
        "piix3-uhci",
        "ich9-ehci1",
        "ich9-uhci1",
        "ich9-uhci2",
        "ich9-uhci3",
    ),
    "scsi": ("virtio-scsi", "lsilogic"),
    "virtio-serial": ("virtio",),
    "sata": (),
    "ide": ("piix3",),
}


def _controller(kind: str, models: tuple[str, ...]) -> Element:
    ports = {"ports": number(1, 31)} if kind in ("usb", "virtio-serial") else {}
    return Element(
        {"type": words(kind), "index": number(0, 255), **({"model": words(*models)} if models else {}), **ports, "vectors": number(0, 64)},
        {
            "model": Element({"name": words(*(each for each in (*models, "ioh3420", "i82801b11-bridge")))}),
            "target": Element(dict.fromkeys(("chassisNr", "chassis", "port", "busNr", "index"), address)),
            "master": Element({"startport": number(0, 15)}),
            "driver": Element({"queues": number(1, 64), "cmd_per_lun": number(1, 1024), "max_sectors": number(1, 65535)}),
            **PLACE,
        },
    )


_CONTROLLER: Final = Choice("type", {kind: _controller(kind, models) for kind, models in _MODELS.items()}, most=64)
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
    required=frozenset({"model", "backend"}),
    most=2,
)
_BALLOON: Final = Element(
    {"model": words("virtio", "none"), "autodeflate": ON_OFF, "freePageReporting": ON_OFF},
    {"stats": Element({"period": number(0, 3600)}), **PLACE},
    required=frozenset({"model"}),
)
_SOUND: Final = Element(
    {"model": words("ich6", "ich9", "ac97")},
    {"codec": Element({"type": words("duplex", "micro", "output")}), **PLACE},
    required=frozenset({"model"}),
    most=2,
)
_WATCHDOG: Final = Element(
    {"model": words("i6300esb", "ib700"), "action": words("reset", "poweroff", "none")}, PLACE, required=frozenset({"model"})
)
_PANIC: Final = Element({"model": words("isa", "hyperv")}, PLACE, most=2)

_CHILDREN: Final[Mapping[str, Allowed]] = {
    "emulator": Element(text=words(EMULATOR)),
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
    "rng": _RNG,
    "memballoon": _BALLOON,
    "watchdog": _WATCHDOG,
    "panic": _PANIC,
}
DEVICES: Final = Element(children=_CHILDREN)
