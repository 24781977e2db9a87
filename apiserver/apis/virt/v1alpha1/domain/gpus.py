"""Models and rules of ``devices.gpus``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.hardware import gpus as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import MAX_HOST_DEVICES, Object, validate_count, validate_host_device, validate_unique


class GPU(Model):
    """A graphics processor of the node, or a part of one, for the guest."""

    name: str = Field(description="Its name, unique among the machine's devices of the node.")
    device_name: str = Field(
        description="The resource of a device plugin, such as nvidia.com/GA102GL_A10. The machine runs on a node with a free one."
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``devices.gpus``, below ``path``."""
    devices, path = hardware.defaulted(domain), path.child("devices", "gpus")
    found = validate_count(devices, MAX_HOST_DEVICES, path) + validate_unique(devices, "name", path)
    return found + [error for position, each in enumerate(devices) for error in validate_host_device(each, path.index(position))]
