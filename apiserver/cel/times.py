"""Durations and timestamps: parsing, formatting, parts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from apiserver.cel.values import NANOS, CelError, Duration, Timestamp, checked_duration, checked_timestamp

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 10**6, "s": NANOS, "m": 60 * NANOS, "h": 3600 * NANOS}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_OFFSET: Final = re.compile(r"([+-]?)([0-9]{1,2}):([0-9]{2})")
_LONGEST: Final = 128


def parse_duration(text: str) -> Duration:
    """Parse a duration like Go's ``time.ParseDuration``: ``1h30m``, ``-1.5s``. Raises CelError."""
    invalid = CelError(f'time: invalid duration "{text[:_LONGEST]}"')
    if not text or len(text) > _LONGEST:
        raise invalid
    negative = text[0] == "-"
    rest = text[1:] if text[0] in "+-" else text
    if rest == "0":
        return Duration(0)
    if not rest:
        raise invalid
    nanos, position = 0, 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None or not (part[1] or part[2]):
            raise invalid
        unit = _UNITS[part[3]]
        nanos += int(part[1] or 0) * unit + int((part[2] or "0")[:30]) * unit // 10 ** len((part[2] or "0")[:30])
        position = part.end()
    return checked_duration(-nanos if negative else nanos)


def parse_timestamp(text: str) -> Timestamp:
    """Parse an RFC 3339 time, or raise CelError."""
    invalid = CelError(f'parsing time "{text[:_LONGEST]}" as "2006-01-02T15:04:05Z07:00": cannot parse')
    match = _TIMESTAMP.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise invalid
    year, month, day, hour, minute, second = (int(each) for each in match.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise invalid from None
    nanos, offset = _nanos(moment) + int((match[7] or "0")[:9].ljust(9, "0")), 0
    if match[8]:
        hours, minutes = int(match[9]), int(match[10])
        if hours > 24 or minutes > 60:
            raise invalid
        offset = (-1 if match[8] == "-" else 1) * (hours * 60 + minutes)
        nanos -= offset * 60 * NANOS
    return checked_timestamp(nanos, offset)


def _nanos(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * NANOS + since.microseconds * 1000


def duration_text(duration: Duration) -> str:
    """Return a duration as seconds in Go's float format: ``5400s``, ``1.5s``."""
    seconds = duration.nanos / NANOS
    return f"{seconds:.0f}s" if seconds.is_integer() else f"{_plain(seconds)}s"


def _plain(number: float) -> str:
    text = repr(number)
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    places = max(0, len(mantissa.partition(".")[2]) - int(exponent))
    return f"{number:.{places}f}"


def timestamp_text(timestamp: Timestamp) -> str:
    """Format as RFC 3339, with the necessary fraction."""
    seconds, nanos = divmod(timestamp.nanos, NANOS)
    offset = timestamp.offset
    try:
        moment = _EPOCH + timedelta(seconds=seconds, minutes=offset)
    except OverflowError:
        moment, offset = _EPOCH + timedelta(seconds=seconds), 0
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    zone = f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}" if offset else "Z"
    return f"{moment.year:04d}-{moment.strftime('%m-%dT%H:%M:%S')}{fraction}{zone}"


def local(timestamp: Timestamp, zone: str = "UTC") -> datetime:
    """Return a timestamp (without nanoseconds) in a zone: a name, or ``+01:00``. Raises CelError."""
    try:
        return (_EPOCH + timedelta(seconds=timestamp.nanos // NANOS)).astimezone(_zone(zone))
    except OverflowError:
        raise CelError("timestamp overflow") from None


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    if offset := _OFFSET.fullmatch(name):
        sign = -1 if offset[1] == "-" else 1
        minutes = int(offset[2]) * 60 + int(offset[3])
        if minutes < 24 * 60:
            return timezone(sign * timedelta(minutes=minutes))
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise CelError(f"unknown time zone {name[:_LONGEST]}") from None
