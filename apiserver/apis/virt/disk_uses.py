"""What the disks of a machine do with their claims, and which machines may have one at once. Pure.

A claim that a guest writes to is its machine's alone: two guests that know nothing of each other destroy a file system. Guests that only
read share it, and so do machines that say ``shareable``, whose guests know of each other; but not the ones with the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from apiserver.apis.virt import disk_imports
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.hardware.given import Domain

Use = Literal["writes", "reads", "shares"]
WRITES: Final = "writes"


def uses(domain: Domain) -> dict[str, Use]:
    """Return what the machine does with each claim that a disk of it names, by the claim's name."""
    return {claim: _use(each) for each in disks.defaulted(domain) if (claim := disks.claim_of(each))}


def clash(mine: Use, theirs: Use) -> bool:
    """Return whether two machines that do this with a claim may not have it at once."""
    return mine != theirs or mine == WRITES


def _use(disk: Mapping[str, Any]) -> Use:
    if disk_imports.of(disk) is not None:
        return WRITES  # the pod does, whatever its guest does
    if disk.get("shareable"):
        return "shares"
    return "reads" if disk["readOnly"] or disks.is_overlaid(disk) else WRITES
