"""Firmware, and a kernel to boot: ``firmware``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.hardware import firmware
from apiserver.apis.virt.places import layout
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements, image_source

EFI_BYTES: Final = 16 * MIB
_KERNEL_BOOT: Final = "kernel-boot"


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the memory of UEFI, the claim with UEFI's and the TPM's state, and the kernel's image."""
    del claims
    return _efi(domain) + _state(domain) + _kernel(domain)


def _efi(domain: Object) -> Requirements:
    return Requirements() if firmware.efi(domain) is None else Requirements(overhead_bytes=EFI_BYTES)


def _state(domain: Object) -> Requirements:
    claim = firmware.state_claim(domain)
    if not claim:
        return Requirements()
    return Requirements(
        volumes=({"name": layout.STATE_VOLUME, "persistentVolumeClaim": {"claimName": claim}},),
        mounts=({"name": layout.STATE_VOLUME, "mountPath": layout.STATE_DIRECTORY},),
        owns_files=True,
    )


def _kernel(domain: Object) -> Requirements:
    boot = dig(domain, "firmware", "kernelBoot", "container")
    if not boot:
        return Requirements()
    return Requirements(
        volumes=({"name": _KERNEL_BOOT, "image": image_source(boot, "image", "imagePullPolicy")},),
        mounts=({"name": _KERNEL_BOOT, "mountPath": layout.KERNEL_BOOT_DIRECTORY, "readOnly": True},),
    )
