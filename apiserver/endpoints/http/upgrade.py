"""Requests for a websocket (RFC 6455, section 4.2.1), what they offer, and how a websocket ends."""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

from apiserver.endpoints.http.messages import Request

_VERSION: Final = "13"
TOKEN_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."  # noqa: S105 - the prefix of one
"""Prefix of a subprotocol that is a bearer token and no protocol: it is never chosen, and never sent back."""

GOING_AWAY: Final = 1001
"""The close code of a server that stops, or does not know any more: dial again."""
POLICY_VIOLATION: Final = 1008
"""The close code of a right that was withdrawn: dialling again is of no use."""
UNAUTHORIZED: Final = 3000
"""The close code of a credential that is worth nothing any more: dial again with another (IANA, WebSocket Close Code Number Registry)."""


class End(NamedTuple):
    """The close code and reason with which we end a websocket."""

    code: int
    reason: str
    """At most 123 bytes of it are sent (RFC 6455, section 5.5)."""


class Closed(Exception):
    """The websocket has ended, for the ``code`` and ``reason`` that the client gave."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"websocket closed: {code} {reason}")
        self.code = code
        self.reason = reason


def is_upgrade(request: Request) -> bool:
    """Return whether the client asks for a websocket."""
    return request.fields.upgrade == "websocket"


def is_well_formed(request: Request) -> bool:
    """Return whether what it asks for is a websocket of RFC 6455."""
    headers = request.headers
    try:
        nonce = base64.b64decode(headers.get("Sec-WebSocket-Key", ""), validate=True)
    except (binascii.Error, ValueError):
        return False
    return request.method == "GET" and not request.old and len(nonce) == 16 and headers.get("Sec-WebSocket-Version") == _VERSION


def offered(request: Request) -> list[str]:
    """Return the sub-protocols that the client offers, a token among them."""
    return [each.strip() for line in request.headers.getall("Sec-WebSocket-Protocol", ()) for each in line.split(",") if each.strip()]
