"""Disks with a service account token: files, and who may use them."""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.hardware import cloud_init, disks
from apiserver.apis.virt.hardware.given import Domain

NAMESPACE_LABEL: Final = "kubevirt.io/service-account-disks"
"""Policies of the chart allow such disks only where this label is ``allowed``."""
EXPIRATION_SECONDS: Final = 365 * 24 * 3600
"""The disk is not updated while the guest runs, and the token ends with the pod anyway."""
LEAST_EXPIRATION: Final = 600
LARGEST_EXPIRATION: Final = 1 << 32
"""Kubernetes' limits."""
TOKEN: Final = "token"  # noqa: S105 - a file's name
AUTHORITY: Final = "ca.crt"
NAMESPACE: Final = "namespace"
"""File names as in containers."""
AUTHORITY_CONFIG_MAP: Final = "kube-root-ca.crt"
"""In each namespace: the authorities for kube-apiserver."""


def of(domain: Domain) -> str:
    """Return the name of the service account of a machine's pod; empty: the namespace's default."""
    found = (each for each in disks.defaulted(domain) if each.get("type") == cloud_init.SERVICE_ACCOUNT)
    return next((str((each.get("source") or {}).get("name") or "") for each in found), "")
