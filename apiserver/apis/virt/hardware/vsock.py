"""Sockets between the guest and its node: ``devices.vsock``."""

from __future__ import annotations

from typing import Final, Literal, get_args

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain

Model = Literal["virtio"]
MODELS: Final = get_args(Model)
CIDS: Final = range(3, 2**32 - 1)
"""Lower ones are the hypervisor's and the host's, the next higher one is a wildcard (vsock(7))."""


def defaulted(domain: Domain) -> Object | None:
    """Return ``devices.vsock`` with ``model``, or None."""
    said = given.device(domain, "vsock")
    return None if said is None else {"model": "virtio", **said}
