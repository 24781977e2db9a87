"""Devices of the node: ``devices.hostDevices``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path, duplicate
from apiserver.apis.virt.hardware import gpus
from apiserver.apis.virt.hardware import host_devices as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import MAX_HOST_DEVICES, Object, validate_count, validate_host_device, validate_unique


class HostDevice(Model):
    """A PCI or mediated device of the node, for the guest."""

    name: str = Field(description="Its name, unique among the machine's devices of the node.")
    device_name: str = Field(
        description="The resource of a device plugin, such as intel.com/qat. The machine runs on a node with a free one. The plugin names "
        "the device in the variable PCI_RESOURCE_INTEL_COM_QAT of the container, or MDEV_PCI_RESOURCE_INTEL_COM_QAT."
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``devices.hostDevices``, below ``path``."""
    devices, path = hardware.defaulted(domain), path.child("devices", "hostDevices")
    found = validate_count(devices, MAX_HOST_DEVICES, path) + validate_unique(devices, "name", path)
    taken = {each.get("name") for each in gpus.defaulted(domain)}
    for position, each in enumerate(devices):
        found += validate_host_device(each, path.index(position))
        if each.get("name") in taken:
            found.append(duplicate(path.index(position).child("name"), each.get("name")))
    return found
