"""Shares of the node: ``resources``."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from apiserver.apis.meta import quantity
from apiserver.apis.meta.schema import Model, Quantity
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid
from apiserver.apis.virt.hardware import cpu, memory
from apiserver.apis.virt.hardware import resources as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_amount, validate_bytes

MIN_CPU: Final = quantity.parse("1m")
MAX_CPU: Final = quantity.parse("1024")
MIN_MEMORY: Final = quantity.parse("1Mi")
MAX_MEMORY: Final = quantity.parse("16Ti")

_BOUNDS: Final = {"cpu": (validate_amount, MIN_CPU, MAX_CPU), "memory": (validate_bytes, MIN_MEMORY, MAX_MEMORY)}


class ResourceRequests(Model):
    """Resources of a node reserved for the machine."""

    cpu: Quantity | None = Field(None, description="Processors of the node. Default: 100m for each virtual processor.")
    memory: Quantity | None = Field(
        None,
        description="Memory of the node for the guest's memory; QEMU's own is added. A smaller value than the guest's memory is "
        "overcommit: the guest may still use all of it, and a node without free memory evicts such machines first. Default: the guest's "
        "memory.",
    )


class ResourceLimits(Model):
    """Maximum resources that the machine may use."""

    cpu: Quantity | None = Field(
        None, description="Processors of the node for the guest and QEMU's own threads together. Default: no limit."
    )
    memory: Quantity | None = Field(
        None,
        description="Memory of the node for the guest's memory; QEMU's own is added. Default: the guest's memory, or a larger request.",
    )


class Resources(Model):
    """Requests and limits of the machine's pod."""

    requests: ResourceRequests | None = Field(None, description="Reserved amounts; the machine runs on a node with that much unreserved.")
    limits: ResourceLimits | None = Field(None, description="Maximum amounts.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``resources``, below ``path``."""
    path = path.child("resources")
    found = [
        error
        for which in ("requests", "limits")
        for name, (judge, least, most) in _BOUNDS.items()
        if hardware.said(domain, which, name) is not None
        for error in judge(domain["resources"][which][name], least, most, path.child(which, name))
    ]
    return found or _validate_order(domain, path) + _validate_dedicated(domain, path)


def _validate_order(domain: Object, path: Path) -> list[FieldError]:
    found = []
    for name in _BOUNDS:
        asked, limit = (hardware.said(domain, which, name) for which in ("requests", "limits"))
        if asked is not None and limit is not None and asked > limit:
            found.append(invalid(path.child("requests", name), str(asked), f"must be less than or equal to {name} limit of {limit}"))
    limit = hardware.said(domain, "limits", "memory")
    if limit is not None and limit.bytes < memory.guest_bytes(domain):
        text = "must be greater than or equal to the guest's memory: the kernel would kill a guest that uses all of its memory"
        found.append(invalid(path.child("limits", "memory"), str(limit), text))
    return found


def _validate_dedicated(domain: Object, path: Path) -> list[FieldError]:
    if not cpu.is_dedicated(domain):
        return []
    text = "may not be set with cpu.dedicatedCpuPlacement: dedicated processors are requested by their number"
    found = [
        forbidden(path.child(which, "cpu"), text) for which in ("requests", "limits") if hardware.said(domain, which, "cpu") is not None
    ]
    if hardware.memory_request(domain) != hardware.memory_limit(domain):
        text = "must be equal to the limit with cpu.dedicatedCpuPlacement: the kubelet gives dedicated processors only to such pods"
        found.append(invalid(path.child("requests", "memory"), str(hardware.said(domain, "requests", "memory") or ""), text))
    return found
