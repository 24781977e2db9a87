"""Calls that may hang in the kernel, because they touch what is mounted in a pod.

Storage that does not answer stops nothing but its own pod: each pod has at most one such call at a time, in a thread of its own; who asks
again meanwhile waits for the same call. So there are never more threads than pods, and no pool of which hung calls could take the places.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

PATIENCE_SECONDS: Final = 5.0
"""Of one wait; the call goes on."""


class StorageHangs(Exception):
    """A call has not returned yet."""


class Calls:
    """The calls of this process."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Future[None]] = {}

    async def run(self, pod_uid: str, begin: Callable[[], Callable[[], None]]) -> None:
        """Carry out the call that ``begin`` returns, or wait for the one of this pod that hangs.

        Raises:
            StorageHangs: it has not returned in time.
            Exception: what the call raises.
        """
        future = self._running.get(pod_uid)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            threading.Thread(target=_carry_out, args=(begin(), future), name=f"pod {pod_uid}", daemon=True).start()
            self._running[pod_uid] = future
            future.add_done_callback(lambda _: self._running.pop(pod_uid))
        await asyncio.wait((future,), timeout=PATIENCE_SECONDS)
        if not future.done():
            raise StorageHangs(f"what is mounted in pod {pod_uid} does not answer; a disk of the virtual machine may be away")
        future.result()


def _carry_out(call: Callable[[], None], future: asyncio.Future[None]) -> None:
    failed: BaseException | None = None
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is, who waits gets it
        failed = error
    loop = future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(_settle, future, failed)


def _settle(future: asyncio.Future[None], failed: BaseException | None) -> None:
    if future.done():
        return
    if failed is None:
        future.set_result(None)
    else:
        future.set_exception(failed)
        future.exception()  # nobody may be waiting any more
