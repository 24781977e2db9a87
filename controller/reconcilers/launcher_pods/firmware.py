"""Firmware, and a kernel to start from: ``firmware``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt import layout
from controller.reconcilers.launcher_pods.needs import Claims, Needs, image_source

_KERNEL_BOOT: Final = "kernel-boot"


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the image with the kernel."""
    del claims
    boot = dig(domain, "firmware", "kernelBoot", "container")
    if not boot:
        return Needs()
    return Needs(
        volumes=({"name": _KERNEL_BOOT, "image": image_source(boot, "image", "imagePullPolicy")},),
        mounts=({"name": _KERNEL_BOOT, "mountPath": layout.KERNEL_BOOT_DIRECTORY, "readOnly": True},),
    )
