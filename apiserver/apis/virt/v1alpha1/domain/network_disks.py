"""Sources of disks that QEMU itself reaches over the network."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required
from apiserver.apis.virt.hardware import network_disks as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between

FIELDS: Final = {hardware.NBD: {"host", "port", "export"}}
"""Fields of a source by the disk's type."""


class NetworkSource(Model):
    """The fields of a disk's source that name a server. QEMU connects to it from the pod: what may be reached is what the pod may reach."""

    host: str | None = Field(None, description="NBD: name or address of the server.")
    port: Int32 | None = Field(None, description="NBD: its port. Default 10809.")
    export: str | None = Field(
        None, description="NBD: the name of what it exports: letters, digits and _.:/@+=~-. Default: what it exports under no name."
    )


def validate(disk: Object, path: Path) -> list[FieldError]:
    """Return what is wrong with a disk that QEMU reaches over the network; ``disk`` is of what ``hardware.disks.defaulted`` returns."""
    if not hardware.is_network(disk):
        return []
    found = _validate_nbd(disk["source"], path.child("source")) if "source" in disk else []
    if (disk.get("driver") or {}).get("io") is not None:
        found.append(forbidden(path.child("driver", "io"), f"may not be set for a disk of type {disk['type']}: it is of files and devices"))
    return found


def _validate_nbd(source: Object, path: Path) -> list[FieldError]:
    found = _validate_host(source.get("host") or "", path.child("host"))
    found += validate_between(source["port"], 1, 65535, path.child("port"))
    export = source.get("export")
    if export is not None and not hardware.is_export(export):
        found.append(invalid(path.child("export"), export, "must be 1 to 255 alphanumeric characters or '_.:/@+=~-'"))
    return found


def _validate_host(host: str, path: Path) -> list[FieldError]:
    if not host:
        return [required(path, "the name or the address of the server")]
    return (
        [] if hardware.is_host(host) else [invalid(path, host, "must be a DNS name, an IPv4 address, or an IPv6 address without brackets")]
    )
