"""Verbs that are carried out once, such as ``kubectl virt reset``: request one, and wait for its result."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.virt.lifecycle import operations
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure
from apiserver.kubectl.migrations import Waiting

VERBS: Final = ("reset", "softreboot", "nmi", "sendkey", "suspend")
LOOK_SECONDS: Final = 0.5
"""Between two reads of the machine."""


async def operate(access: Access, name: str, verb: str, waiting: Waiting, body: Mapping[str, Any] = MappingProxyType({})) -> int:
    """Request an operation with ``body``, and wait for its result if ``waiting.wait``; return the exit code."""
    operation_id = str(uuid.uuid4())
    print(await verbs.act(access, name, verb, {**body, "id": operation_id}), flush=True)
    if not waiting.wait:
        return 0
    try:
        async with asyncio.timeout(waiting.seconds):
            over = await _result(access, name, verb, operation_id)
    except TimeoutError as error:
        raise Failure(f"error: timed out waiting for the {verb} of virtual machine {access.namespace}/{name}, which continues") from error
    if over["result"] != operations.SUCCEEDED:
        raise Failure(f"error: {verb} virtual machine {access.namespace}/{name}: {over.get('message') or 'it failed'}")
    print(f"virtualmachine.kubevirt.io/{name}: {verb} done")
    return 0


async def _result(access: Access, name: str, verb: str, operation_id: str) -> operations.Operation:
    """Return the operation once it has a result."""
    shown = 0
    path, doing = VIRTUAL_MACHINES.path(access.namespace, name), f"wait for the {verb} of virtual machine {access.namespace}/{name}"
    while True:
        found = operations.find(await verbs.request(access, "GET", path, doing), operation_id)
        if found is None:
            raise Failure(f"error: {doing}: status.operations of the machine no longer lists it")
        if operations.is_finished(found):
            return found
        if (percent := int(found.get("percent") or 0)) > shown:
            shown = percent
            print(f"virtualmachine.kubevirt.io/{name}: {verb} {percent} %", flush=True)
        await asyncio.sleep(LOOK_SECONDS)
