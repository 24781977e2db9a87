"""Certificates for TLS with NBD servers: written for QEMU, and tested with each server (docs/decisions/disks.md).

All NBD disks of a machine share one Secret, because libvirt has one directory for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.hardware import disks, network_disks
from apiserver.apis.virt.places import layout
from launcher.main.disks import mounted, qemu_img
from launcher.main.disks.disk_servers import ServersUnreachable
from launcher.main.disks.made_disks import SourceUnusable
from launcher.main.programs.children import Children

MAX_BYTES: Final = 256 << 10
"""Of certificates and key together. All of Debian's authorities have 220 KiB."""
SECONDS: Final = 15.0
"""For a connected server to start TLS and send the disk's size."""
_KEYS: Final = {file: key for keys in (network_disks.AUTHORITY_KEYS, network_disks.CLIENT_KEYS) for key, file in keys.items()}


async def prepare(children: Children, specification: Mapping[str, Any], seconds: float = SECONDS) -> None:
    """Write the certificates for QEMU, and test each server within ``seconds``, if disks have a Secret for TLS.

    Raises:
        SourceUnusable: the Secret or a disk's server is invalid; the message names it, without secret content.
        ServersUnreachable: a server does not answer.
        OSError: the certificates cannot be written.
    """
    found = [each for each in disks.defaulted(specification) if network_disks.tls_secret(each)]
    if not found:
        return
    await asyncio.to_thread(_write, network_disks.tls_secret(found[0]))
    for disk in found:
        await _look(children, disk, seconds)


def _write(secret: str) -> None:
    values = _read(secret)
    directory = Path(layout.NBD_CERTIFICATES_DIRECTORY)
    directory.mkdir(mode=0o700, exist_ok=True)
    for file in _KEYS:
        (directory / file).unlink(missing_ok=True)
        if value := values.get(file):
            with os.fdopen(os.open(directory / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "wb") as opened:
                opened.write(value)


def _read(secret: str) -> Mapping[str, bytes]:
    try:
        found = mounted.read(Path(layout.NBD_TLS_DIRECTORY), limit=MAX_BYTES, count=len(_KEYS))
    except mounted.Unreadable as error:
        raise SourceUnusable(f"Secret {secret!r} of tlsSecretRef: {error}") from None
    if lacking := [key for key, file in network_disks.AUTHORITY_KEYS.items() if not found.get(file, b"").strip()]:
        raise SourceUnusable(f"Secret {secret!r} of tlsSecretRef: {lacking[0]} is empty")
    own = {key: bool(found.get(file, b"").strip()) for key, file in network_disks.CLIENT_KEYS.items()}
    if any(own.values()) and not all(own.values()):
        there, missing = sorted(own, key=lambda key: not own[key])
        raise SourceUnusable(f"Secret {secret!r} of tlsSecretRef: it has {there} but no {missing}")
    return found


async def _look(children: Children, disk: Mapping[str, Any], seconds: float) -> None:
    name = str(disk["name"])
    credentials = f"tls-creds-x509,id=tls,endpoint=client,verify-peer=yes,dir={layout.NBD_CERTIFICATES_DIRECTORY}"
    try:
        await qemu_img.info(children, _source(disk), [credentials], seconds)
    except TimeoutError:
        raise ServersUnreachable((name,)) from None
    except qemu_img.CannotOpen as error:
        raise SourceUnusable(f"disk {name!r}: TLS with its server: {_by_keys(str(error))}") from None


def _source(disk: Mapping[str, Any]) -> Mapping[str, Any]:
    source = disk["source"]
    [(host, port)] = network_disks.endpoints(disk)
    found = {"driver": "nbd", "server": {"type": "inet", "host": host, "port": str(port)}, "tls-creds": "tls"}
    given = {"export": source.get("export"), "tls-hostname": source.get("tlsHostname")}
    return {"driver": "raw", "file": {**found, **{key: value for key, value in given.items() if value is not None}}}


def _by_keys(said: str) -> str:
    for file, key in _KEYS.items():
        said = said.replace(f"{layout.NBD_CERTIFICATES_DIRECTORY}/{file}", key)
    return said
