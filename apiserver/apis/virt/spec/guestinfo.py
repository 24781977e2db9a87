"""Fields of ``…/virtualmachines/NAME/guestinfo`` from the guest agent, and their limits.

The guest may send false values of any size and type, so each process limits what it receives (:func:`bounded`).
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object

NAME: Final = "guestinfo"
MAX_INTEGER: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Text:
    """A shape: one line of at most ``limit`` characters."""

    limit: int


@dataclass(frozen=True, slots=True)
class Number:
    """A shape: an integer of 64 bits."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A shape: an RFC 3339 time."""


@dataclass(frozen=True, slots=True)
class Address:
    """A shape: an IP address."""


@dataclass(frozen=True, slots=True)
class Items:
    """A shape: a list of at most ``limit`` items of the shape ``of``."""

    limit: int
    of: Shape


Shape = Text | Number | Moment | Address | Items | Mapping[str, Any]
"""A mapping is an object with each field's shape."""

FIELDS: Final[Mapping[str, Shape]] = {
    "time": Moment(),
    "agent": {"version": Text(64), "commands": Items(256, Text(64))},
    "os": {
        "id": Text(64),
        "name": Text(128),
        "prettyName": Text(256),
        "version": Text(128),
        "versionId": Text(64),
        "kernelRelease": Text(128),
        "kernelVersion": Text(256),
        "machine": Text(32),
    },
    "hostname": Text(253),
    "timezone": {"name": Text(64), "offsetSeconds": Number()},
    "users": Items(64, {"userName": Text(64), "domain": Text(64), "loginTime": Moment()}),
    "filesystems": Items(
        64,
        {
            "name": Text(64),
            "mountPoint": Text(256),
            "type": Text(32),
            "totalBytes": Number(),
            "usedBytes": Number(),
            "disks": Items(8, {"device": Text(64), "serial": Text(64), "bus": Text(16)}),
        },
    ),
    "interfaces": Items(64, {"name": Text(63), "mac": Text(32), "device": Text(64), "ipAddresses": Items(16, Address())}),
    "applications": Items(2000, {"name": Text(128), "version": Text(128)}),
    "unavailable": Items(16, {"field": Text(32), "reason": Text(512)}),
    "truncated": Items(16, Text(32)),
}
MAX_BYTES: Final = 180 << 10
"""All fields as JSON text inside a JSON string, as transmitted."""


def bounded(value: object) -> Object:
    """Return the valid part of a value: known fields of the right type. Texts and lists are cut to their limits."""
    return _bounded(FIELDS, value) or {}


def parse(text: str) -> Object:
    """Return the valid part of a guest's information.

    Raises:
        ValueError: it is not a JSON object.
    """
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("no object")  # noqa: TRY004 - the callers' word for whatever is wrong
    return bounded(found)


def fitted(info: Object) -> Object:
    """Return the information cut to ``MAX_BYTES``: repeatedly drops the second half of the longest list.

    ``truncated`` names the shortened lists.
    """
    cut: set[str] = set(info.get("truncated") or ())
    while _quoted_length(info) > MAX_BYTES:
        longest = max((key for key, value in info.items() if isinstance(value, list) and value), key=lambda key: _quoted_length(info[key]))
        cut.add(longest)
        info = {**info, longest: info[longest][: len(info[longest]) // 2], "truncated": sorted(cut)}
    return info


def has_more(field: str, value: object) -> bool:
    """Return whether the agent's list for this field exceeds the field's limit."""
    shape = FIELDS[field]
    return isinstance(shape, Items) and isinstance(value, list) and len(value) > shape.limit


def _quoted_length(value: object) -> int:
    return len(json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False).encode())


def _bounded(shape: Shape, value: object) -> Any:  # noqa: ANN401 - any JSON value
    match shape:
        case Text():
            return (one_line(value, shape.limit) or None) if isinstance(value, str) else None
        case Number():
            return value if type(value) is int and abs(value) <= MAX_INTEGER else None
        case Moment():
            return value if isinstance(value, str) and _is_moment(value) else None
        case Address():
            return _address(value)
        case Items():
            listed = value[: shape.limit] if isinstance(value, list) else ()
            return [found for each in listed if (found := _bounded(shape.of, each)) is not None] or None
        case _:
            members = value if isinstance(value, dict) else {}
            return {field: found for field, of in shape.items() if (found := _bounded(of, members.get(field))) is not None} or None


def _is_moment(text: str) -> bool:
    return len(text) <= 40 and times.parsed(text) is not None


def _address(value: object) -> str | None:
    try:
        return str(ipaddress.ip_address(value)) if isinstance(value, str) and len(value) <= 64 and "%" not in value else None
    except ValueError:
        return None
