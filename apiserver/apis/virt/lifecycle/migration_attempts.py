"""Attempts of a Migration, each with its own target pod.

``status.attempt`` is the current attempt's number; ``status.attempts`` lists the failed ones. virt-controller retries a failure that may be
temporary if nothing runs in the target and the guest is on the source: it never began to move, or the source's virt-launcher reported it.
Without a number, from an older virt-controller, the first failure is final.

Each attempt has its own uid, so reports about an earlier one never apply to a later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import objects, times
from apiserver.apis.virt.kinds import dig_migration

MAX_ATTEMPTS: Final = 3
"""virt-launcher remembers four. It also bounds the cost of a node where every attempt fails."""
CONNECTION_BROKEN: Final = "ConnectionBroken"
"""A connection or a process at its ends ended; the source's virt-handler reports that the guest stayed."""
TARGET_POD_ENDED: Final = "TargetPodEnded"
TARGET_POD_DELETED: Final = "TargetPodDeleted"
REPORTED: Final = frozenset({CONNECTION_BROKEN})
"""Reasons of the source's virt-handler; virt-controller writes others."""
REASONS: Final = (CONNECTION_BROKEN, TARGET_POD_ENDED, TARGET_POD_DELETED)


def number_of(migration: Mapping[str, Any]) -> int:
    """Return the number of a Migration's current attempt; 0 if unset or invalid."""
    found = dig_migration(migration, "status", "attempt")
    return found if type(found) is int else 0


def uid_of(migration: Mapping[str, Any]) -> str:
    """Return the uid of a Migration's current attempt; that of the first is the Migration's."""
    number = number_of(migration)
    return objects.uid_of(migration) if number <= 1 else f"{objects.uid_of(migration)}-{number}"


def failure_of(migration: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the current attempt's entry in ``status.attempts`` if it failed, else None."""
    number = number_of(migration)
    failed = dig_migration(migration, "status", "attempts") or ()
    return next((each for each in failed if each["number"] == number), None) if number else None


def nodes_of(migration: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the target nodes of a Migration's failed attempts, without duplicates."""
    failed = dig_migration(migration, "status", "attempts") or ()
    return tuple(sorted({str(node) for each in failed if (node := each.get("targetNode"))}))


def is_reported(migration: Mapping[str, Any]) -> bool:
    """Return whether the source's virt-handler reported that the current attempt failed and the guest stayed."""
    failure = failure_of(migration)
    return failure is not None and failure.get("reason") in REPORTED


def failed(migration: Mapping[str, Any], reason: str, message: str, now: datetime) -> list[dict[str, Any]]:
    """Return ``status.attempts`` with the current attempt's failure as an entry."""
    number, status = number_of(migration), migration.get("status") or {}
    entry = {"number": number, "reason": reason, "message": message, "endTime": times.to_rfc3339(now)}
    entry |= {key: status[key] for key in ("targetNode", "targetPod") if status.get(key)}
    others = [dict(each) for each in status.get("attempts") or () if each["number"] != number]
    return sorted([*others, entry], key=lambda each: int(each["number"]))
