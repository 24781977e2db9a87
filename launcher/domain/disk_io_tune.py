"""I/O limits of a disk: ``<iotune>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import disk_io_tune as hardware
from launcher.domain.values import InvalidSpecification, snake


def append(element: Element, disk: Mapping[str, Any]) -> None:
    """Append the limits to a ``<disk>``, if it has any."""
    try:
        limits = hardware.limits(disk)
    except ValueError as error:
        raise InvalidSpecification(f"devices.disks[{disk['name']}].ioTune: {error}") from error
    if limits:
        tune = SubElement(element, "iotune")
        for name, value in limits.items():
            SubElement(tune, snake(name)).text = str(value)
