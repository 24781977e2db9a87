"""Network cards that the running guest gets and loses: the next step, and the record of failed ones. Pure.

The guest has what virt-launcher reports. It should have the cards of the desired form
(:mod:`apiserver.apis.virt.spec.hot_plug_interfaces`). Each step can be repeated, so none needs a memory.
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
from apiserver.apis.virt.spec import hot_plug_interfaces, live_changes
from launcher.protocol import messages

MAX_MESSAGE: Final = 512
RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
ATTACHED: Final = "InterfaceAttached"
DETACHED: Final = "InterfaceDetached"
"""Reasons of Events."""


@dataclass(frozen=True, slots=True)
class AttachCard:
    """Set the card's network up in the pod, have the launcher give the guest the card, and write that it has it."""

    card: Object

    @property
    def name(self) -> str:
        """Return the card's name."""
        return str(self.card["name"])


@dataclass(frozen=True, slots=True)
class DetachCard:
    """Have the guest release a card, remove its network from the pod, and write that it is gone."""

    card: Object

    @property
    def name(self) -> str:
        """Return the card's name."""
        return str(self.card["name"])


Step = AttachCard | DetachCard


@dataclass(frozen=True, slots=True)
class Failure:
    """The last attempt of a step."""

    step: Step
    """An edit ends the pause."""
    message: str
    count: int
    again: float
    """Time of the next attempt, in the event loop's time."""
    state: str
    """Pending: a new pod of the machine has what this one lacks."""


Failures = Mapping[str, Failure]
"""By the path of the card."""


def steps(vm: Object, launcher: messages.Status) -> tuple[Step, ...]:
    """Return all missing steps, those of removed cards first."""
    if launcher.domain is None or hot_plug_interfaces.INTERFACE not in launcher.domain.changes:
        return ()
    there = {each.name for each in launcher.domain.devices if each.kind == "interface"}
    return (
        *(DetachCard(each) for each in hot_plug_interfaces.removed(vm)),
        *(AttachCard(each) for each in hot_plug_interfaces.kept(vm) if each["name"] not in there),
        *(AttachCard(each) for each in hot_plug_interfaces.coming(vm)),
    )


def next_step(vm: Object, launcher: messages.Status, failures: Failures, now: float) -> Step | None:
    """Return the first step that is due, or None."""
    for each in steps(vm, launcher):
        failed = failures.get(hot_plug_interfaces.path_of(each.name))
        if failed is None or failed.again <= now or failed.step != each:
            return each
    return None


def failure_after(step: Step, message: str, before: Failure | None, now: float, *, waits: bool) -> Failure:
    """Return the record of a failed attempt; the pauses double. ``waits``: a new pod of the machine has what this one lacks."""
    count = before.count + 1 if before is not None and before.step == step else 1
    again = now + pause_seconds(count, RETRY_SECONDS, MAX_RETRY_SECONDS)
    return Failure(step, one_line(message, MAX_MESSAGE), count, again, live_changes.PENDING if waits else live_changes.FAILED)


def delayed(step: Step, message: str, before: Failure | None, again: float) -> Failure:
    """Return the record of a step that may not begin yet; this is no failed attempt."""
    return Failure(step, message, before.count if before is not None and before.step == step else 0, again, live_changes.PENDING)


def current(vm: Object, launcher: messages.Status, failures: Failures) -> dict[str, Failure]:
    """Return the failures of steps that are still missing."""
    paths = {hot_plug_interfaces.path_of(each.name) for each in steps(vm, launcher)}
    return {path: failure for path, failure in failures.items() if path in paths}


def pause(vm: Object, launcher: messages.Status, failures: Failures, now: float) -> float | None:
    """Return in how many seconds the next attempt of a failed step is due, or None."""
    due = [each.again for each in current(vm, launcher, failures).values()]
    return max(min(due) - now, 0.0) if due else None


def with_entries(vm: Object, status: Object, launcher: messages.Status, failures: Failures, now: datetime) -> Object:
    """Return the status with the failed steps among its changes."""
    before = {entry.get("path"): entry for entry in live_changes.entries(vm)}
    found = [_entry(path, failure, before.get(path) or {}, now) for path, failure in current(vm, launcher, failures).items()]
    others = list(status.get(live_changes.FIELD) or ())
    return {**status, live_changes.FIELD: [*others, *found][: live_changes.MAX_CHANGES]} if found else status


def done(vm: Object, card: str, now: datetime) -> Object:
    """Return the status that says that the guest got or released a card; virt-api then changes the running form."""
    status: Object = dict(vm.get("status") or {})
    path = hot_plug_interfaces.path_of(card)
    others = [each for each in live_changes.entries(vm) if each.get("path") != path]
    entry = {"path": path, "state": live_changes.APPLIED, "time": times.to_rfc3339(now)}
    return {**status, live_changes.FIELD: [*others[: live_changes.MAX_CHANGES - 1], entry]}


def _entry(path: str, failure: Failure, old: Mapping[str, Any], now: datetime) -> Object:
    time = old["time"] if old.get("time") and old.get("state") == failure.state else times.to_rfc3339(now)
    return {"path": path, "state": failure.state, "time": time, "message": failure.message}
