"""Sources of disks that QEMU itself reaches over the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, duplicate, forbidden, invalid, required
from apiserver.apis.virt.hardware import network_disks as hardware
from apiserver.apis.virt.v1alpha1.domain.cloud_init import validate_object_name
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between

FIELDS: Final = {
    hardware.ISCSI: {"targetPortal", "iqn", "lun", "initiatorName", "secretRef"},
    hardware.NBD: {"host", "port", "export"},
}
"""Fields of a source by the disk's type."""


class SecretName(Model):
    """A Secret in the machine's namespace."""

    name: str = Field(description="The Secret's name.")


class NetworkSource(Model):
    """The fields of a disk's source that name a server. QEMU connects to it from the pod: what may be reached is what the pod may reach."""

    host: str | None = Field(None, description="NBD: name or address of the server.")
    port: Int32 | None = Field(None, description="NBD: its port. Default 10809.")
    export: str | None = Field(
        None, description="NBD: the name of what it exports: letters, digits and _.:/@+=~-. Default: what it exports under no name."
    )
    target_portal: str | None = Field(
        None,
        description="ISCSI: name or address of the target's portal, an IPv6 address in brackets, and its port after a colon unless 3260.",
    )
    iqn: str | None = Field(None, description="ISCSI: the target's name, of the form iqn., eui. or naa.")
    lun: Int32 | None = Field(None, description="ISCSI: number of the logical unit, at most 255. Default 0.")
    initiator_name: str | None = Field(
        None, description="ISCSI: the name by which the machine logs in. Default iqn.2008-11.org.linux-kvm: and the UUID of its firmware."
    )
    secret_ref: SecretName | None = Field(
        None,
        description="ISCSI: the Secret by which the machine logs in with CHAP, with the keys node.session.auth.username and "
        "node.session.auth.password, as of type kubernetes.io/iscsi-chap. Default: it logs in without.",
    )


def validate(disk: Object, path: Path) -> list[FieldError]:
    """Return what is wrong with a disk that QEMU reaches over the network; ``disk`` is of what ``hardware.disks.defaulted`` returns."""
    if not hardware.is_network(disk):
        return []
    found = _VALIDATED[disk["type"]](disk["source"], path.child("source"))
    if (disk.get("driver") or {}).get("io") is not None:
        found.append(forbidden(path.child("driver", "io"), f"may not be set for a disk of type {disk['type']}: it is of files and devices"))
    return found


def validate_unique(disks: Sequence[Object], path: Path) -> list[FieldError]:
    """Return the disks that are surely the same as another one of which, or to which, is written: a guest takes two disks for two."""
    first: dict[str, int] = {}
    found = []
    for position, disk in enumerate(disks):
        if not (same := hardware.identity(disk)):
            continue
        other = first.setdefault(same, position)
        if other != position and not (disk["readOnly"] and disks[other]["readOnly"]):
            found.append(duplicate(path.index(position).child("source"), same))
    return found


def _validate_nbd(source: Object, path: Path) -> list[FieldError]:
    found = _validate_host(source.get("host") or "", path.child("host"))
    found += validate_between(source["port"], 1, 65535, path.child("port"))
    export = source.get("export")
    if export is not None and not hardware.is_export(export):
        found.append(invalid(path.child("export"), export, "must be 1 to 255 alphanumeric characters or '_.:/@+=~-'"))
    return found


def _validate_iscsi(source: Object, path: Path) -> list[FieldError]:
    portal, found = source.get("targetPortal") or "", []
    if not portal:
        found.append(required(path.child("targetPortal"), "the portal of the target"))
    elif hardware.portal(portal) is None:
        text = "must be a DNS name, an IPv4 address, or an IPv6 address in brackets, and may be followed by a colon and a port"
        found.append(invalid(path.child("targetPortal"), portal, text))
    if not source.get("iqn"):
        found.append(required(path.child("iqn"), "the name of the target"))
    named = {"iqn": source.get("iqn") or None, "initiatorName": source.get("initiatorName")}
    text = "must be the name of an iSCSI node such as iqn.2026-01.example:name"
    found += [invalid(path.child(field), name, text) for field, name in named.items() if name is not None and not hardware.is_iqn(name)]
    if (secret := source.get("secretRef")) is not None:
        found += validate_object_name("Secret", secret.get("name") or "", path.child("secretRef", "name"))
    return found + validate_between(source["lun"], 0, hardware.MAX_LUN, path.child("lun"))


def _validate_host(host: str, path: Path) -> list[FieldError]:
    if not host:
        return [required(path, "the name or the address of the server")]
    return (
        [] if hardware.is_host(host) else [invalid(path, host, "must be a DNS name, an IPv4 address, or an IPv6 address without brackets")]
    )


_VALIDATED: Final[Mapping[str, Callable[[Object, Path], list[FieldError]]]] = {hardware.ISCSI: _validate_iscsi, hardware.NBD: _validate_nbd}
