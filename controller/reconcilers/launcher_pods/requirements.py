"""Requirements of a machine's pod: the sum over its families of fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.apis.meta.objects import Object

MIB: Final = 1 << 20

Claims = Mapping[str, Object | None]
"""PersistentVolumeClaims of the namespace by name; None if missing."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """What fields of a machine require of its pod; ``+`` joins them."""

    guest_bytes: int = 0
    overhead_bytes: int = 0
    """An upper bound, because killing QEMU loses the guest."""
    cpu_request_milli: int = 0
    storage_bytes: int = 0
    resources: Mapping[str, int] = field(default_factory=dict)
    volumes: tuple[Object, ...] = ()
    mounts: tuple[Object, ...] = ()
    devices: tuple[Object, ...] = ()
    owns_files: bool = False
    """``fsGroup`` must be virt-launcher's group."""
    cpu_limit_milli: int = 0
    """0: no limit."""
    unrequested_bytes: int = 0
    """Usable, but no node reserves it."""
    ports: tuple[Object, ...] = ()
    sidecars: tuple[Object, ...] = ()
    """Without image and security context."""

    def __add__(self, other: Requirements) -> Requirements:
        return Requirements(
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
            self.sidecars + other.sidecars,
        )


def in_mebibytes(amount: int) -> str:
    """Return bytes as a quantity of whole ``Mi``, rounded up."""
    return f"{math.ceil(amount / MIB)}Mi"


def in_processors(milli: int) -> str:
    """Return thousandths of a processor as a quantity."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def image_source(source: Mapping[str, Any], reference: str, policy: str) -> Object:
    """Return a volume's ``image``; ``reference`` and ``policy`` are the field names in ``source``."""
    image: Object = {"reference": source.get(reference) or ""}
    if source.get(policy):
        image["pullPolicy"] = source[policy]
    return image


def projected(name: str, *sources: Object) -> Object:
    """Return a volume with the files of ``sources``, such as Secrets; the kubelet updates them. The pod waits for those not optional."""
    return {"name": name, "projected": {"defaultMode": 0o444, "sources": list(sources)}}
