"""Frozen file systems of a guest: the status, and the Event when they thaw by themselves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import freezing, operations
from launcher.protocol import messages

THAWED: Final = "ThawedAutomatically"
WHY: Final = "the guest's file systems thawed before a call of thaw: their time was over, or the guest rebooted or is being shut down"


def with_frozen(status: Object, observed: messages.Status) -> Object:
    """Return the status, in which file systems are frozen exactly if the launcher reports so."""
    found = {key: value for key, value in status.items() if key != freezing.FIELD}
    return {**found, freezing.FIELD: freezing.FROZEN} if observed.frozen else found


def news(vm: Object, status: Mapping[str, Any]) -> str:
    """Return the Event's message if file systems thawed without the verb ``thaw``; else empty."""
    if not freezing.is_frozen(vm) or freezing.is_frozen({"status": status}):
        return ""
    waiting = {each["id"] for each in operations.unfinished(vm) if each["action"] == operations.THAW}
    over = {each["id"] for each in status.get("operations") or () if operations.is_finished(each)}
    return "" if waiting & over else WHY
