"""DHCPv6 messages and their answers (RFC 8415; RFC 3646 for DNS). Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from launcher.ipv6.packets import names
from launcher.ipv6.settings import Settings, packed

SOLICIT, ADVERTISE, REQUEST, CONFIRM, RENEW, REBIND, REPLY, RELEASE, DECLINE = range(1, 10)
INFORMATION_REQUEST: Final = 11
CLIENT_ID, SERVER_ID, IA_NA, IA_TA, IA_ADDRESS, ASKED, PREFERENCE = range(1, 8)
STATUS, RAPID_COMMIT, DNS_SERVERS, DNS_SEARCH, IA_PD = 13, 14, 23, 24, 25
SUCCESS, NO_ADDRESSES, NOT_ON_LINK, NO_PREFIXES = 0, 2, 4, 6

FOR_EVER: Final = 0xFFFFFFFF
MAX_DUID: Final = 130
"""Bytes (RFC 8415, section 11.1)."""
MAX_ASSOCIATIONS: Final = 4
"""Answered associations per message, and addresses per association."""
NAMES_BYTES: Final = 700
"""For the search list: an answer must fit into IPv6's least MTU (1280)."""
_HEAD: Final = 4
_TO_ONE_SERVER: Final = (REQUEST, RENEW, RELEASE, DECLINE)
_TO_ALL_SERVERS: Final = (SOLICIT, CONFIRM, REBIND)
_ETHERNET: Final = 1

Options = Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Request:
    """A client's DHCPv6 message."""

    kind: int
    transaction: bytes
    options: Options

    def first(self, code: int) -> bytes | None:
        """Return the value of the first option with this code, or None."""
        return next((value for found, value in self.options if found == code), None)


def parse(data: bytes) -> Request | None:
    """Return a parsed DHCPv6 message, or None if malformed."""
    options = _options(data[_HEAD:])
    return Request(data[0], data[1:_HEAD], options) if len(data) >= _HEAD and options is not None else None


def _options(data: bytes) -> Options | None:
    found: list[tuple[int, bytes]] = []
    while data:
        if len(data) < 4 or (end := 4 + int.from_bytes(data[2:4], "big")) > len(data):
            return None
        found.append((int.from_bytes(data[:2], "big"), data[4:end]))
        data = data[end:]
    return found


def option(code: int, value: bytes) -> bytes:
    """Return the bytes of a DHCPv6 option."""
    return struct.pack("!HH", code, len(value)) + value


def server_id(told: Settings) -> bytes:
    """Return the server's DUID, made of its MAC address (RFC 8415, section 11.4), the same in each pod of the guest."""
    return struct.pack("!HH", 3, _ETHERNET) + told.server_mac


def answer(data: bytes, told: Settings) -> bytes | None:
    """Return the answer to a DHCPv6 message; None if malformed, for another server, or needing none."""
    request = parse(data)
    if request is None or not _is_for(request, server_id(told)):
        return None
    match request.kind:
        case kind if kind == SOLICIT:
            if request.first(RAPID_COMMIT) is not None:
                return _message(REPLY, request, told, [(RAPID_COMMIT, b""), *_granted(request, told)])
            return _message(ADVERTISE, request, told, [(PREFERENCE, b"\xff"), *_granted(request, told)])
        case kind if kind in (REQUEST, RENEW, REBIND):
            return _message(REPLY, request, told, list(_granted(request, told)))
        case kind if kind == CONFIRM:
            return _confirmed(request, told)
        case kind if kind in (RELEASE, DECLINE):  # the address remains the guest's
            return _message(REPLY, request, told, [(STATUS, _status(SUCCESS))])
        case kind if kind == INFORMATION_REQUEST:
            return _message(REPLY, request, told, [])
        case _:
            return None


def _is_for(request: Request, server: bytes) -> bool:
    client, named = request.first(CLIENT_ID), request.first(SERVER_ID)
    if client is None:
        return request.kind == INFORMATION_REQUEST and named in (None, server)
    if not 2 < len(client) <= MAX_DUID:
        return False
    if request.kind in _TO_ONE_SERVER:
        return named == server
    return named is None if request.kind in _TO_ALL_SERVERS else named in (None, server)


def _message(kind: int, request: Request, told: Settings, options: Options) -> bytes:
    client, asked = request.first(CLIENT_ID), request.first(ASKED)
    wanted = {DNS_SERVERS, DNS_SEARCH} if asked is None else {*struct.unpack(f"!{len(asked) // 2}H", asked[: len(asked) // 2 * 2])}
    found = [(SERVER_ID, server_id(told)), *([(CLIENT_ID, client)] if client is not None else ()), *options]
    found += [(code, value) for code, value in _of_names(told) if code in wanted]
    return bytes((kind,)) + request.transaction + b"".join(option(code, value) for code, value in found)


def _of_names(told: Settings) -> Iterator[tuple[int, bytes]]:
    if told.dns:
        yield DNS_SERVERS, b"".join(map(packed, told.dns))
    if search := names(told.search, NAMES_BYTES):
        yield DNS_SEARCH, search


def _granted(request: Request, told: Settings) -> Iterator[tuple[int, bytes]]:
    """Yield an option for each identity association: the first IA_NA gets the guest's address, others a status."""
    is_given = False
    for code, value in [each for each in request.options if each[0] in (IA_NA, IA_TA, IA_PD)][:MAX_ASSOCIATIONS]:
        head = 4 if code == IA_TA else 12
        if len(value) < head:
            continue
        if code == IA_NA and not is_given:
            is_given = True
            yield code, value[:4] + struct.pack("!II", FOR_EVER, FOR_EVER) + _addresses(value[head:], told)
        else:
            none = _status(NO_PREFIXES if code == IA_PD else NO_ADDRESSES)
            yield code, value[:4] + bytes(head - 4) + option(STATUS, none)


def _addresses(asked: bytes, told: Settings) -> bytes:
    own = packed(told.address)
    others = [each for each in _asked(asked) or () if each != own][:MAX_ASSOCIATIONS]
    given = option(IA_ADDRESS, own + struct.pack("!II", FOR_EVER, FOR_EVER))
    return given + b"".join(option(IA_ADDRESS, each + bytes(8)) for each in others)  # lifetimes of 0 make them invalid


def _asked(data: bytes) -> list[bytes] | None:
    options = _options(data)
    return None if options is None else [value[:16] for code, value in options if code == IA_ADDRESS and len(value) >= 24]


def _confirmed(request: Request, told: Settings) -> bytes | None:
    asked = [each for code, value in request.options if code == IA_NA for each in _asked(value[12:]) or ()]
    if not asked:
        return None  # RFC 8415, section 18.3.3
    is_right = set(asked) == {packed(told.address)}
    return _message(REPLY, request, told, [(STATUS, _status(SUCCESS if is_right else NOT_ON_LINK))])


def _status(code: int) -> bytes:
    return code.to_bytes(2, "big")
