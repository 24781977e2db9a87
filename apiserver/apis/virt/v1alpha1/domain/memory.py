"""The guest's memory: ``memory``."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from apiserver.apis.meta import quantity
from apiserver.apis.meta.schema import Model, Quantity
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid
from apiserver.apis.virt.hardware import memory as hardware
from apiserver.apis.virt.hardware import resources
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_bytes

MAX_ROOM: Final = quantity.parse("512Gi")
"""For maxGuest: QEMU reserves 1Gi more per slot, and an emulated CPU has 40-bit addresses."""


class Hugepages(Model):
    """Huge pages of the node for the guest's memory."""

    page_size: Literal["2Mi", "1Gi"] = Field(
        description="Size of a page. The machine runs on a node with enough free pages of this size, and uses them exclusively."
    )


class Memory(Model):
    """The guest's memory."""

    guest: Quantity | None = Field(
        None,
        description="Memory of the guest, at least 16Mi. A running guest gets more, up to the maxGuest of its start, and returns it. "
        "Default 512Mi.",
    )
    max_guest: Quantity | None = Field(
        None,
        description="Maximum memory, including guest. To start with such room, Linux needs 64Mi more. Default: as much as guest.",
    )
    hugepages: Hugepages | None = Field(None, description="Huge pages for the guest's memory. Default: ordinary pages.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``memory``, below ``path``, of a domain with defaults."""
    given, shares, path = domain["memory"], path.child("resources"), path.child("memory")
    found = validate_bytes(given["guest"], hardware.MIN, hardware.MAX, path.child("guest"))
    if given.get("maxGuest") is not None:
        found += validate_bytes(given["maxGuest"], quantity.parse(str(given["guest"])), MAX_ROOM, path.child("maxGuest"))
    return found or _validate_hugepages(domain, path, shares)


def _validate_hugepages(domain: Object, path: Path, shares: Path) -> list[FieldError]:
    if not (size := hardware.page_size(domain)):
        return []
    each = quantity.parse(size).bytes
    found = [
        invalid(path.child(name), str(domain["memory"][name]), f"must be a multiple of hugepages.pageSize, {size}")
        for name, amount in (("guest", hardware.guest_bytes(domain)), ("maxGuest", hardware.max_guest_bytes(domain)))
        if domain["memory"].get(name) is not None and amount % each
    ]
    return found + [
        forbidden(shares.child(which, "memory"), "may not be set with memory.hugepages, which are always requested in full")
        for which in ("requests", "limits")
        if resources.said(domain, which, "memory") is not None
    ]
