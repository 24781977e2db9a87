"""Converts answers of the QEMU guest agent to fields of :mod:`apiserver.apis.virt.spec.guestinfo`. Pure.

All values come from the guest: types are unchecked, ``guestinfo.bounded`` limits lengths. Source: ``qga/qapi-schema.json``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import guestinfo

MAX_LOOKED_AT: Final = 128
"""More than a list's limit, so an excess is noticed."""
MAX_LINES: Final = 2048


def items(value: object) -> list[Mapping[str, Any]]:
    """Return the objects among the first ``MAX_LOOKED_AT`` elements of a list; none for other values."""
    return [each for each in value[:MAX_LOOKED_AT] if isinstance(each, dict)] if isinstance(value, list) else []


def members(value: object) -> Mapping[str, Any]:
    """Return ``value`` if it is an object, or else an empty one."""
    return value if isinstance(value, dict) else {}


def agent(value: object) -> Object:
    """Return the agent's version and enabled commands, from its answer."""
    found = members(value)
    commands = sorted(str(each.get("name")) for each in items(found.get("supported_commands")) if each.get("enabled") is True)
    return {"version": found.get("version"), "commands": commands}


def operating_system(value: object) -> Object:
    """Return the fields of the guest's operating system in the agent's answer; missing ones are None."""
    words = {
        "id": "id",
        "name": "name",
        "prettyName": "pretty-name",
        "version": "version",
        "versionId": "version-id",
        "kernelRelease": "kernel-release",
        "kernelVersion": "kernel-version",
        "machine": "machine",
    }
    found = members(value)
    return {field: found.get(word) for field, word in words.items()}


def hostname(value: object) -> object:
    """Return the guest's host name in the agent's answer; None if missing."""
    return members(value).get("host-name")


def timezone(value: object) -> Object:
    """Return name and offset of the guest's time zone in the agent's answer."""
    found = members(value)
    return {"name": found.get("zone"), "offsetSeconds": found.get("offset")}


def users(value: object) -> list[Object]:
    """Return the users logged in to the guest, from the agent's answer."""
    return [
        {"userName": each.get("user"), "domain": each.get("domain"), "loginTime": _moment(each.get("login-time"))} for each in items(value)
    ]


def filesystems(value: object) -> list[Object]:
    """Return the guest's mounted file systems, from the agent's answer."""
    return [
        {
            "name": each.get("name"),
            "mountPoint": each.get("mountpoint"),
            "type": each.get("type"),
            "totalBytes": each.get("total-bytes"),
            "usedBytes": each.get("used-bytes"),
            "disks": [
                {"device": disk.get("dev"), "serial": disk.get("serial"), "bus": disk.get("bus-type")} for disk in items(each.get("disk"))
            ],
        }
        for each in items(value)
    ]


def interfaces(value: object) -> list[Object]:
    """Return the interfaces in the agent's answer except ``lo``, each with its addresses for other hosts, IPv4 first."""
    return [
        {
            "device": each.get("name"),
            "mac": str(each.get("hardware-address") or "").lower(),
            "ipAddresses": _addresses(each.get("ip-addresses")),
        }
        for each in items(value)
        if each.get("name") != "lo"
    ]


def named(info: Object, names: Mapping[str, str]) -> Object:
    """Return the information; interfaces get their names in the machine, which ``names`` has by MAC address."""
    if not info.get("interfaces"):
        return info
    found = [{**({"name": names[each["mac"]]} if each.get("mac") in names else {}), **each} for each in info["interfaces"]]
    return {**info, "interfaces": found}


def packages(text: str) -> list[Object]:
    """Return the packages in a listing of lines with name, tab and version, at most ``MAX_LINES``."""
    lines = [line.partition("\t") for line in text[: 1 << 20].splitlines()[:MAX_LINES]]
    return [{"name": name, "version": version} for name, tab, version in lines if tab]


QUESTIONS: Final[Mapping[str, tuple[str, Callable[[object], object]]]] = MappingProxyType(
    {
        "agent": ("guest-info", agent),
        "os": ("guest-get-osinfo", operating_system),
        "hostname": ("guest-get-host-name", hostname),
        "timezone": ("guest-get-timezone", timezone),
        "interfaces": ("guest-network-get-interfaces", interfaces),
        "users": ("guest-get-users", users),
        "filesystems": ("guest-get-fsinfo", filesystems),
    }
)
"""Each field's command, and the function that converts its answer. The first one returns the available commands."""
OF_STATUS: Final = ("agent", "os", "hostname", "timezone", "interfaces")


def field_of(field: str, answer: object) -> tuple[object, bool]:
    """Return a field's limited value from an answer, and whether it was shortened."""
    value = QUESTIONS[field][1](answer)
    return guestinfo.bounded({field: value}).get(field), guestinfo.has_more(field, value)


def _moment(seconds: object) -> str | None:
    if not isinstance(seconds, (int, float)):
        return None
    try:
        return times.to_rfc3339(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def _addresses(value: object) -> list[str]:
    found = []
    for each in items(value):
        try:
            address = ipaddress.ip_address(str(each.get("ip-address"))[:64])
        except ValueError:
            continue
        if not (address.is_loopback or address.is_link_local):
            found.append(address)
    return [str(each) for each in sorted(found, key=lambda address: address.version)]
