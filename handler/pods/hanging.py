"""Calls that may hang in the kernel, because they touch a pod's mounts.

Each pod has at most one such call at a time for each purpose, in its own thread, for which later callers wait as well.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

PATIENCE_SECONDS: Final = 5.0
"""Wait of one caller; the call continues."""


T = TypeVar("T")


class StorageHangs(Exception):
    """A call that touches a pod's mounts has not returned in time; it continues."""


class Calls(Generic[T]):
    """Runs calls that may hang, in threads."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._running: dict[tuple[str, str], asyncio.Future[T]] = {}

    async def run(self, pod_uid: str, begin: Callable[[], Callable[[], T]], purpose: str = "", *, after: str = "") -> T:
        """Run the call that ``begin`` returns in a thread, or wait for the pod's unfinished one for this purpose; return its result.

        Raises its error. First waits for the pod's call for the purpose ``after``. Raises StorageHangs if a call takes too long.
        """
        while after and (other := self._running.get((pod_uid, after))) is not None:
            await self._wait(pod_uid, other)
        key = (pod_uid, purpose)
        future = self._running.get(key)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            threading.Thread(target=_carry_out, args=(begin(), future), name=f"pod {pod_uid}", daemon=True).start()
            self._running[key] = future
            future.add_done_callback(lambda _: self._running.pop(key))
        await self._wait(pod_uid, future)
        return future.result()

    async def _wait(self, pod_uid: str, future: asyncio.Future[T]) -> None:
        await asyncio.wait((future,), timeout=self._patience_seconds)
        if not future.done():
            raise StorageHangs(f"a mount in pod {pod_uid} does not respond; the storage of a disk may be unreachable")


def _carry_out(call: Callable[[], T], future: asyncio.Future[T]) -> None:
    try:
        settle = functools.partial(_return, future, call())
    except Exception as error:  # noqa: BLE001 - whatever it is, who waits gets it
        settle = functools.partial(_raise, future, error)
    loop = future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


def _return(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _raise(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # no caller may be waiting any more
