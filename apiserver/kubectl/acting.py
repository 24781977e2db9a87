"""Verbs for one or several machines: request each, then wait for all."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import operations
from apiserver.apis.virt.places.names import HOSTNAME_LABEL
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import chosen_node, messages, outcomes, progress, verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure
from apiserver.kubectl.migrations import Load, Waiting
from apiserver.kubectl.watching import Watching

OPERATIONS: Final = frozenset({"reset", "softreboot", "nmi", "sendkey", "suspend", "freeze", "thaw"})
"""Carried out once; other verbs set a level."""
STARTS: Final = frozenset({"start", "resume", "restart"})


@dataclass(frozen=True, slots=True)
class Begun:
    """A verb that virt-api accepted for one machine; ``judge`` tells later whether it ended."""

    name: str
    vm: Object
    """After the call."""
    judge: outcomes.Judge
    call_id: str = ""
    """Of an operation."""


async def each(names: Sequence[str], act: Callable[[str], Awaitable[object]]) -> int:
    """Call ``act`` for the names in turn, and print each Failure to stderr; return kubectl's exit code: 1 if any failed."""
    failed = False
    for name in names:
        try:
            await act(name)
        except Failure as failure:
            failed = True
            sys.stderr.write(f"{failure}\n")
    return int(failed)


async def act(load: Load, names: Sequence[str], verb: str, body: Mapping[str, Any], waiting: Waiting, *, dry_run: bool = False) -> int:
    """Request a verb of each machine; if ``waiting.wait``, but not in a dry run, wait for all.

    Print results and each Failure; return kubectl's exit code: 1 if any failed.
    """
    access = await load()
    begun: list[Begun] = []

    async def request(name: str) -> None:
        begun.append(await _request(access, name, verb, body, joins=waiting.wait and not dry_run, dry_run=dry_run))

    code = await each(names, request)
    if begun and (node := (body.get("nodeSelector") or {}).get(HOSTNAME_LABEL)):
        await chosen_node.warn(access, node)
    if not waiting.wait or dry_run:
        return code
    has_bar = waiting.is_terminal and len(begun) == 1
    async with asyncio.TaskGroup() as group:
        tasks = {made.name: group.create_task(_problem(load, access, made, verb, waiting, has_bar=has_bar)) for made in begun}

    async def tell(name: str) -> None:
        if problem := tasks[name].result():
            raise Failure(problem)
        end = f"sent; the guest may ignore it: then use kubectl virt reset {name}" if verb == "softreboot" else "done"
        print(f"virtualmachine.kubevirt.io/{name}: {verb} {end}", flush=True)

    return await each(list(tasks), tell) or code


async def _request(access: Access, name: str, verb: str, body: Mapping[str, Any], *, joins: bool, dry_run: bool) -> Begun:
    """Request the verb. ``joins``: if the machine is being started already, return how to judge that earlier start. Raises Failure."""
    call_id = str(uuid.uuid4())
    doing = f"{verb} virtual machine {access.namespace}/{name}"
    sent = {**body, **({"id": call_id} if verb in OPERATIONS else {})}
    path = VIRTUAL_MACHINES.path(access.namespace, name, verb)
    try:
        vm = await verbs.answered(access, "PUT", path, doing, body=sent, params={"dryRun": "All"} if dry_run else None)
    except errors.StatusError as error:
        if not (joins and verb in STARTS and not body and isinstance(error, errors.Conflict)):
            raise messages.of_status(error, doing) from error
        vm = await verbs.request(access, "GET", VIRTUAL_MACHINES.path(access.namespace, name), doing)
        judge = outcomes.of_earlier_start(vm, verb)
        if judge is None:
            raise messages.of_status(error, doing) from error
        print(f"virtualmachine.kubevirt.io/{name}: already on or being started", flush=True)
        return Begun(name, vm, judge)
    print(f"virtualmachine.kubevirt.io/{name}: {verb} requested{' (server dry run)' if dry_run else ''}", flush=True)
    return Begun(name, vm, outcomes.of_operation(call_id), call_id) if verb in OPERATIONS else Begun(name, vm, outcomes.of_level(verb, vm))


async def _problem(load: Load, access: Access, begun: Begun, verb: str, waiting: Waiting, *, has_bar: bool) -> str:
    machine = f"virtual machine {access.namespace}/{begun.name}"
    found: list[outcomes.Outcome] = []
    shown = 0

    def show(vm: Object) -> None:
        nonlocal shown
        operation = operations.find(vm, begun.call_id) or {}
        if not operations.is_finished(operation) and (percent := int(operation.get("percent") or 0)) > shown:
            shown = percent
            title = f"virtualmachine.kubevirt.io/{begun.name}: {verb}"
            print(
                *([f"\r{title} {progress.drawn(percent)}"] if has_bar else [title]), f"{percent} %", end="" if has_bar else "\n", flush=True
            )

    watching = Watching(load, access, VIRTUAL_MACHINES, begun.vm, show)

    def is_over() -> bool:
        outcome = outcomes.deleted(verb) if watching.gone else begun.judge(watching.newest)
        found.extend([outcome] if outcome is not None else [])
        return bool(found)

    async with asyncio.TaskGroup() as group:
        telling = group.create_task(_tell(begun.name, verb, lambda: {} if has_bar and shown else watching.newest, waiting.tell_seconds))
        try:
            async with asyncio.timeout(waiting.seconds):
                await watching.until(is_over)
        except TimeoutError:
            state = messages.said(outcomes.waits_for(watching.newest))
            return f"error: timed out waiting for the {verb} of {machine}, which continues{f' ({state})' if state else ''}"
        except Failure as failure:
            return str(failure)
        finally:
            telling.cancel()
            if has_bar and shown:
                print(flush=True)
    return f"error: {verb} {machine}: {found[0].problem}" if found[0].problem else ""


async def _tell(name: str, verb: str, newest: Callable[[], Object], seconds: float) -> None:
    told = ""
    while True:
        await asyncio.sleep(seconds)
        if (state := messages.said(outcomes.waits_for(newest()))) and state != told:
            told = state
            sys.stderr.write(f"virtualmachine.kubevirt.io/{name}: {verb} waits: {state}\n")
