"""Disks that the running guest gets and loses: the next step, and the record of failed ones. Pure.

The guest has what virt-launcher reports. It should have the disks of the running form that are desired
(:mod:`apiserver.apis.virt.spec.hot_plug`). Each step can be repeated, so none needs a memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import times
from apiserver.apis.meta.backoff import pause_seconds
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import hot_plug, live_changes
from launcher.protocol import messages

MAX_MESSAGE: Final = 512
RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
REPORTED: Final = 2
"""Failed attempts in a row from which on they are reported: a new pod's process does not listen at once."""
ATTACHED: Final = "DiskAttached"
DETACHED: Final = "DiskDetached"
"""Reasons of Events."""


@dataclass(frozen=True, slots=True)
class Attach:
    """Mount a disk's claim in the pod, and have the launcher give the guest the disk."""

    disk: Object

    @property
    def name(self) -> str:
        """Return the disk's name."""
        return str(self.disk["name"])


@dataclass(frozen=True, slots=True)
class Detach:
    """Have the guest release a disk, unmount its claim, and write that it is gone."""

    disk: Object

    @property
    def name(self) -> str:
        """Return the disk's name."""
        return str(self.disk["name"])


Step = Attach | Detach


@dataclass(frozen=True, slots=True)
class Failure:
    """The last attempt of a step."""

    message: str
    count: int
    again: float
    """Time of the next attempt, in the event loop's time."""
    disk: Object
    """An edit ends the pause."""


Failures = Mapping[str, Failure]
"""By the path of the disk."""


def steps(vm: Object, launcher: messages.Status) -> tuple[Step, ...]:
    """Return all missing steps, those of removed disks first."""
    if launcher.domain is None:
        return ()
    there = {each.name for each in launcher.domain.devices if each.kind == "disk" and not each.empty}
    found: tuple[Step, ...] = (
        *(Detach(each) for each in hot_plug.removed(vm)),
        *(Attach(each) for each in hot_plug.kept(vm) if each["name"] not in there),
    )
    return tuple(each for each in found if hot_plug.is_supported(each.disk, launcher.domain.changes))


def next_step(vm: Object, launcher: messages.Status, failures: Failures, now: float) -> Step | None:
    """Return the first step that is due, or None."""
    return next((each for each in steps(vm, launcher) if _is_due(each, failures.get(hot_plug.path_of(each.name)), now)), None)


def failure_after(step: Step, message: str, before: Failure | None, now: float) -> Failure:
    """Return the record of a failed attempt; the pauses double."""
    count = 1 if before is None or before.disk != step.disk else before.count + 1
    seconds = pause_seconds(count, RETRY_SECONDS, MAX_RETRY_SECONDS)
    return Failure(one_line(message, MAX_MESSAGE), count, now + seconds, step.disk)


def current(vm: Object, launcher: messages.Status, failures: Failures) -> dict[str, Failure]:
    """Return the failures of steps that are still missing."""
    paths = {hot_plug.path_of(each.name) for each in steps(vm, launcher)}
    return {path: failure for path, failure in failures.items() if path in paths}


def pause(vm: Object, launcher: messages.Status, failures: Failures, now: float) -> float | None:
    """Return in how many seconds the next attempt of a failed step is due, or None."""
    due = [failures[path].again for each in steps(vm, launcher) if (path := hot_plug.path_of(each.name)) in failures]
    return max(min(due) - now, 0.0) if due else None


def with_entries(vm: Object, status: Object, launcher: messages.Status, failures: Failures, now: datetime) -> Object:
    """Return the status with the failed steps among its changes."""
    before = {entry.get("path"): entry for entry in live_changes.entries(vm)}
    paths = (hot_plug.path_of(each.name) for each in steps(vm, launcher))
    found = [_entry(path, failures[path], before, now) for path in paths if path in failures and failures[path].count >= REPORTED]
    others = list(status.get(live_changes.FIELD) or ())
    return {**status, live_changes.FIELD: [*others, *found][: live_changes.MAX_CHANGES]} if found else status


def detached(vm: Object, disk: Mapping[str, Any], now: datetime) -> Object:
    """Return the status that says that the guest released a disk; virt-api then takes it from the running form."""
    status: Object = dict(vm.get("status") or {})
    path = hot_plug.path_of(str(disk["name"]))
    others = [each for each in live_changes.entries(vm) if each.get("path") != path]
    entry = {"path": path, "state": live_changes.APPLIED, "time": times.to_rfc3339(now)}
    return {**status, live_changes.FIELD: [*others[: live_changes.MAX_CHANGES - 1], entry]}


def _entry(path: str, failure: Failure, before: Mapping[Any, Mapping[str, Any]], now: datetime) -> Object:
    old = before.get(path) or {}
    time = old["time"] if old.get("time") and old.get("state") == live_changes.FAILED else times.to_rfc3339(now)
    return {"path": path, "state": live_changes.FAILED, "time": time, "message": failure.message}


def _is_due(step: Step, failure: Failure | None, now: float) -> bool:
    return failure is None or failure.again <= now or failure.disk != step.disk
