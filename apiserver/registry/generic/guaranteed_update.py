"""The optimistic update: plan with what is at hand, commit if that is what is stored, else plan again (Go: ``GuaranteedUpdate``).

At hand is the cache's copy, which may be behind: whatever its plan leads to except a successful commit counts only once storage has said
that it is not. A dry run begins with what is stored, and is planned once.
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
"""Returns what is to become of an object; called again with a newer one."""


async def guaranteed_update(
    objects: StoredObjects, namespace: str, name: str, plan: Planning, *, dry_run: bool, repeatable: bool
) -> tuple[Item, bool]:  # fmt: skip
    """Plan and commit until nobody interferes; return the object and whether it was removed.

    Terminates because each further round sees a commit of somebody else.

    Raises:
        NotFound, and what ``plan`` raises about the object as it is stored.
        Conflict: a lock is taken.
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
                continue  # nobody is asked twice about the same state
        if isinstance(planned, StatusError):
            raise planned
        return item, False


async def _attempted(plan: Planning, item: Item) -> Plan | StatusError:
    """Return the plan, or why there is none."""
    try:
        return await plan(item)
    except StatusError as refused:
        return refused


def _changes(planned: Plan, item: Item) -> bool:
    """Return whether there is anything to write; where nothing but the times of managed fields would change, those stay as they were."""
    if planned.remove:
        return True
    keep_times(planned.obj, item.object)
    return item.stale or planned.obj != item.object
