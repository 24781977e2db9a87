"""Launcher pods of another release: which these are, what becomes of their guests, and how a machine says so. Pure.

virt-launcher lives as long as its guest, so after an upgrade of the chart guests run in pods of the release before. A pod is outdated when
the image of its container is not the one that virt-controller makes pods with now; what is behind a tag is not looked at. The machine has
the condition ``LauncherOutdated`` for as long as that is so. Who is moved when ``upgrades`` decide.
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
"""Characters of an image that are told: whoever may patch pods writes it."""
MAX_WHY: Final = 300
_WITH_LAUNCHER: Final = frozenset({phases.RUNNING, phases.STOPPING, phases.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Way:
    """Way on for a guest whose launcher is outdated."""

    reason: str
    """Of LauncherOutdated=True."""
    words: str


def image_of(pod: Object | None) -> str:
    """Return the image of virt-launcher in a pod, as its spec names it; empty: it names none."""
    containers = dig(pod, "spec", "containers") or ()
    return next((str(each.get("image") or "") for each in containers if each.get("name") == names.CONTAINER), "")


def is_outdated(pod: Object | None, settings: Settings) -> bool:
    """Return whether a pod has another virt-launcher than one that would be made now."""
    image = image_of(pod)
    return bool(image) and image not in (settings.launcher_image, *settings.rewritten_images)


def way(vm: Object, claims: Mapping[str, Object | None], settings: Settings) -> Way:
    """Return what becomes of the guest of a machine whose launcher is outdated.

    Args:
        vm: the machine.
        claims: those of its disks, by name.
        settings: with the strategy of updates.
    """
    strategy = evictions.strategy_of(vm) or settings.eviction_strategy
    why = one_line(migratable.why_not(vm, claims), MAX_WHY)
    if settings.workload_update.strategy == "None":
        way_on = f"restart the machine, since the guest cannot migrate ({why})" if why else "migrate or restart the machine"
        return Way(conditions.STAYS, f"nothing moves it by itself (the chart's workloadUpdate.strategy is None): {way_on}")
    if strategy == evictions.EXTERNAL:
        return Way(conditions.STAYS, "another program moves it (evictionStrategy External)")
    if not why:
        return Way(conditions.WILL_MIGRATE, "the guest will be moved live into a pod of this release")
    if settings.workload_update.strategy != "Evict":
        return Way(conditions.STAYS, f"the guest cannot migrate ({why}): restart the machine")
    if strategy == evictions.LIVE_MIGRATE:
        return Way(
            conditions.STAYS, f"the guest cannot migrate ({why}), and evictionStrategy LiveMigrate lets nobody end it: restart the machine"
        )
    return Way(
        conditions.WILL_BE_EVICTED, f"the guest cannot migrate ({why}): it will be shut down, and started again in a pod of this release"
    )


def marked(seen: Observed, status: Object) -> Object:
    """Return this status of a machine with a guest, with its condition LauncherOutdated as it should be."""
    pod = own_pod(seen, seen.pods)
    if not is_outdated(pod, seen.settings):
        return _without(status)
    found = way(seen.vm, seen.claims, seen.settings)
    image = one_line(image_of(pod), MAX_IMAGE)
    message = f"virt-launcher is of image {image}, and that of this release is {seen.settings.launcher_image}; {found.words}"
    new = new_condition(seen.vm, conditions.LAUNCHER_OUTDATED, "True", found.reason, message)
    return {**status, "conditions": with_condition(status.get("conditions"), new, now=times.to_rfc3339(seen.now))}


def over(seen: Observed) -> tuple[Action, ...]:
    """Return what takes the condition back of a machine whose guest has ended, whoever wrote the end."""
    status = statuses.status_of(seen)
    if phases.phase_of(seen.vm) in _WITH_LAUNCHER or condition(status.get("conditions"), conditions.LAUNCHER_OUTDATED) is None:
        return ()
    return (WriteStatus(_without(status)),)


def _without(status: Object) -> Object:
    if condition(status.get("conditions"), conditions.LAUNCHER_OUTDATED) is None:
        return status
    return {**status, "conditions": without_condition(status.get("conditions"), conditions.LAUNCHER_OUTDATED)}
