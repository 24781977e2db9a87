"""Disks with the token of a service account: what is on them, and who may have them. Pure."""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.hardware import cloud_init, disks
from apiserver.apis.virt.hardware.given import Domain

NAMESPACE_LABEL: Final = "kubevirt.io/service-account-disks"
"""A namespace with this label of the value ``allowed`` lets machines have such disks: by the policies of the chart, not by this code."""
EXPIRATION_SECONDS: Final = 365 * 24 * 3600
"""Default of ``source.expirationSeconds``: the disk is never made anew while the guest runs, and the token ends with the pod anyway."""
LEAST_EXPIRATION: Final = 600
LARGEST_EXPIRATION: Final = 1 << 32
"""Kubernetes' bounds."""
TOKEN: Final = "token"  # noqa: S105 - a file's name
AUTHORITY: Final = "ca.crt"
NAMESPACE: Final = "namespace"
"""Names of the files: those that containers know."""
AUTHORITY_CONFIG_MAP: Final = "kube-root-ca.crt"
"""Of every namespace: whom to believe for kube-apiserver."""


def of(domain: Domain) -> str:
    """Return the service account that the pod of a machine has, or an empty string: the namespace's default one."""
    found = (each for each in disks.defaulted(domain) if each.get("type") == cloud_init.SERVICE_ACCOUNT)
    return next((str((each.get("source") or {}).get("name") or "") for each in found), "")
