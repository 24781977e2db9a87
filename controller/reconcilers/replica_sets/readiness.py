"""Whether a machine of a set is ready, and available. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases


def ready_since(vm: Object) -> datetime | None:
    """Return when the machine became ready; None if it is not, or if its conditions cannot be read."""
    ready = condition(_conditions_of(vm), conditions.READY)
    if ready is None or ready.get("status") != "True":
        return None
    return times.parsed(ready.get("lastTransitionTime"))


def may_be_ready(vm: Object) -> bool:
    """Return whether the machine is ready, or its Ready is Unknown."""
    return (condition(_conditions_of(vm), conditions.READY) or {}).get("status") in ("True", "Unknown")


def available_from(vm: Object, min_ready_seconds: int) -> datetime | None:
    """Return when the machine is available if it stays ready; None if it is not ready."""
    since = ready_since(vm)
    try:
        return None if since is None else since + timedelta(seconds=min_ready_seconds)
    except OverflowError:
        return since  # its node says that it became ready at the end of the year 9999


def is_off_as_specified(vm: Object) -> bool:
    """Return whether the machine is off because its ``runStrategy`` says so: it is Stopped, without a condition Ready."""
    return phases.phase_of(vm) == phases.STOPPED and condition(_conditions_of(vm), conditions.READY) is None


def _conditions_of(vm: Object) -> list[Any]:
    found = dig_vm(vm, "status", "conditions")
    return found if isinstance(found, list) and all(isinstance(each, dict) for each in found) else []
