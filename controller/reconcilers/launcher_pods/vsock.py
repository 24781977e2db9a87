"""Sockets between the guest and its node: ``devices.vsock``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import vsock
from apiserver.apis.virt.places import names
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements

VSOCK_BYTES: Final = 1 * MIB
"""QEMU's part; the rest is in the node's kernel."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the node's vsock device for the guest, and QEMU's memory."""
    del claims
    if vsock.defaulted(domain) is None:
        return Requirements()
    return Requirements(overhead_bytes=VSOCK_BYTES, resources={names.VHOST_VSOCK_RESOURCE: 1})
