"""``kubectl virt migrate`` and ``kubectl virt cancel-migration``."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TextIO

from apiserver.apis.meta import errors, objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import departure, phases
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.kubectl import messages, progress, verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.following import Following
from apiserver.kubectl.messages import Failure

CANCEL: Final = "cancel-migration"
LINE_SECONDS: Final = 4.0
"""Between lines of a phase; the status changes every five seconds."""
WIDTH: Final = 80

Load = Callable[[], Awaitable[Access]]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Whether to wait for a verb's end, and how long (flags ``--wait`` and ``--timeout``)."""

    wait: bool = False
    seconds: float = 600.0
    is_terminal: bool = False
    tell_seconds: float = 2.0
    """So that quick verbs print nothing."""


class Screen:
    """Shows progress: a changing line on terminals, else occasional lines."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._drawn = ""
        self._phase = ""
        self._at = 0.0

    def show(self, migration: Object) -> None:
        """Show a migration's progress."""
        if self._is_terminal:
            width = max(shutil.get_terminal_size((WIDTH, 24)).columns - 1, 1)
            text = progress.bar(migration, width)
            self._out.write(f"\r{text.ljust(min(len(self._drawn), width))}")
            self._out.flush()
            self._drawn = text
            return
        text, phase, now = progress.line(migration), phases.phase_of(migration), time.monotonic()
        if text != self._drawn and (phase != self._phase or now - self._at >= LINE_SECONDS):
            self._out.write(f"{text}\n")
            self._out.flush()
            self._drawn, self._phase, self._at = text, phase, now

    def leave(self) -> None:
        """End the progress line; other output follows below."""
        if self._is_terminal and self._drawn:
            self._drawn = ""
            self._out.write("\n")
            self._out.flush()


async def migrate(name: str, load: Load, waiting: Waiting, body: Mapping[str, Any] = MappingProxyType({}), *, dry_run: bool = False) -> int:
    """Create a machine's Migration; with ``waiting.wait``, show its progress until it ends; return 0.

    ``body``: the request's. Raises Failure; if it waits, also if the guest does not move in time.
    """
    access = await load()
    doing = f"migrate virtual machine {access.namespace}/{name}"
    params = {"dryRun": "All"} if dry_run else None
    path = VIRTUAL_MACHINES.path(access.namespace, name, "migrate")
    made = await verbs.request(access, "PUT", path, doing, params=params, body=dict(body))
    if made.get("kind") != MIGRATIONS.kind:
        raise Failure(f"error: {doing}: the server returned something other than a Migration")
    title = f"migration.kubevirt.io/{objects.name_of(made)}"
    print(f"{title} created{' (server dry run)' if dry_run else ''}", flush=True)
    if dry_run or not waiting.wait:
        return 0
    ended = await _follow(access, load, made, waiting, stop=f"cancel it with: kubectl virt {CANCEL} {name} -n {access.namespace}")
    if phases.is_unfinished(ended):
        if not await _has_moved(access, ended):
            raise Failure(f"error: migration {objects.name_of(made)} was deleted before it ended; the guest has not moved")
        print(f"{title}: the guest moved")
        return 0
    if phases.phase_of(ended) != phases.SUCCEEDED:
        raise Failure(f"error: {progress.outcome(ended)}")
    print(f"{title}: {progress.outcome(ended)}")
    return 0


async def cancel(name: str, load: Load, waiting: Waiting, *, by_migration: bool, dry_run: bool = False) -> int:
    """Request a migration's cancellation, and wait for its end if ``waiting`` says so; return 0.

    ``name`` is the machine's, or the Migration's if ``by_migration``. Raises Failure, also if the guest has moved.
    """
    access = await load()
    found = await (_named(access, name) if by_migration else _unfinished(access, name))
    migration = objects.name_of(found)
    if departure.is_released(found):
        raise Failure(f"error: nothing to cancel: the guest has already moved; migration {migration} is about to succeed")
    doing = f"cancel migration {access.namespace}/{migration}"
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": objects.uid_of(found)}}
    options |= {"dryRun": ["All"]} if dry_run else {}
    try:
        answer = await verbs.answered(access, "DELETE", MIGRATIONS.path(access.namespace, migration), doing, body=options)
    except errors.NotFound as error:
        raise Failure(f"error: nothing to cancel: migration {migration} was just deleted") from error
    except errors.StatusError as error:
        raise messages.of_status(error, doing) from error
    title = f"migration.kubevirt.io/{migration}"
    print(f"{title}: cancellation requested{' (server dry run)' if dry_run else ''}", flush=True)
    if dry_run or not waiting.wait:
        return 0
    newest = answer if objects.uid_of(answer) == objects.uid_of(found) else found
    ended = await _follow(access, load, newest, waiting, stop="it is still being cancelled")
    if phases.phase_of(ended) == phases.SUCCEEDED or (phases.is_unfinished(ended) and await _has_moved(access, ended)):
        raise Failure(f"error: migration {migration} was not cancelled: the guest had already moved")
    print(f"{title}: {'cancelled' if phases.phase_of(ended) != phases.FAILED else progress.outcome(ended)}; the guest stays on its node")
    return 0


async def _follow(access: Access, load: Load, first: Object, waiting: Waiting, *, stop: str) -> Object:
    screen = Screen(sys.stdout)
    try:
        return await Following(load, access, first, screen.show).end(waiting.seconds)
    except asyncio.CancelledError:
        screen.leave()  # ends the bar's line
        sys.stderr.write(f"Migration {objects.name_of(first)} goes on; {stop}\n")
        raise
    except Failure as failure:
        raise Failure(f"{failure}; {stop}") from failure
    finally:
        screen.leave()


async def _named(access: Access, name: str) -> Object:
    path = MIGRATIONS.path(access.namespace, name)
    found = await verbs.request(access, "GET", path, f"cancel migration {access.namespace}/{name}")
    if not phases.is_unfinished(found):
        raise Failure(f"error: nothing to cancel: {progress.outcome(found)}")
    return found


async def _unfinished(access: Access, machine: str) -> Object:
    doing = f"cancel the migration of virtual machine {access.namespace}/{machine}"
    try:
        listed = await verbs.answered(
            access, "GET", MIGRATIONS.path(access.namespace), doing, params={"fieldSelector": f"spec.selector.name={machine}"}
        )
    except errors.StatusError as error:
        raise messages.of_status(error, doing) from error
    items: list[Object] = listed.get("items") or []
    for each in items:
        if phases.is_unfinished(each) and dig_migration(each, "spec", "selector", "name") == machine:
            return each
    vm = await verbs.request(access, "GET", VIRTUAL_MACHINES.path(access.namespace, machine), doing)
    last = dig_vm(vm, "status", "migration") or {}
    more = f"; migration {last.get('name')} moved it to node {last.get('targetNode')}" if last.get("phase") == phases.SUCCEEDED else ""
    raise Failure(f"error: nothing to cancel: virtual machine {access.namespace}/{machine} is not being migrated{more}")


async def _has_moved(access: Access, migration: Object) -> bool:
    machine = str(dig_migration(migration, "spec", "selector", "name") or "")
    vm = await verbs.request(access, "GET", VIRTUAL_MACHINES.path(access.namespace, machine), f"read virtual machine {machine}")
    last = dig_vm(vm, "status", "migration") or {}
    return last.get("uid") == objects.uid_of(migration) and last.get("phase") == phases.SUCCEEDED
