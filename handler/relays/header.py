"""The first line of each relay connection. Pure.

``kubevirt-relay/1 <uid of the Migration> libvirt`` (or ``data``, ``disks``, ``made-disks``) precedes that channel's data.
``kubevirt-relay/1 <uid> released running`` reports that the source's QEMU has exited, so the guest may run in the target (``paused``: it
stays paused, as a user requested). The answer is ``ok``, or ``no`` and the reason.

A source also offers the TLS protocol (ALPN) ``kubevirt-relay/<uid>``, which tells the target the migration before the handshake. Older
sources do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, cast

from apiserver.apis.virt.places import forms, layout

Channel = Literal["libvirt", "data", "disks", "made-disks"]

MAX_BYTES: Final = 128
MAX_ANSWER_BYTES: Final = 512
OK: Final = b"ok\n"
_PROTOCOL: Final = b"kubevirt-relay/"
_CHANNEL: Final = re.compile(rb"kubevirt-relay/1 (\S+) (libvirt|data|disks|made-disks)\n")
_RELEASE: Final = re.compile(rb"kubevirt-relay/1 (\S+) released (running|paused)\n")

SOURCE_SOCKETS: Final[Mapping[Channel, str]] = MappingProxyType(
    {
        "libvirt": layout.MIGRATION_LIBVIRT_SOCKET,
        "data": layout.MIGRATION_DATA_SOCKET,
        "disks": layout.MIGRATION_DISKS_SOCKET,
        "made-disks": layout.MIGRATION_MADE_DISKS_SOCKET,
    }
)
TARGET_SOCKETS: Final[Mapping[Channel, str]] = MappingProxyType({**SOURCE_SOCKETS, "libvirt": layout.LIBVIRT_SOCKET})


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a relay connection: migration and channel."""

    migration_uid: str
    channel: Channel

    def encode(self) -> bytes:
        """Return the first line of the connection. Raises ValueError for an invalid uid."""
        return f"kubevirt-relay/1 {_checked(self.migration_uid)} {self.channel}\n".encode()


@dataclass(frozen=True, slots=True)
class Release:
    """The request to resume this migration's guest, or (``paused``) to take it over paused."""

    migration_uid: str
    paused: bool = False

    def encode(self) -> bytes:
        """Return the first line of the connection. Raises ValueError for an invalid uid."""
        word = "paused" if self.paused else "running"
        return f"kubevirt-relay/1 {_checked(self.migration_uid)} released {word}\n".encode()


def decode(line: bytes) -> Header | Release | None:
    """Return the Header or Release in a connection's first line; None if invalid."""
    match = _CHANNEL.fullmatch(line) or _RELEASE.fullmatch(line)
    uid = match[1].decode(errors="replace") if match is not None else ""
    if match is None or forms.uid_errors(uid):
        return None
    if match.re is _CHANNEL:
        return Header(uid, cast(Channel, match[2].decode()))
    return Release(uid, match[2] == b"paused")


def protocol(migration_uid: str) -> str:
    """Return the TLS protocol (ALPN) that names a migration. Raises ValueError for an invalid uid."""
    return f"{_PROTOCOL.decode()}{_checked(migration_uid)}"


def claimed(protocols: Iterable[bytes]) -> str:
    """Return the uid of the migration that the offered TLS protocols name; empty: none."""
    named = next((each for each in protocols if each.startswith(_PROTOCOL)), b"").removeprefix(_PROTOCOL)
    uid = named.decode(errors="replace")
    return "" if forms.uid_errors(uid) else uid


def refusal(why: str) -> bytes:
    """Return the target's answer that refuses a line ``released``: ``no`` and the reason, shortened."""
    return b"no " + "".join(each for each in why if each.isprintable()).encode()[: MAX_ANSWER_BYTES - 8] + b"\n"


def _checked(uid: str) -> str:
    if forms.uid_errors(uid):
        raise ValueError(f"{ascii(uid)[:80]} is not a Migration uid")
    return uid
