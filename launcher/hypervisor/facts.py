"""libvirt's dictionaries of figures and guest facts as our dataclasses. The guest's words are cut to a sane length."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from launcher.hypervisor.port import GuestFacts, GuestInterface, Progress

MAX_TEXT: Final = 256
MAX_INTERFACES: Final = 64
MAX_ADDRESSES: Final = 16


def progress(stats: Mapping[str, Any]) -> Progress | None:
    """Return the figures of virDomainGetJobStats; None when no job is behind them."""
    if "time_elapsed" not in stats and "memory_total" not in stats:
        return None
    return Progress(
        elapsed_milliseconds=int(stats.get("time_elapsed", 0)),
        memory_total_bytes=int(stats.get("memory_total", 0)),
        memory_processed_bytes=int(stats.get("memory_processed", 0)),
        memory_remaining_bytes=int(stats.get("memory_remaining", 0)),
        iteration=int(stats.get("memory_iteration", 0)),
        downtime_milliseconds=int(stats.get("downtime", 0)),
    )


def guest_facts(told: Mapping[str, Any], interfaces: Mapping[str, Any] | None) -> GuestFacts:
    """Return what virDomainGetGuestInfo and virDomainInterfaceAddresses said."""
    return GuestFacts(
        hostname=_text(told.get("hostname")),
        os_id=_text(told.get("os.id")),
        os_name=_text(told.get("os.pretty-name") or told.get("os.name")),
        os_version=_text(told.get("os.version-id") or told.get("os.version")),
        kernel_release=_text(told.get("os.kernel-release")),
        timezone=_text(told.get("timezone.name")),
        interfaces=tuple(
            _interface(device, facts) for device, facts in list((interfaces or {}).items())[:MAX_INTERFACES] if device != "lo"
        ),
    )


def _interface(device: str, facts: Mapping[str, Any]) -> GuestInterface:
    addresses = [parsed for item in (facts.get("addrs") or ())[:MAX_ADDRESSES] if (parsed := _address(item.get("addr"))) is not None]
    addresses.sort(key=lambda address: address.version)
    return GuestInterface(_text(device), _text(facts.get("hwaddr")).lower(), tuple(map(str, addresses)))


def _address(text: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(str(text))
    except ValueError:
        return None
    return None if address.is_loopback or address.is_link_local else address


def _text(value: object) -> str:
    text = str(value or "")[:MAX_TEXT]
    return text if text.isprintable() else "".join(character for character in text if character.isprintable())
