"""All that determines the XML of a domain, and the elements that its families append to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element

from launcher.domain.disk_origins import Found


@dataclass(frozen=True, slots=True)
class Tap:
    """A network interface: the guest's address, and the tap device that was made for it."""

    mac: str
    tap: str
    """Empty: it needs none, since passt carries it."""
    model: str = "virtio"
    name: str = ""
    """In ``devices.interfaces``."""


@dataclass(frozen=True, slots=True)
class Definition:
    """All that determines the XML."""

    namespace: str
    name: str
    uid: str
    specification: Mapping[str, Any]
    """``spec.domain``."""
    accelerator: str
    taps: Sequence[Tap] = ()
    found: Mapping[str, Found] = field(default_factory=dict)
    """By name of the disk."""
    processors: Sequence[int] = ()
    """The node's processors that the pod may use, neighbours beside each other; only looked for where they are to be its own."""
    nodes: Mapping[int, int] = field(default_factory=dict)
    """The NUMA node of each of these processors, as far as it is known."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables in which device plugins name the devices of the pod."""
    pci_panic: bool = True
    """libvirt knows QEMU's PCI panic device."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The elements of a domain that more than one family appends to."""

    domain: Element
    features: Element
    devices: Element
