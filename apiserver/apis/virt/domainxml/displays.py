"""``<graphics>`` and ``<video>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.virt.domainxml.grammar import Choice, Element
from apiserver.apis.virt.domainxml.places import PLACE
from apiserver.apis.virt.domainxml.values import ON_OFF, SPICE, VNC, YES_NO, Rule, matching, number, words

MOST_VIDEO_KIB: Final = 256 << 10


def _listen(socket: str) -> Element:
    attributes = {"type": words("socket"), "socket": words(socket)}
    return Element(attributes, required=frozenset(attributes))


def _with(attribute: str, rule: Rule) -> Element:
    return Element({attribute: rule}, required=frozenset({attribute}))


_KEYMAP: Final = matching(r"[a-z]{2}(-[a-z]{2})?", "must be a keymap such as en-us")
GRAPHICS: Final = Choice(
    "type",
    {
        "vnc": Element(
            {
                "type": words("vnc"),
                "keymap": _KEYMAP,
                "sharePolicy": words("allow-exclusive", "force-shared", "ignore"),
                "socket": words(VNC),
            },
            {"listen": _listen(VNC)},
            required_children=frozenset({"listen"}),
        ),
        "spice": Element(
            {"type": words("spice"), "keymap": _KEYMAP},
            {
                "listen": _listen(SPICE),
                "image": _with("compression", words("auto_glz", "auto_lz", "quic", "glz", "lz", "off")),
                "jpeg": _with("compression", words("auto", "never", "always")),
                "zlib": _with("compression", words("auto", "never", "always")),
                "playback": _with("compression", ON_OFF),
                "streaming": _with("mode", words("filter", "all", "off")),
                "clipboard": _with("copypaste", YES_NO),
                "filetransfer": _with("enable", YES_NO),
                "mouse": _with("mode", words("server", "client")),
            },
            required_children=frozenset({"listen"}),
        ),
    },
    most=2,
)
_MEMORY: Final = number(1024, MOST_VIDEO_KIB)
_MODELS: Final[Mapping[str, Mapping[str, Rule]]] = {
    **{kind: {"vram": _MEMORY} for kind in ("vga", "bochs", "cirrus", "virtio")},
    "qxl": dict.fromkeys(("vram", "ram", "vgamem"), _MEMORY),
    "none": {},
}
VIDEO: Final = Element(
    children={
        "model": Choice(
            "type",
            {
                kind: Element({"type": words(kind), "heads": number(1, 4 if kind in ("virtio", "qxl") else 1), "primary": YES_NO, **memory})
                for kind, memory in _MODELS.items()
            },
        ),
        **PLACE,
    },
    required_children=frozenset({"model"}),
    most=4,
)
