"""The sound card: ``devices.sound``."""

from __future__ import annotations

from typing import Final, Literal, get_args

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain

Model = Literal["ich9", "ac97"]
MODELS: Final = get_args(Model)


def defaulted(domain: Domain) -> Object | None:
    """Return ``devices.sound`` with ``model``, or None."""
    said = given.device(domain, "sound")
    return None if said is None else {"model": "ich9", **said}
