"""Models and rules of ``devices.rng``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, forbidden
from apiserver.apis.virt.hardware import rng as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between


class RngRate(Model):
    """The maximum rate of the guest's reads: bytes in each period of milliseconds."""

    bytes: Int32 = Field(description="Bytes in each period.")
    period: Int32 | None = Field(None, description="The period in milliseconds. Default 1000.")


class Rng(Model):
    """The source of random numbers, from the node's kernel."""

    model: hardware.Model | None = Field(
        None, description="The device. Default virtio. none: no device; the guest must collect entropy itself."
    )
    rate: RngRate | None = Field(None, description="Limit of the guest's reads. Unset: unlimited.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``devices.rng``, below ``path``."""
    rng, path = hardware.defaulted(domain), path.child("devices", "rng", "rate")
    if "rate" not in rng:
        return []
    if rng["model"] == "none":
        return [forbidden(path, "may not be set without a device")]
    found = validate_between(rng["rate"]["period"], 1, hardware.MAX_PERIOD_MILLISECONDS, path.child("period"))
    if "bytes" in rng["rate"]:
        found += validate_between(rng["rate"]["bytes"], 1, hardware.MAX_BYTES, path.child("bytes"))
    return found
