"""``kubectl virt rollout``: updates of sets' machines, as ``kubectl rollout``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places.resources import REPLICA_SETS
from apiserver.kubectl import acting, editing, rollout_plan, verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure
from apiserver.kubectl.migrations import Load
from apiserver.kubectl.rollout_plan import TITLE, Progress
from apiserver.kubectl.watching import Watching

COMMAND: Final = "rollout"
ACTIONS: Final = {
    "status": "show the progress of an update until it ends",
    "history": "list the templates of a set",
    "undo": "restore an earlier template of a set",
    "pause": "stop an update; a paused set also creates and deletes no machines",
    "resume": "continue a paused set",
    "restart": "restart a set's machines, one after the other",
}

READS: Final = {"status": "fail unless this is the newest revision (default 0: any)", "history": "print the template of this revision"}
"""Actions that read, with the text of ``--revision``."""


async def run(parsed: argparse.Namespace, load: Load, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> int:
    """Do one action on each set, and print the results; return the exit code: 1 if any failed."""
    way = await load()

    async def act(name: str) -> None:
        try:
            REPLICA_SETS.path(way.namespace, name)
        except errors.BadRequest as error:
            raise Failure(f"error: {error}") from error
        match parsed.action:
            case "status":
                await _follow(way, load, name, parsed)
            case "history":
                found = await _read(way, name)
                print(rollout_plan.details(found, parsed.revision) if parsed.revision else rollout_plan.history(found), flush=True)
            case _:
                await _edit(way, name, parsed, times.to_rfc3339(now()))

    return await acting.each(parsed.names, act)


async def _read(way: Access, name: str) -> Object:
    return await verbs.request(way, "GET", REPLICA_SETS.path(way.namespace, name), f"read {_named(way, name)}")


def _named(way: Access, name: str) -> str:
    return f"{rollout_plan.KIND} {way.namespace}/{name}"


async def _edit(way: Access, name: str, parsed: argparse.Namespace, moment: str) -> None:
    done = {"pause": "paused", "resume": "resumed", "restart": "restarted", "undo": "rolled back"}[parsed.action]

    def edited(found: Object) -> Object:
        nonlocal done
        match parsed.action:
            case "undo":
                wanted, number = rollout_plan.undone(found, parsed.to_revision)
                if number == rollout_plan.newest_number(found):
                    done = f"skipped rollback (current template already matches revision {number})"
                    return found
                return wanted
            case "restart":
                return rollout_plan.restarted(found, moment)
            case _:
                return rollout_plan.paused(found, wanted=parsed.action == "pause")

    dry_run = parsed.dry_run == "server"
    await editing.edit(way, REPLICA_SETS, name, _named(way, name), edited, dry_run=dry_run)
    print(f"{TITLE}/{name} {done}{' (server dry run)' if dry_run else ''}", flush=True)


async def _follow(way: Access, load: Load, name: str, parsed: argparse.Namespace) -> None:
    told = ""

    def tell(replica_set: Object) -> Progress:
        nonlocal told
        found = rollout_plan.progress(replica_set, parsed.revision)
        if found.text != told:
            print(found.text, flush=True)
        told = found.text
        return found

    first = await _read(way, name)
    if tell(first).done or parsed.watch == "false":
        return
    watching = Watching(load, way, REPLICA_SETS, first, lambda _: None)
    try:
        async with asyncio.timeout(parsed.timeout or None):
            await watching.until(lambda: watching.gone or tell(watching.newest).done)
    except TimeoutError as error:
        goes_on = f"is paused: kubectl virt rollout resume {name}" if rollout_plan.is_paused(watching.newest) else "continues"
        raise Failure(f"error: timed out waiting for the rollout of {_named(way, name)}, which {goes_on}") from error
    if watching.gone:
        raise Failure(f"error: {_named(way, name)} was deleted")
