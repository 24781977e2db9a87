"""Needs of a machine that its pod meets: the sum of the needs of its families of fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.apis.meta.objects import Object

MIB: Final = 1 << 20

Claims = Mapping[str, Object | None]
"""PersistentVolumeClaims of the namespace by name; None: there is none."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of one family of fields, or of several together."""

    guest_bytes: int = 0
    """The guest's own memory."""
    overhead_bytes: int = 0
    """Memory beyond the guest's: an upper bound of what is used, since QEMU killed is a guest lost."""
    cpu_request_milli: int = 0
    """Thousandths of a processor."""
    storage_bytes: int = 0
    """Of the node's disk."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Extended resources by name."""
    volumes: tuple[Object, ...] = ()
    mounts: tuple[Object, ...] = ()
    devices: tuple[Object, ...] = ()
    """``volumeDevices``."""
    owns_files: bool = False
    """A volume's files belong to whom the kubelet gives them: virt-launcher's group has to be asked for (``fsGroup``)."""
    cpu_limit_milli: int = 0
    """Thousandths of a processor; 0: no limit."""
    unrequested_bytes: int = 0
    """Of the guest's memory: it may be used, and no node keeps it free."""
    ports: tuple[Object, ...] = ()
    """Of the container."""

    def __add__(self, other: Needs) -> Needs:
        """Return what both need together."""
        return Needs(
            self.guest_bytes + other.guest_bytes,
            self.overhead_bytes + other.overhead_bytes,
            self.cpu_request_milli + other.cpu_request_milli,
            self.storage_bytes + other.storage_bytes,
            {each: self.resources.get(each, 0) + other.resources.get(each, 0) for each in (*self.resources, *other.resources)},
            self.volumes + other.volumes,
            self.mounts + other.mounts,
            self.devices + other.devices,
            self.owns_files or other.owns_files,
            self.cpu_limit_milli + other.cpu_limit_milli,
            self.unrequested_bytes + other.unrequested_bytes,
            self.ports + other.ports,
        )


def in_mebibytes(amount: int) -> str:
    """Return bytes as a quantity, rounded up."""
    return f"{math.ceil(amount / MIB)}Mi"


def in_processors(milli: int) -> str:
    """Return thousandths of a processor as a quantity."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def image_source(source: Mapping[str, Any], reference: str, policy: str) -> Object:
    """Return the ``image`` of a volume; ``reference`` and ``policy`` are the names of the fields that have them in ``source``."""
    image: Object = {"reference": source.get(reference) or ""}
    if source.get(policy):
        image["pullPolicy"] = source[policy]
    return image


def projected(name: str, *sources: Object) -> Object:
    """Return a volume with the keys of Secrets and ConfigMaps as files: the pod starts when they are there, the kubelet follows changes."""
    return {"name": name, "projected": {"defaultMode": 0o444, "sources": list(sources)}}
