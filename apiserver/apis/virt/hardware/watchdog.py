"""The watchdog: ``devices.watchdog``."""

from __future__ import annotations

from typing import Final, Literal, get_args

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain

Model = Literal["i6300esb"]
MODELS: Final = get_args(Model)
Action = Literal["reset", "shutdown", "poweroff", "pause", "none"]
ACTIONS: Final = get_args(Action)


def defaulted(domain: Domain) -> Object | None:
    """Return ``devices.watchdog`` with ``model`` and ``action``, or None."""
    said = given.device(domain, "watchdog")
    return None if said is None else {"model": "i6300esb", "action": "reset", **said}
