"""Header blocks: ours, encoded once per method, and the server's, decoded once per block.

Without the server's header table (SETTINGS_HEADER_TABLE_SIZE=0) a block is constant, and most answers need no decoding.
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
_UNKNOWN: Final = 2  # gRPC's code for a non-numeric status


@dataclass(frozen=True, slots=True)
class Head:
    """Headers or trailers of an answer, as far as needed."""

    http_status: int
    """0: absent, as in trailers."""
    is_grpc: bool
    grpc_status: int | None
    grpc_message: str

    @property
    def is_beginning(self) -> bool:
        """True if it can start an answer: HTTP 200 and gRPC's content type."""
        return self.http_status == 200 and self.is_grpc


def request(path: str, *, scheme: str, authority: str, metadata: tuple[tuple[str, str], ...]) -> bytes:
    """Encode a gRPC request's headers as a block without table references, for reuse."""
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
    """Decodes the header blocks of one connection's answers."""

    def __init__(self) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=MAX_BLOCK_BYTES)
        self._decoder.max_allowed_table_size = 0
        self._decoder.header_table_size = 0
        self.known: dict[bytes, Head] = {}
        """Decoded blocks that recur."""

    def decode(self, block: bytes) -> Head:
        """Decode a block of headers. Raises ProtocolError.

        Remembers some short ones without a gRPC error in ``known``, where callers look first.
        """
        try:
            fields = dict(self._decoder.decode(block, raw=True))
        except hpack.HPACKError as error:
            raise frames.ProtocolError(frames.COMPRESSION_ERROR, f"headers cannot be decoded: {error}") from error
        head = _head(fields)
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
