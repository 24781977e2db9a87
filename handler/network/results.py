"""Requests to network plugins about an interface, and their results. Pure.

docs/plugins.md specifies those of third parties. Our own plugins get further data in the member ``own``, and return the fields of
``Interface``.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.places import network
from handler.network.binding import Interface, Port, Wanted
from launcher.protocol import reading

_K = TypeVar("_K")

_KNOWN: Final = ("name", "is_own", "live_migration")
"""Fields of an interface that virt-handler sets itself."""
MAX_ADDRESSES: Final = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Own:
    """Further fields of an interface that only our own plugins get."""

    ports: tuple[Port, ...] | None = None
    ipv6_first: bool = False
    device: str = ""


def document_of(interface: Wanted) -> dict[str, Any]:
    """Return the member ``interface`` of a plugin's request; only our own plugins get ``own`` in it."""
    document: dict[str, Any] = {
        "name": interface.name,
        "type": interface.type,
        "plugin": interface.plugin,
        "options": dict(interface.options),
        "mac": interface.mac,
        "model": interface.model,
        "queues": interface.queues,
        "network": interface.network,
        "tap": interface.tap,
        "bridge": interface.bridge,
        "uplink": interface.uplink,
    }
    if interface.type != interfaces.PLUGIN:
        document["own"] = dataclasses.asdict(Own(interface.ports, interface.ipv6_first, interface.device))
    return document


def wanted(given: object) -> Wanted:
    """Return the interface that a request to our plugin describes. Raises ValueError."""
    found = _read(Wanted, given)
    own = _read(Own, given["own"]) if isinstance(given, Mapping) and "own" in given else Own()
    return dataclasses.replace(found, ports=own.ports, ipv6_first=own.ipv6_first, device=own.device)


def members(interface: Interface) -> dict[str, Any]:
    """Return our plugin's result that describes ``interface``, without what virt-handler sets itself."""
    return {key: value for key, value in dataclasses.asdict(interface).items() if key not in _KNOWN}


def of_ours(interface: Wanted, result: Mapping[str, Any]) -> Interface:
    """Return the interface in the result of one of our plugins. Raises ValueError."""
    made = {key: value for key, value in result.items() if key != "version"}
    return _read(Interface, {**made, "name": interface.name, "is_own": not interface.network})


def of_theirs(interface: Wanted, result: Mapping[str, Any], *, live_migration: bool) -> Interface:
    """Return the interface in a third-party plugin's result, without a check of the tap.

    Raises ValueError if it does not match the request.
    """
    for member, asked in (("tap", interface.tap), ("mac", interface.mac)):
        said = result.get(member)
        said = network.normal_mac(said) if member == "mac" and isinstance(said, str) else said
        if said != asked:
            raise ValueError(f"{member} is {one_line(str(said), 64)}, must be {asked}")
    addresses = result.get("addresses", [])
    if not isinstance(addresses, list) or len(addresses) > MAX_ADDRESSES:
        raise ValueError(f"addresses must be a list of at most {MAX_ADDRESSES}")
    found = tuple(_address(each) for each in addresses)
    return Interface(interface.name, interface.mac, interface.tap, interface.model, found, is_own=False, live_migration=live_migration)


def _address(given: object) -> str:
    try:
        return str(ipaddress.ip_address(given if isinstance(given, str) else ""))
    except ValueError as error:
        raise ValueError(f"addresses: {one_line(str(given), 64)!r} is not an IP address") from error


def tap_problem(interface: Interface, told: object, user: frozenset[str], *, several_queues: bool) -> str:
    """Return why the guest cannot use the tap; else empty.

    ``told``: decoded output of ``ip -json -details link show dev TAP``; ``user``: names of the required owner in ``ip``;
    ``several_queues``: the tap must have multi_queue, else must not.
    """
    found = told[0] if isinstance(told, list) and told and isinstance(told[0], dict) else {}
    of_tun = (found.get("linkinfo") or {}).get("info_data") or {}
    if found.get("ifname") != interface.tap or of_tun.get("type") != "tap":
        return f"the pod has no tap device {interface.tap}"
    if str(of_tun.get("user")) not in user:
        return f"{interface.tap} belongs to user {of_tun.get('user')}, must belong to {min(user)}"
    if bool(of_tun.get("multi_queue")) != several_queues:
        return f"{interface.tap} must be created {'with' if several_queues else 'without'} multi_queue"
    return "" if "UP" in found.get("flags", ()) else f"{interface.tap} is down"


def _read(kind: type[_K], given: object) -> _K:
    try:
        return reading.read(kind, given, "interface")
    except reading.ProtocolError as error:
        raise ValueError(str(error)) from error
