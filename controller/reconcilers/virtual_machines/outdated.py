"""Launcher pods of another version, and what happens to their guests. Pure.

A pod is outdated if its image differs from that of new pods; a tag is not resolved. The machine then has the condition
``LauncherOutdated``. ``upgrades`` decides when a guest is moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, condition, dig, new_condition, with_condition, without_condition
from apiserver.apis.virt.lifecycle import conditions, evictions, phases
from apiserver.apis.virt.places import names
from controller.reconcilers.actions import Action, WriteStatus
from controller.reconcilers.migrations import migratable
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines import statuses
from controller.reconcilers.virtual_machines.observed import Observed, own_pod

MAX_IMAGE: Final = 256
"""A user who can patch pods can change the image."""
MAX_WHY: Final = 300
_WITH_LAUNCHER: Final = frozenset({phases.RUNNING, phases.STOPPING, phases.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Way:
    """Whether and how a guest with an outdated launcher gets a new one: reason and words of the condition LauncherOutdated."""

    reason: str
    words: str


def image_of(pod: Object | None) -> str:
    """Return the image of virt-launcher in a pod's spec; else empty."""
    containers = dig(pod, "spec", "containers") or ()
    return next((str(each.get("image") or "") for each in containers if each.get("name") == names.CONTAINER), "")


def is_outdated(pod: Object | None, settings: Settings) -> bool:
    """Return True if a new pod would have another image of virt-launcher; False without a pod."""
    image = image_of(pod)
    return bool(image) and image not in (settings.launcher_image, *settings.rewritten_images)


def way(vm: Object, claims: Mapping[str, Object | None], settings: Settings) -> Way:
    """Return a condition's reason and words for what will happen to the guest of a machine with an outdated launcher."""
    strategy = evictions.strategy_of(vm) or settings.eviction_strategy
    why = one_line(migratable.why_not(vm, claims), MAX_WHY)
    if settings.workload_update.strategy == "None":
        way_on = f"restart the machine, since the guest cannot migrate ({why})" if why else "migrate or restart the machine"
        return Way(conditions.STAYS, f"no automatic update, because the chart's workloadUpdate.strategy is None: {way_on}")
    if strategy == evictions.EXTERNAL:
        return Way(conditions.STAYS, "another program must move it (evictionStrategy External)")
    if not why:
        return Way(conditions.WILL_MIGRATE, "virt-controller will migrate the guest into a pod of this version")
    if settings.workload_update.strategy != "Evict":
        return Way(conditions.STAYS, f"the guest cannot migrate ({why}): restart the machine")
    if strategy == evictions.LIVE_MIGRATE:
        return Way(
            conditions.STAYS, f"the guest cannot migrate ({why}), and evictionStrategy LiveMigrate forbids a shutdown: restart the machine"
        )
    return Way(
        conditions.WILL_BE_EVICTED,
        (f"the guest cannot migrate ({why}): virt-controller will shut it down and start it in a pod of this version"),
    )


def marked(seen: Observed, status: Object) -> Object:
    """Return this status, of a machine with a guest, with LauncherOutdated=True if its launcher is outdated, else without it."""
    pod = own_pod(seen, seen.pods)
    if not is_outdated(pod, seen.settings):
        return _without(status)
    found = way(seen.vm, seen.claims, seen.settings)
    image = one_line(image_of(pod), MAX_IMAGE)
    message = f"virt-launcher has image {image}, but this version uses {seen.settings.launcher_image}; {found.words}"
    new = new_condition(seen.vm, conditions.LAUNCHER_OUTDATED, "True", found.reason, message)
    return {**status, "conditions": with_condition(status.get("conditions"), new, now=times.to_rfc3339(seen.now))}


def without_guest(seen: Observed) -> tuple[Action, ...]:
    """Return the write that removes the condition LauncherOutdated, if present, from a machine without a launcher."""
    status = statuses.status_of(seen)
    if phases.phase_of(seen.vm) in _WITH_LAUNCHER or condition(status.get("conditions"), conditions.LAUNCHER_OUTDATED) is None:
        return ()
    return (WriteStatus(_without(status)),)


def _without(status: Object) -> Object:
    if condition(status.get("conditions"), conditions.LAUNCHER_OUTDATED) is None:
        return status
    return {**status, "conditions": without_condition(status.get("conditions"), conditions.LAUNCHER_OUTDATED)}
