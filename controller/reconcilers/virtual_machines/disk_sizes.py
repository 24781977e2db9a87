"""Warnings of disks that are larger than their claims. Pure.

Much storage enforces no size, until it is full for all its users. DisksReady names such a disk, so one Event warns of it.
"""

from __future__ import annotations

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, condition, with_condition
from apiserver.apis.virt.lifecycle import conditions
from controller.reconcilers import disk_claims
from controller.reconcilers.actions import Emit
from controller.reconcilers.pods import pod_state
from controller.reconcilers.virtual_machines import statuses
from controller.reconcilers.virtual_machines.observed import Observed


def warnings(seen: Observed) -> tuple[Emit, ...]:
    """Return one warning that names the disks larger than their claims, or nothing. The machine must be starting, which is not checked."""
    return _warning(disk_claims.too_small(seen.vm, seen.claims))


def marked(seen: Observed, status: Object) -> Object:
    """Return ``status`` with the disks larger than their claims in the message of DisksReady=True; unchanged if it is not True."""
    stored = condition(status.get("conditions"), conditions.DISKS_READY)
    if stored is None or stored.get("status") != "True":
        return status
    found = disk_claims.too_small(seen.vm, seen.claims)
    if not found and disk_claims.SIZE not in str(stored.get("message")):
        return status
    return {**status, "conditions": with_condition(status.get("conditions"), statuses.disks_ready(seen), now=times.to_rfc3339(seen.now))}


def events(seen: Observed, status: Object) -> tuple[Emit, ...]:
    """Return a warning about too small claims that DisksReady in ``status`` names for the first time; empty if none."""
    before, after = _told(statuses.status_of(seen)), _told(status)
    return _warning(tuple(each for each in disk_claims.too_small(seen.vm, seen.claims) if each in after and each not in before))


def _told(status: Object) -> str:
    return str((condition(status.get("conditions"), conditions.DISKS_READY) or {}).get("message") or "")


def _warning(found: tuple[str, ...]) -> tuple[Emit, ...]:
    if not found:
        return ()
    message = f"{'; '.join(found)}: writes of the guest can fail before its disk is full, or use up space that others need"
    return (Emit("Warning", conditions.CLAIM_TOO_SMALL, one_line(message, pod_state.MAX_MESSAGE)),)
