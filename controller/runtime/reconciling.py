"""The reconcile loop: calls a reconciler for each key until it succeeds.

A reconciler is level-based: it gets the object's key, not the event. After an error it is called again with growing pauses; after
``Conflict`` (it read outdated data) soon and without a log message; after :class:`Terminal` only when the object changes. It never runs
twice at once for one object.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from apiserver.apis.meta import errors
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import NamespacedName
from apiserver.client.rest import TransportError
from apiserver.client.turns import Turn
from controller.runtime.workqueue import WorkQueue

logger = logging.getLogger(__name__)

RECONCILE_SECONDS: Final = 120.0
"""A longer pass is cancelled and retried, so it does not occupy a worker forever."""
TURN_SECONDS: Final = 0.05
"""After passes that never wait, other tasks get a turn of the event loop."""
MAX_MESSAGE: Final = 1000

Outcome: TypeAlias = Literal["success", "requeue_after", "conflict", "error", "terminal"]
"""``success``, ``requeue_after`` and ``error`` are controller-runtime's, where the others are errors."""


Request: TypeAlias = NamespacedName
"""Key of the object to reconcile, which may be gone."""


@dataclass(frozen=True, slots=True)
class Result:
    """Success; reconcile again after ``requeue_after`` seconds even without changes."""

    requeue_after: float | None = None


class Terminal(Exception):
    """Retrying is useless before the object changes; the message is for operators."""


class InvalidObject(Exception):
    """An object needed for a decision violates its kind's schema; the message says how. It may be fixed later."""


class Reconciler(Protocol):
    """Reconciles a kind's objects."""

    async def reconcile(self, request: Request) -> Result:
        """Bring the actual state towards the object's spec; return when to reconcile again."""
        ...


class Observer(Protocol):
    """Gets the outcomes of passes, for metrics."""

    def reconciled(self, name: str, outcome: Outcome, seconds: float) -> None:
        """Record outcome and duration of a pass of the loop ``name``."""
        ...


class Controller:
    """A queue of requests with workers that call a reconciler.

    At most ``workers`` passes run at a time. With None, each object has its own worker, so a launcher in a guest's pod that does not
    answer delays no other object.
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        *,
        workers: int | None = 4,
        observer: Observer | None = None,
        turn_seconds: float = TURN_SECONDS,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[Request] = WorkQueue()
        self._reconciler = reconciler
        self._workers = workers
        self._observer = observer
        self._turn = Turn(turn_seconds)

    def enqueue(self, request: Request) -> None:
        """Enqueue an object unless queued; during its pass, for another pass afterwards."""
        self.queue.add(request)

    async def run(self, ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """Run the workers until cancelled; awaits ``ready`` first (for informers to sync)."""
        if ready is not None:
            await ready()
        async with asyncio.TaskGroup() as tasks:
            if self._workers is None:
                while True:
                    tasks.create_task(self._process(await self.queue.get()))
                    await asyncio.sleep(0)  # otherwise they would all begin in one turn of the event loop
            for _ in range(self._workers):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self._process(await self.queue.get())
            await self._turn.rest()

    async def _process(self, request: Request) -> None:
        began = asyncio.get_running_loop().time()
        outcome: Outcome = "error"
        try:
            outcome = await self._reconcile(request)
        finally:
            self.queue.done(request)
        if self._observer is not None:
            self._observer.reconciled(self.name, outcome, asyncio.get_running_loop().time() - began)

    async def _reconcile(self, request: Request) -> Outcome:
        context = {"controller": self.name, "namespace": request.namespace, "object": request.name}
        try:
            async with asyncio.timeout(RECONCILE_SECONDS):
                result = await self._reconciler.reconcile(request)
        except errors.Conflict:
            logger.debug("the object changed meanwhile; retrying", extra=context)
            self.queue.add_rate_limited(request)
            return "conflict"
        except Terminal as error:
            logger.error(("reconcile failed; waiting until the object changes"), extra={**context, "error": _message_of(error)})  # noqa: TRY400 - expected, the message says it
            self.queue.forget(request)
            return "terminal"
        except Exception as error:
            known = isinstance(error, errors.StatusError | TransportError | TimeoutError | InvalidObject)
            # Only the first failure logs a traceback, because an object may fail repeatedly.
            trace = None if known or self.queue.failures(request) else error
            logger.warning("reconcile failed", extra={**context, "error": _message_of(error)}, exc_info=trace)
            self.queue.add_rate_limited(request)
            return "error"
        self.queue.forget(request)
        if result.requeue_after is not None:
            self.queue.add_after(request, result.requeue_after)
            return "requeue_after"
        return "success"


def _message_of(error: Exception) -> str:
    return one_line(str(error) or repr(error), MAX_MESSAGE)
