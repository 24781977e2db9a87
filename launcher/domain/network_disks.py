"""Disks that QEMU reaches over the network: ``<source>`` of a ``<disk type='network'>``."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import network_disks as hardware
from launcher.domain.values import InvalidSpecification, number

RECONNECT_SECONDS: Final = 10
"""Wait of a request for a new connection. Then it fails, and ``driver.errorPolicy`` applies."""


_USER: Final = re.compile(r'"user":"[^"\n]*"?')
_SECRETS: Final = uuid.UUID("f0a8f7a0-5d3c-4f0e-8c39-0d6a1f6b2c11")


def secret_uuid(disk: str) -> str:
    """Return the UUID of a disk's libvirt secret, the same in each pod."""
    return str(uuid.uuid5(_SECRETS, disk))


def without_users(text: str) -> str:
    """Return a message of QEMU, which repeats the options of a disk that it cannot open, without user names."""
    return _USER.sub('"user":"…"', text)


def append_source(element: Element, disk: Mapping[str, Any]) -> None:
    """Append ``<source>`` of a network disk, with its login if any."""
    source, path = disk.get("source") or {}, f"devices.disks[{disk['name']}].source"
    if (append := APPENDED.get(disk["type"])) is None:
        raise InvalidSpecification(f"devices.disks[{disk['name']}].type: {disk['type']!r} is not supported")
    found = append(element, source, path)
    if hardware.login_secret(disk):
        _append_login(found, disk, path)


def _append_nbd(element: Element, source: Mapping[str, Any], path: str) -> Element:
    found = SubElement(element, "source", protocol="nbd")
    if source.get("tlsSecretRef"):
        found.set("tls", "yes")
        if (name := source.get("tlsHostname")) is not None:
            found.set("tlsHostname", _host(name, f"{path}.tlsHostname"))
    if (export := source.get("export")) is not None:
        if not isinstance(export, str) or not hardware.is_export(export):
            raise InvalidSpecification(f"{path}.export: {export!r} is not allowed")
        found.set("name", export)
    port = number(source.get("port"), 1, 65535, f"{path}.port")
    SubElement(found, "host", name=_host(source.get("host"), f"{path}.host"), port=port)
    SubElement(found, "reconnect", delay=str(RECONNECT_SECONDS))
    return found


def _append_nfs(element: Element, source: Mapping[str, Any], path: str) -> Element:
    file = source.get("path")
    if not isinstance(file, str) or not hardware.is_file(file):
        raise InvalidSpecification(f"{path}.path: {file!r} is not a file path")
    found = SubElement(element, "source", protocol="nfs", name=file)
    SubElement(found, "host", name=_host(source.get("host"), f"{path}.host"))
    if (identity := source.get("identity")) is not None:
        numbers = {each: number(identity.get(each), 0, hardware.MAX_IDENTITY, f"{path}.identity.{each}") for each in ("user", "group")}
        SubElement(found, "identity", {each: f"+{text}" for each, text in numbers.items()})
    return found


def _append_rbd(element: Element, source: Mapping[str, Any], path: str) -> Element:
    monitors = source.get("monitors")
    name = "/".join(_rbd_name(source.get(each), f"{path}.{each}") for each in ("pool", "image"))
    found = SubElement(element, "source", protocol="rbd", name=name)
    for given in monitors if isinstance(monitors, list) else ():
        place = hardware.monitor(given) if isinstance(given, str) else None
        if place is None:
            raise InvalidSpecification(f"{path}.monitors: {given!r} is not a monitor address")
        SubElement(found, "host", name=place[0], port=str(place[1]))
    if not len(found):
        raise InvalidSpecification(f"{path}.monitors: must not be empty")
    return found


def _rbd_name(value: object, path: str) -> str:
    if not isinstance(value, str) or not hardware.is_rbd_name(value):
        raise InvalidSpecification(f"{path}: {value!r} is not a valid name in Ceph")
    return value


def _append_login(source: Element, disk: Mapping[str, Any], path: str) -> None:
    """Append ``<auth>``, because libvirt disables Ceph's authentication without it. The iSCSI user, a secret, is added later."""
    login, kind = SubElement(source, "auth"), "iscsi"
    if disk["type"] == hardware.RBD:
        login.set("username", _rbd_name(disk["source"].get("user", "admin"), f"{path}.user"))
        kind = "ceph"
    SubElement(login, "secret", type=kind, uuid=secret_uuid(str(disk["name"])))


def _append_iscsi(element: Element, source: Mapping[str, Any], path: str) -> Element:
    given = source.get("targetPortal")
    portal = hardware.portal(given) if isinstance(given, str) else None
    if portal is None:
        raise InvalidSpecification(f"{path}.targetPortal: {given!r} is not an iSCSI portal")
    lun = number(source.get("lun"), 0, hardware.MAX_LUN, f"{path}.lun")
    found = SubElement(element, "source", protocol="iscsi", name=f"{_iqn(source.get('iqn'), f'{path}.iqn')}/{lun}")
    SubElement(found, "host", name=portal[0], port=str(portal[1]))
    if (initiator := source.get("initiatorName")) is not None:
        SubElement(SubElement(found, "initiator"), "iqn", name=_iqn(initiator, f"{path}.initiatorName"))
    return found


def _iqn(value: object, path: str) -> str:
    if not isinstance(value, str) or not hardware.is_iqn(value):
        raise InvalidSpecification(f"{path}: {value!r} is not an iSCSI qualified name")
    return value


def _host(value: object, path: str) -> str:
    if not isinstance(value, str) or not hardware.is_host(value):
        raise InvalidSpecification(f"{path}: {value!r} is not a host name or address")
    return value


APPENDED: Final[Mapping[str, Callable[[Element, Mapping[str, Any], str], Element]]] = {
    hardware.ISCSI: _append_iscsi,
    hardware.NBD: _append_nbd,
    hardware.NFS: _append_nfs,
    hardware.RBD: _append_rbd,
}
"""Append ``<source>`` and return it, by the disk's type. The last argument is the source's path."""
