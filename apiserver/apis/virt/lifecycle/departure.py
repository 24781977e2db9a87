"""The condition of a Migration that lets its guest, which arrives paused, run on the target.

It says that the source's QEMU is gone. The source's virt-handler writes it, or virt-controller from the final report of the source's pod.
It is never revoked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import objects, times
from apiserver.apis.virt.kinds import dig_migration

RELEASED: Final = "Released"
BY_HANDLER: Final = "SourceSucceeded"
BY_POD: Final = "SourcePodMigrated"
SOURCE_SILENT: Final = "SourcePodEnded"


def is_released(migration: Mapping[str, Any]) -> bool:
    """Return whether ``Released`` is True: the guest may run on the target."""
    return objects.is_true(dig_migration(migration, "status", "conditions"), RELEASED)


def released(migration: Mapping[str, Any], reason: str, message: str, now: datetime) -> dict[str, Any]:
    """Return the Migration's new status, with the condition ``Released`` True."""
    return _with(migration, "True", reason, message, now)


def withheld(migration: Mapping[str, Any], message: str, now: datetime) -> dict[str, Any]:
    """Return the Migration's new status, with ``Released`` False: the source ended without reporting that the guest left."""
    return _with(migration, "False", SOURCE_SILENT, message, now)


def _with(migration: Mapping[str, Any], state: str, reason: str, message: str, now: datetime) -> dict[str, Any]:
    new = objects.new_condition(migration, RELEASED, state, reason, message)
    return objects.with_status_condition(migration.get("status") or {}, new, now=times.to_rfc3339(now))
