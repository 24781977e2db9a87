"""The condition ``RebootLoop``: the guest reboots again and again. Pure.

virt-launcher counts reboots, and virt-handler remembers when the count grew. After its restart, a loop shows again after :data:`MANY`
reboots, and a condition that is True stays until the guest did not reboot for the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apiserver.apis.meta import objects, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import conditions

MANY: Final = 5
"""Within the window; an installer, or updates of Windows, need fewer."""
WINDOW: Final = timedelta(minutes=5)
MESSAGE: Final = f"the guest rebooted at least {MANY} times within {WINDOW.seconds // 60} minutes; check its console"


@dataclass(frozen=True, slots=True)
class Reboots:
    """Reboots of the guest in one pod, as this process saw them."""

    count: int
    """virt-launcher's last total."""
    since: datetime
    """The first look."""
    times: tuple[datetime, ...] = ()
    """The newest :data:`MANY`, the oldest first."""


def noted(before: Reboots | None, count: int, now: datetime) -> Reboots:
    """Return Reboots with ``now`` for each new reboot in virt-launcher's ``count``; the first report adds none."""
    if before is None:
        return Reboots(count, now)
    more = min(max(count - before.count, 0), MANY)
    return Reboots(count, before.since, (*before.times, *[now] * more)[-MANY:])


def with_loop(vm: Object, status: Object, reboots: Reboots, now: datetime) -> tuple[Object, float | None]:
    """Return the status with ``RebootLoop`` if it is or was True, and the seconds until the next check, or None."""
    is_loop = len(reboots.times) == MANY and reboots.times[-1] - reboots.times[0] <= WINDOW
    was_loop = objects.is_true(status.get("conditions"), conditions.REBOOT_LOOP)
    quiet = now - max((reboots.since, *reboots.times[-1:]))
    if not was_loop and (not is_loop or quiet >= WINDOW):
        return status, None
    if quiet < WINDOW:
        told, again = ("True", "RebootedRepeatedly", MESSAGE), max((WINDOW - quiet).total_seconds(), 1.0)
    else:
        told, again = ("False", "Quiet", ""), None
    loop = objects.new_condition(vm, conditions.REBOOT_LOOP, *told)
    return objects.with_status_condition(status, loop, now=times.to_rfc3339(now)), again


def began(vm: Object, status: Object) -> bool:
    """Return whether this status reports a reboot loop that the stored one does not."""
    before, after = (objects.is_true(each.get("conditions"), conditions.REBOOT_LOOP) for each in (vm.get("status") or {}, status))
    return after and not before
