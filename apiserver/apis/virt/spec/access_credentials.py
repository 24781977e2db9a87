"""``spec.accessCredentials`` as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.hardware import cloud_init

NO_CLOUD: Final = "noCloud"
CONFIG_DRIVE: Final = "configDrive"
GUEST_AGENT: Final = "qemuGuestAgent"
METHODS: Final = (NO_CLOUD, CONFIG_DRIVE, GUEST_AGENT)
DISKS: Final[Mapping[str, str]] = {NO_CLOUD: cloud_init.NO_CLOUD, CONFIG_DRIVE: cloud_init.CONFIG_DRIVE}
"""Type of the disk with the keys, by method."""


@dataclass(frozen=True, slots=True)
class Credential:
    """One element of ``spec.accessCredentials``."""

    secret: str
    method: str
    users: tuple[str, ...]


def of(spec: Mapping[str, Any]) -> tuple[Credential, ...]:
    """Return ``accessCredentials`` in order, without those that lack a method, which virt-api refuses."""
    found = (_credential(each) for each in spec.get("accessCredentials") or ())
    return tuple(each for each in found if each is not None)


def _credential(element: Mapping[str, Any]) -> Credential | None:
    way = dig(element, "sshPublicKey", "propagationMethod") or {}
    method = next((each for each in METHODS if way.get(each) is not None), "")
    if not method:
        return None
    users = tuple(str(each) for each in dig(way, GUEST_AGENT, "users") or ()) if method == GUEST_AGENT else ()
    return Credential(str(dig(element, "sshPublicKey", "source", "secret", "secretName") or ""), method, users)
