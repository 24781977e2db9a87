"""The sound card: ``devices.sound``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain


def meant(domain: Domain) -> Object | None:
    """Return ``devices.sound`` with ``model``; None where nothing is said."""
    said = given.device(domain, "sound")
    return None if said is None else {"model": "ich9", **said}
