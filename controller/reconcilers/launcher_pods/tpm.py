"""Trusted Platform Module: ``devices.tpm``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import tpm
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

SWTPM_BYTES: Final = 16 * MIB
"""swtpm: 6 MiB measured."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the memory of swtpm. ``firmware`` has the claim with its state."""
    del claims
    return Needs() if tpm.defaulted(domain) is None else Needs(overhead_bytes=SWTPM_BYTES)
