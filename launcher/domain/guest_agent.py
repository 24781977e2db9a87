"""The guest agent's ``<channel>``."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.places import layout
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import socket

SOCKET: Final = "agent.sock"
"""QEMU's end of the channel, below ``layout.RUN_DIRECTORY``."""


def append(tree: Tree, definition: Definition) -> None:
    """Append the guest agent's channel."""
    del definition
    SubElement(tree.devices, "controller", type="virtio-serial", index="0")
    channel = SubElement(tree.devices, "channel", type="unix")
    SubElement(channel, "source", mode="bind", path=socket(SOCKET))
    SubElement(channel, "target", type="virtio", name=layout.AGENT_CHANNEL)
