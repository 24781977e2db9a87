"""Disks that QEMU itself reaches over the network: ``<source>`` of a ``<disk type='network'>``."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import network_disks as hardware
from launcher.domain.values import InvalidSpecification, number

RECONNECT_SECONDS: Final = 10
"""A request that meets a broken connection waits so long for a new one before it fails, and ``driver.errorPolicy`` counts."""


_USER: Final = re.compile(r'"user":"[^"\n]*"?')
_SECRETS: Final = uuid.UUID("f0a8f7a0-5d3c-4f0e-8c39-0d6a1f6b2c11")


def secret_uuid(disk: str) -> str:
    """Return the UUID by which the XML of a domain names the password of a disk's server, the same in each pod of the machine."""
    return str(uuid.uuid5(_SECRETS, disk))


def without_users(text: str) -> str:
    """Return words of QEMU's or libvirt's without the names of users: QEMU repeats the options of a disk that it cannot open."""
    return _USER.sub('"user":"…"', text)


def append_source(element: Element, disk: Mapping[str, Any]) -> None:
    """Append ``<source>``.

    Raises:
        InvalidSpecification: what names the server has characters that such names cannot have.
    """
    source, path = disk.get("source") or {}, f"devices.disks[{disk['name']}].source"
    match disk["type"]:
        case hardware.ISCSI:
            _append_login(_append_iscsi(element, source, path), disk)
        case hardware.NBD:
            _append_nbd(element, source, path)
        case other:
            raise InvalidSpecification(f"devices.disks[{disk['name']}].type: {other!r} is not supported")


def _append_nbd(element: Element, source: Mapping[str, Any], path: str) -> None:
    found = SubElement(element, "source", protocol="nbd")
    if (export := source.get("export")) is not None:
        if not isinstance(export, str) or not hardware.is_export(export):
            raise InvalidSpecification(f"{path}.export: {export!r} is not allowed")
        found.set("name", export)
    port = number(source.get("port"), 1, 65535, f"{path}.port")
    SubElement(found, "host", name=_host(source.get("host"), f"{path}.host"), port=port)
    SubElement(found, "reconnect", delay=str(RECONNECT_SECONDS))


def _append_login(source: Element, disk: Mapping[str, Any]) -> None:
    """Append ``<auth>``, to which the name of the user is added where nobody reads it."""
    if hardware.login_secret(disk):
        SubElement(SubElement(source, "auth"), "secret", type="iscsi", uuid=secret_uuid(str(disk["name"])))


def _append_iscsi(element: Element, source: Mapping[str, Any], path: str) -> Element:
    given = source.get("targetPortal")
    portal = hardware.portal(given) if isinstance(given, str) else None
    if portal is None:
        raise InvalidSpecification(f"{path}.targetPortal: {given!r} is no portal")
    lun = number(source.get("lun"), 0, hardware.MAX_LUN, f"{path}.lun")
    found = SubElement(element, "source", protocol="iscsi", name=f"{_iqn(source.get('iqn'), f'{path}.iqn')}/{lun}")
    SubElement(found, "host", name=portal[0], port=str(portal[1]))
    if (initiator := source.get("initiatorName")) is not None:
        SubElement(SubElement(found, "initiator"), "iqn", name=_iqn(initiator, f"{path}.initiatorName"))
    return found


def _iqn(value: object, path: str) -> str:
    if not isinstance(value, str) or not hardware.is_iqn(value):
        raise InvalidSpecification(f"{path}: {value!r} is no name of an iSCSI node")
    return value


def _host(value: object, path: str) -> str:
    if not isinstance(value, str) or not hardware.is_host(value):
        raise InvalidSpecification(f"{path}: {value!r} is no host")
    return value
