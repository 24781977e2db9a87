"""Models and rules of ``devices.vsock``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.hardware import vsock as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object


class Vsock(Model):
    """AF_VSOCK sockets between the guest and its node. Every process of the node can reach the guest."""

    model: hardware.Model | None = Field(
        None,
        description="The device. Default virtio. status.vsock has its CID, the lowest free one on the node. It may change at each start "
        "and at each migration, which ends connections.",
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return no errors: :mod:`apiserver.apis.virt.v1alpha1.allowed` decides."""
    del domain, path
    return []
