"""Header blocks: ours, written once for each method, and the server's, decoded once for each block of bytes.

We tell the server not to keep a table of headers (SETTINGS_HEADER_TABLE_SIZE=0), so a block means the same whenever it comes, and the
two blocks that every answer consists of need no second decoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import hpack

from storage.grpc import frames

MAX_BLOCK_BYTES: Final = 64 * 1024
_MAX_REMEMBERED: Final = 64
_MAX_REMEMBERED_BYTES: Final = 512
_MAX_MESSAGE: Final = 4096
_UNKNOWN: Final = 2  # gRPC's code for a status that is no number


@dataclass(frozen=True, slots=True)
class Head:
    """Headers or trailers of an answer, as far as they matter to us."""

    http_status: int
    """0: not there, as in trailers."""
    is_grpc: bool
    """The content type is gRPC's."""
    grpc_status: int | None
    grpc_message: str

    @property
    def is_beginning(self) -> bool:
        """True if an answer may begin so."""
        return self.http_status == 200 and self.is_grpc


def request(path: str, *, scheme: str, authority: str, metadata: tuple[tuple[str, str], ...]) -> bytes:
    """Return the header block of a gRPC request; it refers to no table, so that it can be sent again and again."""
    fields = (
        (":method", "POST"),
        (":scheme", scheme),
        (":path", path),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "kubevirt-python"),
        *metadata,
    )
    encoder = hpack.Encoder()
    return bytes(encoder.encode([hpack.NeverIndexedHeaderTuple(name, value) for name, value in fields], huffman=False))


class Heads:
    """Decodes the blocks of one connection."""

    def __init__(self) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=MAX_BLOCK_BYTES)
        self._decoder.max_allowed_table_size = 0
        self._decoder.header_table_size = 0
        self.known: dict[bytes, Head] = {}
        """Blocks that come again and again, decoded."""

    def decode(self, block: bytes) -> Head:
        """Return what a block says.

        Raises:
            ProtocolError: it is none.
        """
        try:
            fields = dict(self._decoder.decode(block, raw=True))
        except hpack.HPACKError as error:
            raise frames.ProtocolError(frames.COMPRESSION_ERROR, f"headers cannot be decoded: {error}") from error
        head = _head(fields)
        # Only what comes again and again: the messages of errors are all different.
        if not head.grpc_status and len(block) <= _MAX_REMEMBERED_BYTES and len(self.known) < _MAX_REMEMBERED:
            self.known[block] = head
        return head


def _head(fields: dict[bytes, bytes]) -> Head:
    status = fields.get(b"grpc-status")
    return Head(
        http_status=_int(fields.get(b":status")) or 0,
        is_grpc=fields.get(b"content-type", b"").startswith(b"application/grpc"),
        grpc_status=None if status is None else _UNKNOWN if _int(status) is None else _int(status),
        grpc_message=unquote(fields.get(b"grpc-message", b"")[:_MAX_MESSAGE].decode("ascii", "replace"), errors="replace"),
    )


def _int(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) <= 3 else None
