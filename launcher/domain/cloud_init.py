"""Files of a cloud-init disk, and the public keys in them.

Formats: NoCloud and ConfigDrive (https://docs.cloud-init.io/en/latest/reference/datasources.html). No message repeats the files' content,
which may be secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from apiserver.apis.virt.hardware import cloud_init
from launcher.domain.values import InvalidSpecification

MAX_KEYS: Final = 64
MAX_KEY: Final = 4 << 10
"""The largest RSA key, of 16384 bits, has 2800."""

_PLACES: Final[Mapping[str, Mapping[str, str]]] = {
    cloud_init.NO_CLOUD: {"userData": "user-data", "networkData": "network-config", "metaData": "meta-data"},
    cloud_init.CONFIG_DRIVE: {
        "userData": "openstack/latest/user_data",
        "networkData": "openstack/latest/network_data.json",
        "metaData": "openstack/latest/meta_data.json",
    },
}


def files(kind: str, source: Mapping[str, Any], mounted: Mapping[str, bytes], machine: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files of a cloud-init disk by their paths on it. Raises InvalidSpecification for wrong data.

    ``mounted`` has contents from Secrets by field (``userData``); ``machine``, arguments of :func:`meta_data`, if ``metaData`` is missing.
    """
    found: dict[str, bytes] = {}
    for datum, place in _PLACES[kind].items():
        try:
            data = mounted.get(datum) if datum in mounted else cloud_init.inline(source, datum)
        except ValueError as error:
            raise InvalidSpecification(f"{datum}: {error}") from None
        if data is not None and (wrong := cloud_init.form_error(kind, datum, data)):
            raise InvalidSpecification(f"{datum}: {wrong}")
        if data is None and datum == "metaData":
            data = meta_data(kind, **machine)
        if data is None and (kind, datum) == (cloud_init.NO_CLOUD, "userData"):
            data = b""  # cloud-init ignores a disk without this file
        if data is not None:
            found[place] = data
    return found


def meta_data(kind: str, uid: str, hostname: str, keys: Sequence[str]) -> bytes:
    """Return meta data as JSON, which NoCloud reads as YAML. A guest that finds another ``uid`` repeats its first boot."""
    content: dict[str, Any]
    if kind == cloud_init.NO_CLOUD:
        content = {"instance-id": uid, "local-hostname": hostname, "public-keys": list(keys)}
    else:
        named = {str(position): key for position, key in enumerate(keys)}
        content = {"uuid": uid, "name": hostname, "hostname": hostname, "public_keys": named}
    return (json.dumps(content, indent=1) + "\n").encode()


def public_keys(secret: Mapping[str, bytes], path: str) -> tuple[str, ...]:
    """Return the keys in a Secret without duplicates: each line of each value, except empty ones and comments.

    Raises InvalidSpecification, about field ``path``, for an invalid key or too many.
    """
    found: list[str] = []
    for name in sorted(secret):
        for number, line in enumerate(secret[name].splitlines(), start=1):
            if key := _public_key(line, f"{path}: line {number} of the value of {name!r} in its Secret"):
                found.append(key)
    return counted(found, path)


def counted(keys: Sequence[str], path: str) -> tuple[str, ...]:
    """Return public keys without duplicates, or raise InvalidSpecification, about field ``path``, if there are too many."""
    found = tuple(dict.fromkeys(keys))
    if len(found) > MAX_KEYS:
        raise InvalidSpecification(f"{path}: there are {len(found)} public keys, more than {MAX_KEYS}")
    return found


def _public_key(line: bytes, place: str) -> str:
    try:
        text = line.decode().strip()
    except UnicodeDecodeError:
        raise InvalidSpecification(f"{place} is not valid UTF-8 text") from None
    if text.startswith("#"):
        return ""
    if len(line) > MAX_KEY or not text.replace("\t", " ").isprintable():
        raise InvalidSpecification(f"{place} is not a public key")
    return text
