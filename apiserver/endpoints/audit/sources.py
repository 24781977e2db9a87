"""The event fields ``sourceIPs`` and ``userAgent``.

Clients can forge the forwarding headers; only the last address is certain.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from apiserver.endpoints.audit.events import encoded
from apiserver.endpoints.http.messages import Request

_MAX_USER_AGENT: Final = 1024
_TRUNCATED: Final = "...TRUNCATED"
_MAX_ADDRESSES: Final = 32
_REMEMBERED_LENGTH: Final = 512


def of(request: Request) -> str:
    """Return both fields as JSON; short ones are cached, because clients repeat them."""
    headers = request.headers
    said = ",".join(headers.getall("X-Forwarded-For", ())), headers.get("X-Real-Ip", ""), request.remote, headers.get("User-Agent", "")
    return _remembered(*said) if sum(map(len, said)) <= _REMEMBERED_LENGTH else _fields(*said)


@lru_cache(maxsize=4096)
def _remembered(forwarded: str, real: str, remote: str, agent: str) -> str:
    return _fields(forwarded, real, remote, agent)


def _fields(forwarded: str, real: str, remote: str, agent: str) -> str:
    if len(agent) > _MAX_USER_AGENT:
        agent = agent[:_MAX_USER_AGENT] + _TRUNCATED
    addresses = _addresses(forwarded, real.strip(), remote)
    where = f',"sourceIPs":{encoded(addresses)}' if addresses else ""
    return f'{where},"userAgent":{encoded(agent)}' if agent else where


def _addresses(forwarded: str, real: str, remote: str) -> list[str]:
    listed = [each.strip() for each in forwarded.split(",")]
    found = list(filter(_is_address, listed[-_MAX_ADDRESSES:]))
    if real not in found and _is_address(real):
        found.append(real)
    if remote and (not found or found[-1] != remote):
        found.append(remote)
    return found


def _is_address(text: str) -> bool:
    if "%" in text:  # Go's net.ParseIP accepts no zones
        return False
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
