"""The emulated machine: ``machine``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.hardware.given import Domain

TYPE: Final = "q35"
QEMU: Final = "10.0"
"""In virt-launcher's image, for its machine types."""
_RELEASES: Final = (
    *(f"2.{minor}" for minor in range(4, 13)),
    *("3.0", "3.1"),
    *(f"{major}.{minor}" for major in range(4, 10) for minor in range(3)),
    QEMU,
)
TYPES: Final = frozenset({"q35", "pc", "pc-q35-4.0.1", *(f"pc-{chipset}-{each}" for chipset in ("q35", "i440fx") for each in _RELEASES)})
"""Those with a PCI bus (``qemu-system-x86_64 -machine help``)."""
TYPES_IN_WORDS: Final = (
    f"q35, pc, and their versions pc-q35-{_RELEASES[0]} to pc-q35-{QEMU} and pc-i440fx-{_RELEASES[0]} to pc-i440fx-{QEMU}"
)


def type_of(domain: Domain) -> str:
    """Return the machine type, by default ``q35``."""
    return str((domain.get("machine") or {}).get("type") or TYPE)
