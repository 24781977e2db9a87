"""The inputs of a domain's XML, and elements that several families append to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element

from launcher.domain.disk_origins import Found


@dataclass(frozen=True, slots=True)
class Tap:
    """A network interface: MAC address and tap device."""

    mac: str
    tap: str
    """Empty for an interface of passt."""
    model: str = "virtio"
    name: str = ""
    """As in ``devices.interfaces``."""


@dataclass(frozen=True, slots=True)
class Definition:
    """All inputs of a domain's XML."""

    namespace: str
    name: str
    uid: str
    specification: Mapping[str, Any]
    """``spec.domain``."""
    accelerator: str
    taps: Sequence[Tap] = ()
    found: Mapping[str, Found] = field(default_factory=dict)
    """By the disk's name."""
    processors: Sequence[int] = ()
    """Dedicated ones of the pod, siblings next to each other."""
    nodes: Mapping[int, int] = field(default_factory=dict)
    """NUMA nodes of these processors, if known."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Device plugins' variables with the pod's devices."""
    targets: Mapping[str, str] = field(default_factory=dict)
    """libvirt's names (``vda``) of existing disks, by the disks' names."""
    pci_panic: bool = True
    """libvirt supports QEMU's PCI panic device."""


@dataclass(frozen=True, slots=True)
class Tree:
    """XML elements to which several modules append."""

    domain: Element
    features: Element
    devices: Element
