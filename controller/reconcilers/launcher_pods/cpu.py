"""Virtual processors: ``cpu``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import cpu, resources
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

VCPU_BYTES: Final = 8 * MIB
"""A thread's stack and libvirt's and QEMU's books about it."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return what the processors need."""
    del claims
    return Needs(
        overhead_bytes=VCPU_BYTES * cpu.vcpus(domain),
        cpu_request_milli=resources.cpu_request(domain),
        cpu_limit_milli=resources.cpu_limit(domain),
    )
