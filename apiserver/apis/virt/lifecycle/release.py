"""The release of a migrated guest: the one fact that lets it run on the target, as a condition of the Migration.

The guest arrives on the target paused. It may run there once it is certain that no QEMU of it is left on the source and that the source's
libvirt gave it away. Whoever knows that, the source's virt-handler by its launcher's word or virt-controller by the last words of the
source's pod, may write it; it never becomes untrue again. Usually nobody needs to: virt-handlers tell each other over the relay.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import objects, times

RELEASED: Final = "Released"
"""Type of the condition."""
BY_HANDLER: Final = "SourceSucceeded"
BY_POD: Final = "SourcePodMigrated"
SOURCE_SILENT: Final = "SourcePodEnded"


def is_released(migration: Mapping[str, Any]) -> bool:
    """Return whether the guest may run on the target."""
    return objects.is_true(objects.dig(migration, "status", "conditions"), RELEASED)


def released(migration: Mapping[str, Any], reason: str, message: str, now: datetime) -> dict[str, Any]:
    """Return the Migration's status that says that it may."""
    return _with(migration, "True", reason, message, now)


def withheld(migration: Mapping[str, Any], message: str, now: datetime) -> dict[str, Any]:
    """Return the Migration's status that says that the source ended and did not say that the guest left."""
    return _with(migration, "False", SOURCE_SILENT, message, now)


def _with(migration: Mapping[str, Any], state: str, reason: str, message: str, now: datetime) -> dict[str, Any]:
    new = objects.new_condition(migration, RELEASED, state, reason, message)
    return objects.with_status_condition(migration.get("status") or {}, new, now=times.to_rfc3339(now))
