"""Credentials for logins to the guest: ``spec.accessCredentials``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import access_credentials
from controller.reconcilers.launcher_pods.requirements import Requirements, projected


def requirements(spec: Mapping[str, Any]) -> Requirements:
    """Return the Secrets with public keys, each as a volume that the kubelet updates."""
    credentials = access_credentials.of(spec)
    return Requirements(
        volumes=tuple(projected(volume(position), {"secret": {"name": each.secret}}) for position, each in enumerate(credentials)),
        mounts=tuple(
            {"name": volume(position), "mountPath": f"{layout.ACCESS_CREDENTIALS_DIRECTORY}/{position}", "readOnly": True}
            for position in range(len(credentials))
        ),
    )


def volume(position: int) -> str:
    """Return the volume's name for the credential at this position."""
    return f"access-credential-{position}"
