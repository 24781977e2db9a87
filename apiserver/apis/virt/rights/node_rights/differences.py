"""Permission checks that machines and migrations share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from apiserver.apis.meta import times
from apiserver.apis.meta.validation import FieldError, Path, forbidden
from apiserver.apis.virt.lifecycle import phases

STATUS: Final = Path("status")
PHASE_FIELDS: Final = frozenset({"phase", "phaseTransitionTimestamps"})
MAX_SKEW: Final = timedelta(minutes=5)
"""Allowed clock difference of a node."""
_MAX_SHOWN: Final = 64
"""Characters of an invalid name in a refusal."""


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the names of members that differ, sorted; null means absent."""
    return sorted(field for field in old.keys() | new.keys() if old.get(field) != new.get(field))


def conditions(
    old: Mapping[str, Any], new: Mapping[str, Any], settable: frozenset[str], removable: frozenset[str] = frozenset()
) -> Iterator[FieldError]:
    """Compare two statuses; yield errors for changed conditions of types not ``settable``, and removed ones not ``removable``."""
    before, after = ({each.get("type"): each for each in status.get("conditions") or ()} for status in (old, new))
    for kind in changed(before, after):
        if kind not in (settable if kind in after else removable):
            yield forbidden(STATUS.child("conditions").key(shown(kind)), "may not be set or removed by virt-handler now")


def timestamps(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[FieldError]:
    """Compare two statuses; yield an error unless ``phaseTransitionTimestamps`` only gets the entry of a new phase."""
    before, after = ([*(status.get("phaseTransitionTimestamps") or ())] for status in (old, new))
    path = STATUS.child("phaseTransitionTimestamps")
    if old.get("phase") == new.get("phase"):
        if before != after:
            yield forbidden(path, "may not change while the phase does not")
    elif not after or after[-1].get("phase") != new.get("phase") or after != [*before, after[-1]][-phases.MAX_TIMESTAMPS :]:
        yield forbidden(path, "must be the former entries and one of the new phase")


def moment(path: Path, text: object, now: datetime) -> Iterator[FieldError]:
    """Yield an error for a time (RFC 3339) more than ``MAX_SKEW`` from ``now``: it would skip or extend the back-off."""
    if text and abs(times.parse(str(text)) - now) > MAX_SKEW:
        minutes = int(MAX_SKEW.total_seconds() // 60)
        yield forbidden(path, f"must be within {minutes} minutes of virt-api's clock, which says {times.to_rfc3339(now)}")


def shown(name: object) -> str:
    """Return a name as errors show it, cut if long."""
    text = str(name)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
