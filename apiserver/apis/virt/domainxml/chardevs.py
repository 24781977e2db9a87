"""Serial ports, consoles and channels: only sockets of the pod."""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.domainxml.grammar import Choice, Element
from apiserver.apis.virt.domainxml.places import PLACE
from apiserver.apis.virt.domainxml.values import AGENT, SERIAL, number, words
from apiserver.apis.virt.places import layout

SPICE_CHANNEL: Final = "com.redhat.spice.0"


def _socket(path: str) -> Element:
    attributes = {"mode": words("bind"), "path": words(path)}
    return Element(attributes, required=frozenset(attributes))


_PORT: Final = Element(
    {"type": words("isa-serial", "pci-serial"), "port": number(0, 3)},
    {"model": Element({"name": words("isa-serial", "pci-serial")}, required=frozenset({"name"}))},
)
_IN_THE_POD: Final = {"target": _PORT, **PLACE}
SERIAL_PORT: Final = Choice(
    "type",
    {
        "unix": Element({"type": words("unix")}, {"source": _socket(SERIAL), **_IN_THE_POD}, required_children=frozenset({"source"})),
        "pty": Element({"type": words("pty")}, _IN_THE_POD),
        "null": Element({"type": words("null")}, _IN_THE_POD),
    },
    most=4,
)
CONSOLE: Final = Choice(
    "type",
    {
        "pty": Element(
            {"type": words("pty")},
            {"target": Element({"type": words("serial", "virtio"), "port": number(0, 15)}), **PLACE},
        ),
        "unix": Element(
            {"type": words("unix")},
            {
                "source": _socket(SERIAL),
                "target": Element({"type": words("serial"), "port": number(0, 0)}, required=frozenset({"type"})),
                **PLACE,
            },
            required_children=frozenset({"source", "target"}),
        ),
    },
    most=4,
)


def _on_virtio(name: str) -> Element:
    attributes = {"type": words("virtio"), "name": words(name)}
    return Element(attributes, required=frozenset(attributes))


CHANNEL_ELEMENT: Final = Choice(
    "type",
    {
        "unix": Element(
            {"type": words("unix")},
            {"source": _socket(AGENT), "target": _on_virtio(layout.AGENT_CHANNEL), **PLACE},
            required_children=frozenset({"source", "target"}),
        ),
        "spicevmc": Element(
            {"type": words("spicevmc")}, {"target": _on_virtio(SPICE_CHANNEL), **PLACE}, required_children=frozenset({"target"})
        ),
    },
    most=2,
)
