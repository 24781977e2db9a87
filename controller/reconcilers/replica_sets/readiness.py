"""Whether a machine of a set is ready, and available. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions


def ready_since(vm: Object) -> datetime | None:
    """Return when the machine became ready; None if it is not, or if its conditions cannot be read."""
    found = dig_vm(vm, "status", "conditions")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        return None
    ready = condition(found, conditions.READY)
    if ready is None or ready.get("status") != "True":
        return None
    try:
        return times.parse(str(ready.get("lastTransitionTime")))
    except ValueError:
        return None


def available_from(vm: Object, min_ready_seconds: int) -> datetime | None:
    """Return when the machine is available if it stays ready; None if it is not ready."""
    since = ready_since(vm)
    return None if since is None else since + timedelta(seconds=min_ready_seconds)
