"""Answers of the DHCP server (RFC 2131, sections 4.1 and 4.3). Pure."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final

from launcher.dhcp import message
from launcher.dhcp.message import Request

FOR_EVER: Final = b"\xff\xff\xff\xff"
EVERYBODY: Final = "255.255.255.255"


@dataclass(frozen=True, slots=True)
class Lease:
    """The only client and its settings, with dotted IPv4 addresses. ``router`` None: ``server``; empty: none."""

    mac: str
    address: str
    server: str
    netmask: str
    mtu: int
    hostname: str = ""
    dns: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    router: str | None = None
    routes: tuple[tuple[str, str], ...] = ()
    """Destinations and gateways, unless the router's is the only route. Destinations on the link have an empty gateway."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A packet and its destination: the client's address or broadcast, never one that the client chose."""

    data: bytes
    destination: str


def answer(data: bytes, lease: Lease) -> Answer | None:
    """Return the answer to a DHCP packet; None if malformed, from another client, for another server, or needing none."""
    request = message.parse(data)
    if request is None or request.mac != bytes.fromhex(lease.mac.replace(":", "")):
        return None
    match request.kind:
        case message.DISCOVER:
            return _granted(request, lease, message.OFFER)
        case message.REQUEST:
            return _requested(request, lease)
        case message.INFORM if request.ciaddr == _packed(lease.address):
            return _answer(request, lease, message.ACK, is_lease=False)
        case _:
            return None


def _requested(request: Request, lease: Lease) -> Answer | None:
    if request.options.get(message.SERVER_ID, _packed(lease.server)) != _packed(lease.server):
        return None  # the client accepted another server's offer
    wanted = request.options.get(message.REQUESTED_ADDRESS, request.ciaddr)
    if wanted == _packed(lease.address):
        return _granted(request, lease, message.ACK)
    return Answer(message.encode(request, bytes(4), _head(message.NAK, lease)), EVERYBODY)


def _granted(request: Request, lease: Lease, kind: int) -> Answer:
    return _answer(request, lease, kind, is_lease=True)


def _answer(request: Request, lease: Lease, kind: int, *, is_lease: bool) -> Answer:
    options = _head(kind, lease)
    if is_lease:
        options.append((message.LEASE_TIME, FOR_EVER))
    if identifier := request.options.get(message.CLIENT_ID):
        options.append((message.CLIENT_ID, identifier))  # RFC 6842
    asked = request.options.get(message.PARAMETERS)
    options += [(code, value) for code, value in _parameters(lease) if asked is None or code in asked]
    has_address = request.ciaddr == _packed(lease.address)
    destination = EVERYBODY if request.wants_broadcast and not has_address else lease.address
    return Answer(message.encode(request, _packed(lease.address) if is_lease else bytes(4), options), destination)


def _head(kind: int, lease: Lease) -> list[tuple[int, bytes]]:
    return [(message.MESSAGE_TYPE, bytes((kind,))), (message.SERVER_ID, _packed(lease.server))]


def _parameters(lease: Lease) -> list[tuple[int, bytes]]:
    found = [
        (message.SUBNET_MASK, _packed(lease.netmask)),
        # RFC 3442: clients that read the routes ignore the router, so routes come first if room is short.
        (message.CLASSLESS_ROUTES, message.classless_routes(lease.routes)),
        (message.ROUTER, _packed(router) if (router := lease.server if lease.router is None else lease.router) else b""),
        (message.DNS_SERVERS, b"".join(map(_packed, lease.dns))),
        (message.HOST_NAME, lease.hostname.encode()),
        (message.MTU, lease.mtu.to_bytes(2, "big")),
        (message.DOMAIN_SEARCH, message.domain_search(lease.search)),
    ]
    return [(code, value) for code, value in found if value]


def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET, address)
