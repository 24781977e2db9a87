"""Edits that the running guest takes without a restart: the next one for virt-launcher, and their results. Pure.

virt-launcher reports each setting of the guest. Only failures are remembered, until the next attempt or edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import times
from apiserver.apis.meta.backoff import pause_seconds
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import live_changes, pod_memory
from apiserver.apis.virt.spec.live_changes import Change
from controller.runtime.recorder import EventType
from launcher.protocol import messages

MAX_MESSAGE: Final = 512
RETRY_SECONDS: Final = 5.0
MAX_RETRY_SECONDS: Final = 300.0
WITHOUT_EFFECT: Final = "libvirt reported success, but the guest does not have the setting"
NOT_REPORTED: Final = "virt-launcher does not find this setting in the guest"
CHANGED: Final = "HardwareChanged"
CHANGE_FAILED: Final = "HardwareChangeFailed"


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failed attempt to give a setting ``value``; ``again``: the next one."""

    value: str
    message: str
    count: int
    again: float
    """In the event loop's time."""


Failures = Mapping[Change, Failure]


def missing(vm: Mapping[str, Any], launcher: messages.Status) -> dict[Change, str]:
    """Return the desired values, by setting, that the guest neither has nor is changing to, and that virt-launcher can change now."""
    supported, told = _supported(launcher), _told(launcher)
    return {
        change: value
        for change, value in live_changes.wanted(vm).items()
        if change.what in supported
        and value != _target(told.get((change.what, change.name)), value)
        and not (change == live_changes.MEMORY and pod_memory.waits_for_pod(vm))
    }


def next_change(vm: Mapping[str, Any], launcher: messages.Status, failures: Failures, now: float) -> messages.Change | None:
    """Return the request for the first missing change of a setting that is due, or None."""
    for change, value in missing(vm, launcher).items():
        failed = failures.get(change)
        if failed is None or failed.value != value or failed.again <= now:
            return messages.Change(change.what, change.name, live_changes.device_of(vm["spec"]["domain"], change))
    return None


def failure_after(vm: Mapping[str, Any], change: Change, message: str, before: Failure | None, now: float) -> Failure:
    """Return the record of a setting's failed change; the pauses double."""
    value = live_changes.wanted(vm).get(change, "")
    count = before.count + 1 if before is not None and before.value == value else 1
    seconds = pause_seconds(count, RETRY_SECONDS, MAX_RETRY_SECONDS)
    return Failure(value, one_line(message, MAX_MESSAGE), count, now + seconds)


def pause(vm: Mapping[str, Any], launcher: messages.Status, failures: Failures, now: float) -> float | None:
    """Return the seconds until the next attempt of a failed change; None if none failed."""
    due = [failures[change].again for change in missing(vm, launcher) if change in failures]
    return max(min(due) - now, 0.0) if due else None


def with_entries(vm: Mapping[str, Any], status: Object, launcher: messages.Status, failures: Failures, now: datetime) -> Object:
    """Return the status; its ``status.changes`` is replaced by the state of each unfinished edit that the launcher supports."""
    supported, told = _supported(launcher), _told(launcher)
    before = {entry.get("path"): entry for entry in live_changes.entries(vm)}
    desired, there = live_changes.wanted(vm), _disks(launcher)
    found = []
    for change in _unfinished(vm, launcher):
        if change.what in supported:
            old = before.get(str(change)) or {}
            has = told.get((change.what, change.name))
            if change.what == "disk.size" and change.name not in there:  # a disk that waits for its image gets it when attached
                has = messages.SettingStatus(change.what, change.name, desired[change])
            state, message = _outcome(has, desired[change], failures.get(change), old)
            if change == live_changes.MEMORY and (waits := pod_memory.waits_for_pod(vm)):
                state, message = live_changes.PENDING, one_line(waits, MAX_MESSAGE)
            time = old["time"] if old.get("time") and old.get("state") == state else times.to_rfc3339(now)
            found.append({"path": str(change), "state": state, "time": time, **({"message": message} if message else {})})
    others = {key: value for key, value in status.items() if key != live_changes.FIELD}
    return {**others, live_changes.FIELD: found[: live_changes.MAX_CHANGES]} if found else others


def _unfinished(vm: Mapping[str, Any], launcher: messages.Status) -> list[Change]:
    """Return the edits that the guest lacks by ``status.running``, and memory that it still takes or releases."""
    found, desired = list(live_changes.of(vm)), live_changes.wanted(vm).get(live_changes.MEMORY)
    memory = _told(launcher).get((live_changes.MEMORY.what, ""))
    if memory is not None and desired is not None and (memory.requested or memory.value != desired):
        found.append(live_changes.MEMORY)
    return list(dict.fromkeys(found))


def _target(found: messages.SettingStatus | None, default: str) -> str:
    return default if found is None else found.requested or found.value


def _outcome(has: messages.SettingStatus | None, desired: str, failure: Failure | None, old: Mapping[str, Any]) -> tuple[str, str]:
    if has is None:
        return live_changes.FAILED, NOT_REPORTED
    if not has.requested and has.value == desired:
        return live_changes.APPLIED, ""
    if has.requested == desired:
        return live_changes.PENDING, f"the guest has {_amount(has.value)} so far"
    if failure is not None:
        return (live_changes.FAILED, failure.message) if failure.value == desired else (live_changes.PENDING, "")
    if old.get("state") == live_changes.FAILED:
        return live_changes.FAILED, str(old.get("message") or "")
    return live_changes.PENDING, ""


def events(vm: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[tuple[EventType, str, str]]:
    """Yield type, reason and message of an Event for each change that the guest took, or that failed with a new message."""
    before = {entry.get("path"): entry for entry in live_changes.entries(vm)}
    for entry in status.get(live_changes.FIELD) or ():
        path, message = entry["path"], entry.get("message")
        if entry["state"] == live_changes.APPLIED:
            yield "Normal", CHANGED, f"the guest took the edit of {path}"
        elif entry["state"] == live_changes.FAILED and (before.get(path) or {}).get("message") != message:
            yield "Warning", CHANGE_FAILED, f"{path}: {message}"


def _supported(launcher: messages.Status) -> tuple[str, ...]:
    return launcher.domain.changes if launcher.domain is not None else ()


def _disks(launcher: messages.Status) -> set[str]:
    return {each.name for each in launcher.domain.devices if each.kind == "disk"} if launcher.domain is not None else set()


def _told(launcher: messages.Status) -> dict[tuple[str, str], messages.SettingStatus]:
    settings = launcher.domain.settings if launcher.domain is not None else ()
    return {(each.what, each.name): each for each in settings}


def _amount(value: str) -> str:
    return f"{int(value) >> 20} MiB" if value.isdecimal() else value
