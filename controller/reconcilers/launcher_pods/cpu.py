"""Virtual processors: ``cpu``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import cpu
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

VCPU_BYTES: Final = 8 * MIB
"""A thread's stack and libvirt's and QEMU's books about it."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return what the processors need."""
    del claims
    vcpus = cpu.vcpus(domain)
    return Needs(vcpus=vcpus, overhead_bytes=VCPU_BYTES * vcpus)
