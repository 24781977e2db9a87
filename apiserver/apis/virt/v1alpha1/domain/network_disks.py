"""Sources of disks that QEMU itself accesses over the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import ATOMIC, Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, duplicate, forbidden, invalid, required
from apiserver.apis.virt.hardware import network_disks as hardware
from apiserver.apis.virt.v1alpha1.domain.cloud_init import validate_object_name
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between, validate_count

FIELDS: Final = {
    hardware.ISCSI: {"targetPortal", "iqn", "lun", "initiatorName", "secretRef"},
    hardware.NBD: {"host", "port", "export", "tlsSecretRef", "tlsHostname"},
    hardware.NFS: {"host", "path", "identity"},
    hardware.RBD: {"monitors", "pool", "image", "user", "secretRef"},
}


MAX_MONITORS: Final = 16


class SecretName(Model):
    """A Secret in the machine's namespace."""

    name: str = Field(description="The Secret's name.")


class Identity(Model):
    """The user for requests to an NFS server."""

    user: Int32 = Field(description="The uid, which the server trusts.")
    group: Int32 = Field(description="The gid.")


class NetworkSource(Model):
    """A disk's source on a server, which the pod must be able to reach."""

    host: str | None = Field(None, description="NBD, NFS: name or address of the server.")
    port: Int32 | None = Field(None, description="NBD: the server's port. Default 10809.")
    export: str | None = Field(
        None, description="NBD: the export's name: letters, digits and _.:/@+=~-. Default: the export with an empty name."
    )
    tls_secret_ref: SecretName | None = Field(
        None,
        description="NBD: the Secret for TLS with the server. Its key ca.crt has the authorities for the server's certificate; tls.crt "
        "and tls.key have a client certificate, if the server requires one. All disks of a machine name the same Secret. Default: no TLS.",
    )
    tls_hostname: str | None = Field(
        None, description="NBD: the name or address that the server's certificate must have, with tlsSecretRef. Default that of host."
    )
    monitors: list[str] | None = Field(
        None,
        description="RBD: at most 16 names or addresses of Ceph's monitors, each with its port after a colon unless 6789. An IPv6 "
        "address is in brackets.",
        json_schema_extra=ATOMIC,
    )
    pool: str | None = Field(None, description="RBD: the pool of the image. Default rbd.")
    image: str | None = Field(None, description="RBD: the image, which must exist.")
    user: str | None = Field(None, description="RBD: the Ceph user of the key in secretRef, without the prefix client. Default admin.")
    target_portal: str | None = Field(
        None,
        description="ISCSI: name or address of the target's portal, an IPv6 address in brackets, and its port after a colon unless 3260.",
    )
    iqn: str | None = Field(None, description="ISCSI: the target's name, of the form iqn., eui. or naa.")
    lun: Int32 | None = Field(None, description="ISCSI: number of the logical unit, at most 255. Default 0.")
    initiator_name: str | None = Field(
        None, description="ISCSI: the initiator name for the login. Default iqn.2008-11.org.linux-kvm: and the UUID of its firmware."
    )
    identity: Identity | None = Field(
        None, description="NFS: the user that reads and writes the file. Default that of the pod's processes, user and group 107."
    )
    secret_ref: SecretName | None = Field(
        None,
        description="ISCSI: the Secret for CHAP, as in type kubernetes.io/iscsi-chap. It has the keys node.session.auth.username and "
        "node.session.auth.password. RBD: the Secret with the user's key under the key `key`, as in type kubernetes.io/rbd. Default: no "
        "authentication.",
    )


def validate(disk: Object, path: Path) -> list[FieldError]:
    """Return errors in a network disk from ``hardware.disks.defaulted``; ignore others."""
    if not hardware.is_network(disk):
        return []
    found = VALIDATED[disk["type"]](disk["source"], path.child("source"))
    if hardware.copies_writes(disk) and disk["target"]["bus"] != "virtio":
        text = f"must be virtio for a disk of type {disk['type']} that the guest writes to"
        found.append(invalid(path.child("target", "bus"), disk["target"]["bus"], text))
    if (disk.get("driver") or {}).get("io") is not None:
        found.append(
            forbidden(path.child("driver", "io"), f"may not be set for a disk of type {disk['type']}: it applies only to files and devices")
        )
    return found


def validate_unique(disks: Sequence[Object], path: Path) -> list[FieldError]:
    """Return errors for disks with an earlier disk's identity, if either is writable: the guest would use one disk as two."""
    first: dict[str, int] = {}
    found = []
    for position, disk in enumerate(disks):
        if not (same := hardware.identity(disk)):
            continue
        other = first.setdefault(same, position)
        if other != position and not (disk["readOnly"] and disks[other]["readOnly"]):
            found.append(duplicate(path.index(position).child("source"), same))
    return found


def validate_one_tls_secret(disks: Sequence[Object], path: Path) -> list[FieldError]:
    """Return errors for TLS Secrets other than the first, because libvirt has one set of certificates per machine."""
    named = [(position, secret) for position, disk in enumerate(disks) if (secret := hardware.tls_secret(disk))]
    text = "must be the same Secret for all NBD disks of a machine"
    return [
        invalid(path.index(position).child("source", "tlsSecretRef", "name"), secret, text)
        for position, secret in named
        if secret != named[0][1]
    ]


def _validate_nbd(source: Object, path: Path) -> list[FieldError]:
    found = _validate_host(source.get("host") or "", path.child("host"))
    found += validate_between(source["port"], 1, 65535, path.child("port"))
    export = source.get("export")
    if export is not None and not hardware.is_export(export):
        found.append(invalid(path.child("export"), export, "must be 1 to 255 alphanumeric characters or '_.:/@+=~-'"))
    return found + _validate_tls(source, path)


def _validate_tls(source: Object, path: Path) -> list[FieldError]:
    found, secret, name = [], source.get("tlsSecretRef"), source.get("tlsHostname")
    if secret is not None:
        found += validate_object_name("Secret", secret.get("name") or "", path.child("tlsSecretRef", "name"))
    if name is None:
        return found
    if secret is None:
        found.append(forbidden(path.child("tlsHostname"), "needs tlsSecretRef"))
    return found + _validate_host(name, path.child("tlsHostname"))


def _validate_nfs(source: Object, path: Path) -> list[FieldError]:
    found, file = _validate_host(source.get("host") or "", path.child("host")), source.get("path") or ""
    if not file:
        found.append(required(path.child("path"), "the path of the file on the server"))
    elif not hardware.is_file(file):
        text = "must be the path of a file in a directory, from /, without . and .., "
        text += f"of at most {hardware.MAX_FILE} printable bytes and {hardware.MAX_NAME} between slashes"
        found.append(invalid(path.child("path"), file, text))
    for field, number in (source.get("identity") or {}).items():
        found += validate_between(number, 0, hardware.MAX_IDENTITY, path.child("identity", field))
    return found


def _validate_rbd(source: Object, path: Path) -> list[FieldError]:
    monitors, found = source.get("monitors") or (), []
    if not monitors:
        found.append(required(path.child("monitors"), "the monitors of the cluster"))
    found += validate_count(monitors, MAX_MONITORS, path.child("monitors"))
    text = "must be a DNS name, an IPv4 address, or an IPv6 address in brackets, and may be followed by a colon and a port"
    wrong = ((position, each) for position, each in enumerate(monitors) if hardware.monitor(each) is None)
    found += [invalid(path.child("monitors").index(position), each, text) for position, each in wrong]
    if not source.get("image"):
        found.append(required(path.child("image"), "the name of the image"))
    named = {"image": source.get("image") or None, "pool": source.get("pool"), "user": source.get("user")}
    text = "must be 1 to 96 alphanumeric characters, '_', '.' or '-', and begin with one of the first two"
    found += [
        invalid(path.child(field), name, text) for field, name in named.items() if name is not None and not hardware.is_rbd_name(name)
    ]
    if source.get("user") is not None and source.get("secretRef") is None:
        found.append(forbidden(path.child("user"), "needs secretRef"))
    return found + _validate_login(source, path)


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
    return found + _validate_login(source, path) + validate_between(source["lun"], 0, hardware.MAX_LUN, path.child("lun"))


def _validate_login(source: Object, path: Path) -> list[FieldError]:
    secret = source.get("secretRef")
    return [] if secret is None else validate_object_name("Secret", secret.get("name") or "", path.child("secretRef", "name"))


def _validate_host(host: str, path: Path) -> list[FieldError]:
    if not host:
        return [required(path, "the name or the address of the server")]
    return (
        [] if hardware.is_host(host) else [invalid(path, host, "must be a DNS name, an IPv4 address, or an IPv6 address without brackets")]
    )


VALIDATED: Final[Mapping[str, Callable[[Object, Path], list[FieldError]]]] = {
    hardware.ISCSI: _validate_iscsi,
    hardware.NBD: _validate_nbd,
    hardware.NFS: _validate_nfs,
    hardware.RBD: _validate_rbd,
}
