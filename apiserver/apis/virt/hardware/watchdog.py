"""The watchdog: ``devices.watchdog``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain


def meant(domain: Domain) -> Object | None:
    """Return ``devices.watchdog`` with ``model`` and ``action``; None where nothing is said."""
    said = given.device(domain, "watchdog")
    return None if said is None else {"model": "i6300esb", "action": "reset", **said}
