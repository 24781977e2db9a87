"""``<graphics>`` and ``<video>``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.domainxml.grammar import Choice, Element
from apiserver.apis.virt.domainxml.places import PLACE
from apiserver.apis.virt.domainxml.values import ON_OFF, SPICE, VNC, YES_NO, matching, number, words

MOST_VIDEO_KIB: Final = 256 << 10


def _listen(socket: str) -> Element:
    attributes = {"type": words("socket"), "socket": words(socket)}
    return Element(attributes, required=frozenset(attributes))


_KEYMAP: Final = matching(r"[a-z]{2}(-[a-z]{2})?", "must be a keymap such as en-us")
GRAPHICS: Final = Choice(
    "type",
    {
        "vnc": Element(
            {"type": words("vnc"), "keymap": _KEYMAP, "sharePolicy": words("allow-exclusive", "force-shared", "ignore")},
            {"listen": _listen(VNC)},
            required=frozenset({"listen"}),
        ),
        "spice": Element(
            {"type": words("spice"), "keymap": _KEYMAP},
            {
                "listen": _listen(SPICE),
                "image": Element({"compression": words("auto_glz", "auto_lz", "quic", "glz", "lz", "off")}),
                "jpeg": Element({"compression": words("auto", "never", "always")}),
                "zlib": Element({"compression": words("auto", "never", "always")}),
                "playback": Element({"compression": ON_OFF}),
                "streaming": Element({"mode": words("filter", "all", "off")}),
                "clipboard": Element({"copypaste": YES_NO}),
                "filetransfer": Element({"enable": YES_NO}),
                "mouse": Element({"mode": words("server", "client")}),
            },
            required=frozenset({"listen"}),
        ),
    },
    most=2,
)
_MEMORY: Final = number(1024, MOST_VIDEO_KIB)
VIDEO: Final = Element(
    children={
        "model": Element(
            {
                "type": words("vga", "virtio", "bochs", "cirrus", "qxl", "none"),
                "vram": _MEMORY,
                "ram": _MEMORY,
                "vgamem": _MEMORY,
                "heads": number(1, 4),
                "primary": YES_NO,
            },
            required=frozenset({"type"}),
        ),
        **PLACE,
    },
    required=frozenset({"model"}),
    most=4,
)
