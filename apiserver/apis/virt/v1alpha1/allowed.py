"""Fields that machines may have where the administrator of the cluster allows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.validation import FieldError, Path, forbidden
from apiserver.apis.virt.hardware import vsock
from apiserver.apis.virt.v1alpha1.domain.rules import Object


@dataclass(frozen=True, slots=True)
class Allowed:
    """The administrator's decisions, by flags of virt-api."""

    vsock: bool = False
    """``devices.vsock``: the kernel lets every process of a node reach every guest there, whatever their namespaces."""


NOTHING: Final = Allowed()


def validate(spec: Object, path: Path, allowed: Allowed) -> list[FieldError]:
    """Return the fields of a machine's spec that are not allowed in this cluster."""
    if allowed.vsock or vsock.defaulted(spec.get("domain") or {}) is None:
        return []
    text = "is not allowed in this cluster: its administrator can allow it (--allow-vsock of virt-api, vsock.enabled of the chart)"
    return [forbidden(path.child("domain", "devices", "vsock"), text)]
