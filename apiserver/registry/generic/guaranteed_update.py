"""The optimistic update: plan with the cached object, commit if current, else repeat (Go: ``GuaranteedUpdate``).

Other outcomes count once storage confirms the cached copy. A dry run plans once, with the stored object.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from apiserver.apis.meta.errors import StatusError
from apiserver.registry.cacher.items import Item
from apiserver.registry.generic.ownership import keep_times
from apiserver.registry.generic.planning import Plan
from apiserver.registry.generic.stored import StoredObjects
from apiserver.registry.generic.transactions import Overtaken

Planning = Callable[[Item], Awaitable[Plan]]
"""Called again with a newer item."""


async def guaranteed_update(
    objects: StoredObjects, namespace: str, name: str, plan: Planning, *, dry_run: bool, repeatable: bool
) -> tuple[Item, bool]:  # fmt: skip
    """Commit what ``plan`` returns for the object's newest state; return (object, whether it was removed).

    ``plan`` is called again after another client's commit. A dry run or an unchanged object is not written. Raises NotFound, Conflict
    for a taken lock, Timeout without storage's answer (``repeatable``: the client may try again), ServiceUnavailable, the plan's errors.
    """
    item = objects.cached(namespace, name) if not dry_run else None
    certain = item is None
    if item is None:
        item = await objects.live(namespace, name)
    while True:
        planned = await _attempted(plan, item)
        if isinstance(planned, Plan) and _changes(planned, item):
            try:
                if planned.remove:
                    return await objects.remove(item, planned.obj, dry_run=dry_run), True
                return await objects.write(item.key, item, planned.obj, dry_run=dry_run, repeatable=repeatable), False
            except Overtaken as overtaken:
                item, certain = objects.current(name, overtaken.current), True
                continue
        if not certain:
            live, certain = await objects.live(namespace, name), True
            if (live.revision, live.stale) != (item.revision, item.stale):
                item = live
                continue
        if isinstance(planned, StatusError):
            raise planned
        return item, False


async def _attempted(plan: Planning, item: Item) -> Plan | StatusError:
    try:
        return await plan(item)
    except StatusError as refused:
        return refused


def _changes(planned: Plan, item: Item) -> bool:
    """Return whether to write. If only times of managed fields differ, restore them in ``planned``."""
    if planned.remove:
        return True
    keep_times(planned.obj, item.object)
    return item.stale or planned.obj != item.object
