"""Trusted Platform Module: ``devices.tpm``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import tpm
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements

SWTPM_BYTES: Final = 16 * MIB
"""swtpm: 6 MiB measured."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the memory of swtpm if the domain has a TPM. ``firmware.requirements`` returns the claim with its state."""
    del claims
    return Requirements() if tpm.defaulted(domain) is None else Requirements(overhead_bytes=SWTPM_BYTES)
