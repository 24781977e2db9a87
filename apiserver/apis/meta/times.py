"""Times and durations of the API: RFC 3339 in UTC, Go durations, and ages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_RFC3339: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_GO_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_GO_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_SECONDS: Final = (2**63 - 1) * 1e-9


def to_rfc3339(moment: datetime) -> str:
    """Return a ``metav1.Time``: whole seconds, UTC, ``Z``. ``moment`` must have a time zone."""
    return _second(int(moment.replace(microsecond=0).timestamp()))  # a float is too imprecise for distant centuries


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_rfc3339_micro(moment: datetime) -> str:
    """Return a ``metav1.MicroTime``: UTC, six digits of a second. ``moment`` must have a time zone."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> datetime:
    """Return an RFC 3339 time as a datetime in UTC, without the digits below microseconds.

    Raises:
        ValueError: it is no RFC 3339 time with a zone, or outside of the years 1 to 9999.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an RFC 3339 time such as 2006-01-02T15:04:05Z")
    day, clock, fraction, zone = match.groups()
    zone = "+00:00" if zone in "Zz" else zone
    local = datetime.fromisoformat(f"{day}T{clock}{(fraction or '')[:7].ljust(7, '0') if fraction else ''}{zone}")
    try:
        return local.astimezone(UTC)
    except OverflowError as error:  # at the ends of the years 1 to 9999, by time zones
        raise ValueError(f"{text!r} is not a time of the years 1 to 9999 in UTC") from error


def parsed(value: object) -> datetime | None:
    """Parse an RFC 3339 time like :func:`parse`; return None for any other value."""
    try:
        return parse(value) if isinstance(value, str) else None
    except ValueError:
        return None


def parse_duration(text: str) -> timedelta:
    """Return a Go duration such as ``1m30s`` or ``-5s`` as a timedelta; only ``0`` needs no unit.

    Raises:
        ValueError: it is not one, or longer than Go's longest (292 years).
    """
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return timedelta()
    parts = _GO_DURATION.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise ValueError(f'time: invalid duration "{text}"')
    seconds = sum(float(number) * _GO_UNITS[unit] for number, unit in parts)
    if seconds > _LONGEST_SECONDS:
        raise ValueError(f'time: invalid duration "{text}"')
    return timedelta(seconds=sign * seconds)


def human(duration: timedelta) -> str:
    """Return an age like apimachinery's ``duration.HumanDuration``: ``5m30s``, ``3d4h``; ``<invalid>`` for -2 seconds or less."""
    seconds = int(duration.total_seconds())  # towards zero, as in Go
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 60 * 2:
        return f"{seconds}s"
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 10:
        return _pair(minutes, "m", seconds % 60, "s")
    if minutes < 60 * 3:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return _pair(hours // 24, "d", hours % 24, "h")
    if hours < 24 * 365 * 2:
        return f"{hours // 24}d"
    if hours < 24 * 365 * 8:
        return _pair(hours // 24 // 365, "y", hours // 24 % 365, "d")
    return f"{hours // 24 // 365}y"


def age(timestamp: str | None, now: datetime) -> str:
    """Return the AGE cell for a ``creationTimestamp``: ``<unknown>`` without a valid one."""
    moment = parsed(timestamp)
    return "<unknown>" if moment is None else human(now - moment)


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
