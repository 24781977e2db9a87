"""The reconcile loop: names in, calls of a reconciler out, again until it succeeds.

A reconciler is level-based: it is told which object to reconcile, never what happened to it, and brings the world closer to what the
object asks for. It is called again after any error, with growing pauses; after ``Conflict`` (what it read is no longer current) soon and
silently; after :class:`Terminal` only when the object changes. It never runs twice at once for one object.
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
"""One pass that takes longer hangs on something: it is cancelled and tried again, so that it does not hold a worker for ever."""
TURN_SECONDS: Final = 0.05
"""For passes that wait for nobody, one after the other, before others have a turn of the event loop, in which a lease is renewed, too."""
MAX_MESSAGE: Final = 1000

Outcome: TypeAlias = Literal["success", "requeue_after", "conflict", "error", "terminal"]
"""Of a pass; ``success``, ``requeue_after`` and ``error`` are controller-runtime's words, to which the other two are errors."""


Request: TypeAlias = NamespacedName
"""The object to reconcile; it may be gone."""


@dataclass(frozen=True, slots=True)
class Result:
    """It went well; reconcile again after ``requeue_after`` seconds even if nothing changes."""

    requeue_after: float | None = None


class Terminal(Exception):
    """Trying again cannot help before the object changes; the message is for operators."""


class InvalidObject(Exception):
    """An object that a decision needs is not what its kind says; the message says what is wrong. Another look may find it mended."""


class Reconciler(Protocol):
    """One decision, kept for every object of a kind."""

    async def reconcile(self, request: Request) -> Result:
        """Bring the world closer to what the object asks for."""
        ...


class Observer(Protocol):
    """A listener to the outcomes of passes: metrics."""

    def reconciled(self, name: str, outcome: Outcome, seconds: float) -> None:
        """A pass of the loop ``name`` ended."""
        ...


class Controller:
    """A queue of requests and the workers that feed them to a reconciler.

    ``workers`` passes run at a time. With None every object has a worker of its own: for reconcilers that wait for answers of others (a
    launcher in a guest's pod), so that no number of objects whose answers do not come keeps another object waiting.
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
        """Have an object reconciled."""
        self.queue.add(request)

    async def run(self, ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """Work until cancelled; ``ready`` is awaited first (informers that have to be in sync)."""
        if ready is not None:
            await ready()
        async with asyncio.TaskGroup() as tasks:
            if self._workers is None:
                while True:
                    tasks.create_task(self._process(await self.queue.get()))
                    await asyncio.sleep(0)  # they would all begin in one turn of the event loop
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
            logger.debug("changed meanwhile", extra=context)
            self.queue.add_rate_limited(request)
            return "conflict"
        except Terminal as error:
            logger.error("given up until it changes", extra={**context, "error": _message_of(error)})  # noqa: TRY400 - expected, the message says it
            self.queue.forget(request)
            return "terminal"
        except Exception as error:
            known = isinstance(error, errors.StatusError | TransportError | TimeoutError | InvalidObject)
            # Where it came from is told once: an object that fails and fails must not fill the log.
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
    """Return what an error says, as one line that fits into a log whatever was put into it."""
    return one_line(str(error) or repr(error), MAX_MESSAGE)
