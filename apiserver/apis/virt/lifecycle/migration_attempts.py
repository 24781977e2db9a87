"""Attempts of one Migration: one that failed for a cause that may be gone is followed by another, to another target pod. Pure.

``status.attempt`` is the number of the present one, ``status.attempts`` has those that failed. virt-controller decides whether there is
another, and only where nothing runs in the target any more and the guest is known to have stayed: because it never began to move, or
because virt-launcher of the source said so, which virt-handler of the source reports. A Migration of a virt-controller that was older has
no number, and its first failure is its end.

To virt-launcher, and to the virt-handlers' relays, each attempt is a migration of its own, with a uid of its own: what one of them knows of
an earlier attempt never counts for a later one, the word that the guest left least of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import objects, times

MAX_ATTEMPTS: Final = 3
"""virt-launcher remembers four migrations, and a node that fails each attempt costs no more than these."""
CONNECTION_BROKEN: Final = "ConnectionBroken"
"""The connection between the nodes, or a process at one of its ends, ended; virt-handler of the source says that the guest stayed."""
TARGET_POD_ENDED: Final = "TargetPodEnded"
TARGET_POD_DELETED: Final = "TargetPodDeleted"
REPORTED: Final = frozenset({CONNECTION_BROKEN})
"""Reasons that virt-handler of the source writes; the others are virt-controller's."""
REASONS: Final = (CONNECTION_BROKEN, TARGET_POD_ENDED, TARGET_POD_DELETED)


def number_of(migration: Mapping[str, Any]) -> int:
    """Return the number of the present attempt; 0 where nobody counts, it has not begun, or what is stored is none.

    A machine's pods are looked for by its Migrations before anybody says whether these are sound.
    """
    found = objects.dig(migration, "status", "attempt")
    return found if type(found) is int else 0


def uid_of(migration: Mapping[str, Any]) -> str:
    """Return the uid of the present attempt, which is the Migration's for the first."""
    number = number_of(migration)
    return objects.uid_of(migration) if number <= 1 else f"{objects.uid_of(migration)}-{number}"


def failure_of(migration: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the entry of the present attempt in ``status.attempts``; None while it has not failed."""
    number = number_of(migration)
    failed = objects.dig(migration, "status", "attempts") or ()
    return next((each for each in failed if each["number"] == number), None) if number else None


def nodes_of(migration: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nodes of the targets of the attempts that failed, each once, in order."""
    failed = objects.dig(migration, "status", "attempts") or ()
    return tuple(sorted({str(node) for each in failed if (node := each.get("targetNode"))}))


def is_reported(migration: Mapping[str, Any]) -> bool:
    """Return whether virt-handler of the source has said that the present attempt failed and that the guest stayed."""
    failure = failure_of(migration)
    return failure is not None and failure.get("reason") in REPORTED


def failed(migration: Mapping[str, Any], reason: str, message: str, now: datetime) -> list[dict[str, Any]]:
    """Return ``status.attempts`` once the present attempt has failed."""
    number, status = number_of(migration), migration.get("status") or {}
    entry = {"number": number, "reason": reason, "message": message, "endTime": times.to_rfc3339(now)}
    entry |= {key: status[key] for key in ("targetNode", "targetPod") if status.get(key)}
    others = [dict(each) for each in status.get("attempts") or () if each["number"] != number]
    return sorted([*others, entry], key=lambda each: int(each["number"]))
