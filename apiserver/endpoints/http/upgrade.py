"""Websocket handshakes (RFC 6455, section 4.2.1), subprotocols and close codes."""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

from apiserver.endpoints.http.messages import Request

_VERSION: Final = "13"
TOKEN_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."  # noqa: S105 - the prefix of one
"""Of a subprotocol that carries a bearer token; never selected or returned."""

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
"""Of a stopping server: dial again."""
POLICY_VIOLATION: Final = 1008
"""After a loss of rights: do not dial again."""
UNAUTHORIZED: Final = 3000
"""Of an expired credential: dial with another (IANA, WebSocket Close Code Number Registry)."""


class End(NamedTuple):
    """The code and reason with which the server closes a websocket."""

    code: int
    reason: str
    """Cut to 123 bytes (RFC 6455, section 5.5)."""


class Closed(Exception):
    """The client ended the websocket with ``code`` and ``reason``."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"websocket closed: {code} {reason}")
        self.code = code
        self.reason = reason


def is_upgrade(request: Request) -> bool:
    """Return whether the client requests a websocket."""
    return request.fields.upgrade == "websocket"


def is_well_formed(request: Request) -> bool:
    """Return whether a websocket request (:func:`is_upgrade`) is a valid handshake of RFC 6455."""
    headers = request.headers
    try:
        nonce = base64.b64decode(headers.get("Sec-WebSocket-Key", ""), validate=True)
    except (binascii.Error, ValueError):
        return False
    return request.method == "GET" and not request.old and len(nonce) == 16 and headers.get("Sec-WebSocket-Version") == _VERSION


def offered(request: Request) -> list[str]:
    """Return the subprotocols that the client offers, a token included."""
    return [each.strip() for line in request.headers.getall("Sec-WebSocket-Protocol", ()) for each in line.split(",") if each.strip()]
