"""``kubectl virt resume``: request a start from the saved memory, and wait until the guest runs."""

from __future__ import annotations

import asyncio

from apiserver.apis.virt.lifecycle import phases, power
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure
from apiserver.kubectl.migrations import Waiting
from apiserver.kubectl.operating import LOOK_SECONDS


async def resume(access: Access, name: str, waiting: Waiting) -> int:
    """Request the start, and wait for the guest if ``waiting.wait``; return the exit code.

    Raises:
        Failure: refused, failed, or not over in time.
    """
    path, doing = VIRTUAL_MACHINES.path(access.namespace, name), f"resume virtual machine {access.namespace}/{name}"
    answer = await verbs.request(access, "PUT", VIRTUAL_MACHINES.path(access.namespace, name, "resume"), doing, body={})
    print(f"virtualmachine.kubevirt.io/{name}: resume requested", flush=True)
    if not waiting.wait:
        return 0
    attempt = int(((answer.get("status") or {}).get("request") or {}).get("attempt") or 0)
    try:
        async with asyncio.timeout(waiting.seconds):
            while phases.phase_of(vm := await verbs.request(access, "GET", path, doing)) != phases.RUNNING:
                newest = power.newest_attempt(vm)
                if power.has_ended(newest) and int(newest["number"]) >= attempt:
                    raise Failure(f"error: {doing}: {newest.get('message') or 'it failed'}")
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError as error:
        raise Failure(f"error: timed out waiting for virtual machine {access.namespace}/{name} to run, which continues") from error
    print(f"virtualmachine.kubevirt.io/{name}: resume done")
    return 0
