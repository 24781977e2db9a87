"""The line that begins each connection of a relay: ``kubevirt-relay/1 <uid of the Migration> <channel>``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, cast

from apiserver.apis.virt import layout

Channel = Literal["libvirt", "data"]

MAX_BYTES: Final = 128
_LINE: Final = re.compile(rb"kubevirt-relay/1 ([A-Za-z0-9-]{1,63}) (libvirt|data)\n")

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
        line = f"kubevirt-relay/1 {self.migration_uid} {self.channel}\n".encode()
        if not _LINE.fullmatch(line):
            raise ValueError(f"{self.migration_uid!r} is no uid of a Migration")
        return line


def decode(line: bytes) -> Header | None:
    """Return what the line says; None if it is no header."""
    match = _LINE.fullmatch(line)
    return Header(match[1].decode(), cast(Channel, match[2].decode())) if match else None
