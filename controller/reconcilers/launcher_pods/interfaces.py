"""Network interfaces: ``devices.interfaces``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import names
from apiserver.apis.virt.hardware import interfaces
from controller.reconcilers.launcher_pods.needs import Claims, Needs


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the device by which QEMU opens the taps that virt-handler made."""
    del claims
    return Needs(resources={names.TUN_RESOURCE: 1}) if interfaces.meant(domain) else Needs()
