"""Secrets for logins to disk servers.

libvirtd passes the passwords to QEMU encrypted; the domain XML refers to them by UUID. User names are also secret: only the XML for libvirt
contains them.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from apiserver.apis.virt.hardware import disks, network_disks
from apiserver.apis.virt.places import layout
from launcher.domain.network_disks import secret_uuid
from launcher.hypervisor.port import Hypervisor, Usage
from launcher.main.disks import mounted
from launcher.main.disks.made_disks import SourceUnusable

MAX_USER: Final = 255
MAX_PASSWORD: Final = 255
_USER: Final = re.compile(rb"[A-Za-z0-9_.:/@+=~-]{1,%d}" % MAX_USER)


@dataclass(frozen=True, slots=True)
class Login:
    """A login to a disk's server."""

    disk: str
    user: str = field(repr=False)
    password: bytes = field(repr=False)
    usage: Usage = "iscsi"

    @property
    def uuid(self) -> str:
        """Return the UUID of libvirt's secret with the password."""
        return secret_uuid(self.disk)


def logins(specification: Mapping[str, Any]) -> tuple[Login, ...]:
    """Return the logins of all disks with a Secret for a login. Raises SourceUnusable, which names the disk."""
    return tuple(_read(each) for each in disks.defaulted(specification) if network_disks.login_secret(each))


def _read(given: Mapping[str, Any]) -> Login:
    disk, keys = str(given["name"]), network_disks.login_keys(given)
    try:
        found = mounted.read(Path(layout.SOURCES_DIRECTORY, disk), limit=MAX_USER + MAX_PASSWORD, count=len(keys))
    except mounted.Unreadable as error:
        raise SourceUnusable(f"disk {disk!r}: its Secret: {error}") from None
    return _key(disk, found) if given["type"] == network_disks.RBD else _login(disk, found)


def _key(disk: str, found: Mapping[str, bytes]) -> Login:
    """Return the login with a Ceph user's key, without the name, which is not secret. Raises SourceUnusable for a wrong key."""
    (file,) = network_disks.KEYRING_KEYS.values()
    try:
        key = base64.b64decode(found.get(file, b"").strip(), validate=True)
    except ValueError:
        key = b""
    if not key:
        raise SourceUnusable(f"disk {disk!r}: its Secret: the key must be a Ceph key in base64")
    return Login(disk, "", key, "ceph")


def _login(disk: str, found: Mapping[str, bytes]) -> Login:
    user, password = (found.get(file, b"") for file in network_disks.LOGIN_KEYS.values())
    if not password or len(password) > MAX_PASSWORD:
        raise SourceUnusable(f"disk {disk!r}: its Secret: the password must have 1 to {MAX_PASSWORD} bytes")
    if not _USER.fullmatch(user):
        raise SourceUnusable(f"disk {disk!r}: its Secret: the user's name must have 1 to {MAX_USER} alphanumeric characters or '_.:/@+=~-'")
    return Login(disk, user.decode(), password)


async def keep(hypervisor: Hypervisor, specification: Mapping[str, Any]) -> None:
    """Pass the passwords for disk servers to the hypervisor. Raises SourceUnusable or HypervisorError."""
    for login in await asyncio.to_thread(logins, specification):
        await hypervisor.keep_secret(login.uuid, login.password, login.usage)


def revealed(xml: str, found: Iterable[Login]) -> str:
    """Return our XML with the logins' user names inserted, for libvirt only."""
    users = {each.uuid: each.user for each in found if each.user}
    if not users:
        return xml
    root = ET.fromstring(xml)  # noqa: S314 - it is ours
    for auth in root.iterfind("devices/disk/source/auth"):
        secret = auth.find("secret")
        if secret is not None and secret.get("uuid") in users:
            auth.set("username", users[str(secret.get("uuid"))])
    return ET.tostring(root, encoding="unicode")


def concealed(xml: str) -> str:
    """Return libvirt's XML without the users' names of iSCSI logins. libvirt leaves passwords out."""
    root = ET.fromstring(xml)  # noqa: S314 - libvirtd wrote it
    for auth in root.iterfind("devices/disk/source/auth"):
        if auth.find("secret[@type='iscsi']") is not None:
            auth.attrib.pop("username", None)
    return ET.tostring(root, encoding="unicode")
