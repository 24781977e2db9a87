"""The line that begins each connection of a relay. Pure.

``kubevirt-relay/1 <uid of the Migration> libvirt`` (or ``data``) is followed by the bytes of that channel. ``kubevirt-relay/1 <uid>
released running`` (or ``paused``) is a request: the source's QEMU is gone, the guest may run in the target (or stay paused, if its user
paused it). It is answered by ``ok`` or by ``no`` and the reason, and the connection ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, cast

from apiserver.apis.virt import layout

Channel = Literal["libvirt", "data"]

MAX_BYTES: Final = 128
MAX_ANSWER_BYTES: Final = 512
OK: Final = b"ok\n"
_CHANNEL: Final = re.compile(rb"kubevirt-relay/1 ([A-Za-z0-9-]{1,63}) (libvirt|data)\n")
_RELEASE: Final = re.compile(rb"kubevirt-relay/1 ([A-Za-z0-9-]{1,63}) released (running|paused)\n")

SOURCE_SOCKETS: Final[Mapping[Channel, str]] = MappingProxyType(
    {"libvirt": layout.MIGRATION_LIBVIRT_SOCKET, "data": layout.MIGRATION_DATA_SOCKET}
)
TARGET_SOCKETS: Final[Mapping[Channel, str]] = MappingProxyType({"libvirt": layout.LIBVIRT_SOCKET, "data": layout.MIGRATION_DATA_SOCKET})


@dataclass(frozen=True, slots=True)
class Header:
    """Which migration and which of its channels a connection carries."""

    migration_uid: str
    channel: Channel

    def encode(self) -> bytes:
        """Return the line.

        Raises:
            ValueError: the uid is none.
        """
        return _checked(_CHANNEL, f"kubevirt-relay/1 {self.migration_uid} {self.channel}\n", self.migration_uid)


@dataclass(frozen=True, slots=True)
class Release:
    """The request to let the guest of this migration run."""

    migration_uid: str
    paused: bool = False

    def encode(self) -> bytes:
        """Return the line.

        Raises:
            ValueError: the uid is none.
        """
        word = "paused" if self.paused else "running"
        return _checked(_RELEASE, f"kubevirt-relay/1 {self.migration_uid} released {word}\n", self.migration_uid)


def decode(line: bytes) -> Header | Release | None:
    """Return what the line says; None if it is no header."""
    if match := _CHANNEL.fullmatch(line):
        return Header(match[1].decode(), cast(Channel, match[2].decode()))
    if match := _RELEASE.fullmatch(line):
        return Release(match[1].decode(), match[2] == b"paused")
    return None


def refusal(why: str) -> bytes:
    """Return the answer to a request that was not carried out."""
    return b"no " + "".join(each for each in why if each.isprintable()).encode()[: MAX_ANSWER_BYTES - 8] + b"\n"


def _checked(pattern: re.Pattern[bytes], line: str, uid: str) -> bytes:
    encoded = line.encode()
    if not pattern.fullmatch(encoded):
        raise ValueError(f"{uid!r} is no uid of a Migration")
    return encoded
