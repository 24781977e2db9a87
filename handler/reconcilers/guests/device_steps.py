"""Steps that attach devices to a running guest and detach them: the next one, and the failed ones. Pure.

Each can be repeated, so only failures are remembered, until the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final, TypeVar

from apiserver.apis.meta import times
from apiserver.apis.meta.backoff import pause_seconds
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import live_changes

MAX_MESSAGE: Final = 512
RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """A step that attaches or detaches one device; an edit of the device makes another step.

    ``reported``: consecutive failures before it is reported; 0: at once.
    """

    device: Object
    path_of: ClassVar[staticmethod[[str], str]]
    """Returns a device's path in the spec."""
    reported: ClassVar[int]

    @property
    def name(self) -> str:
        """Return the device's name."""
        return str(self.device["name"])

    @property
    def path(self) -> str:
        """Return the device's path in the spec."""
        return type(self).path_of(self.name)


S = TypeVar("S", bound=Step)


@dataclass(frozen=True, slots=True)
class Failure:
    """The last attempt of a step that failed or must wait; ``again``: the next one."""

    step: Step
    message: str
    count: int
    again: float
    """In the event loop's time."""
    state: str
    """Pending: not a fault; a new pod of the machine, or time, ends it."""


Failures = Mapping[str, Failure]
"""By the device's path."""


def next_due(steps: Sequence[S], failures: Failures, now: float) -> S | None:
    """Return the first step that need not wait for its next attempt, or None."""
    for each in steps:
        failed = failures.get(each.path)
        if failed is None or failed.again <= now or failed.step != each:
            return each
    return None


def failure_after(step: Step, message: str, before: Failure | None, now: float, *, waits: bool = False, patience: int = 0) -> Failure:
    """Return the record of a failed attempt; pauses double.

    It is pending, not failed, if it ``waits`` for a new pod of the machine, or is one of the first ``patience`` attempts.
    """
    count = _count(step, before) + 1
    again = now + pause_seconds(count, RETRY_SECONDS, MAX_RETRY_SECONDS)
    state = live_changes.PENDING if waits or count <= patience else live_changes.FAILED
    return Failure(step, one_line(message, MAX_MESSAGE), count, again, state)


def delayed(step: Step, message: str, before: Failure | None, again: float) -> Failure:
    """Return the record of a step that may begin only at ``again``: ``before`` if of this step, else a pending one with ``message``."""
    if before is not None and before.step == step:
        return replace(before, again=again)
    return Failure(step, message, 0, again, live_changes.PENDING)


def unfinished(step: Step, message: str, before: Failure | None, again: float, *, has_failed: bool = False) -> Failure:
    """Return the record of a step that goes on at ``again``, reported at once, without another attempt counted.

    It is pending, or failed if what it waits for failed.
    """
    count, state = max(_count(step, before), step.reported), live_changes.FAILED if has_failed else live_changes.PENDING
    return Failure(step, one_line(message, MAX_MESSAGE), count, again, state)


def current(steps: Sequence[Step], failures: Failures) -> dict[str, Failure]:
    """Return the failures of these still missing steps, by the device's path, in the steps' order."""
    return {each.path: failures[each.path] for each in steps if each.path in failures}


def pause(steps: Sequence[Step], failures: Failures, now: float) -> float | None:
    """Return the seconds until the first retry of these steps; None if none failed or was delayed."""
    due = [each.again for each in current(steps, failures).values()]
    return max(min(due) - now, 0.0) if due else None


def with_entries(vm: Object, status: Object, steps: Sequence[Step], failures: Failures, now: datetime) -> Object:
    """Return the status; to ``status.changes`` is added an entry for each step that failed often enough (``Step.reported``)."""
    before = {entry.get("path"): entry for entry in live_changes.entries(vm)}
    missing = current(steps, failures).items()
    told = ((path, each) for path, each in missing if each.count >= each.step.reported)
    found = [_entry(path, failure, before.get(path) or {}, now) for path, failure in told]
    others = list(status.get(live_changes.FIELD) or ())
    return {**status, live_changes.FIELD: [*others, *found][: live_changes.MAX_CHANGES]} if found else status


def done(vm: Object, path: str, now: datetime) -> Object:
    """Return the status with an entry in ``status.changes``, for virt-api: the guest got or released the device at ``path``."""
    status: Object = dict(vm.get("status") or {})
    others = [each for each in live_changes.entries(vm) if each.get("path") != path]
    entry = {"path": path, "state": live_changes.APPLIED, "time": times.to_rfc3339(now)}
    return {**status, live_changes.FIELD: [*others[: live_changes.MAX_CHANGES - 1], entry]}


def _count(step: Step, before: Failure | None) -> int:
    return before.count if before is not None and before.step == step else 0


def _entry(path: str, failure: Failure, old: Mapping[str, Any], now: datetime) -> Object:
    time = old["time"] if old.get("time") and old.get("state") == failure.state else times.to_rfc3339(now)
    return {"path": path, "state": failure.state, "time": time, "message": failure.message}
